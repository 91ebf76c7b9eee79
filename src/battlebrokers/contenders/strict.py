"""The base of every model of a contender file: no unknown key, no silent conversion, and names that are names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Port = Annotated[int, Field(ge=1, le=65535)]


class Strict(BaseModel):
    """Reads exactly what is written; keys that Python cannot spell have a trailing underscore."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=False)


def one_or_many(value: Any) -> Any:
    """A single thing written where a list may stand."""
    return [value] if isinstance(value, dict) else value


OneOrMany = BeforeValidator(one_or_many)
