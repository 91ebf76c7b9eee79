"""What has to be known beside the captures: which interface is which place, and which message is looked for.

Written as `ladder.json` beside the captures by whoever took them, and read again by `bb sdn ladder --from`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from battlebrokers.errors import InputError

FACTS_FILE: Final = "ladder.json"
CONTROLLER: Final = "controller"
_PORT = Field(ge=1, le=65535)


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HostCable(_Said):
    """The cable between a host and its switch."""

    kind: Literal["host"] = "host"
    interface: str
    host: str
    switch: str


class WireEnd(_Said):
    """One switch's end of a cable to another one."""

    kind: Literal["wire"] = "wire"
    interface: str
    switch: str
    other: str
    cable: int
    """Which one: two switches may have several between them."""


class OpenFlow(_Said):
    """Where switches and controller talk."""

    kind: Literal["openflow"] = "openflow"
    interface: str


Place = Annotated[HostCable | WireEnd | OpenFlow, Field(discriminator="kind")]


class HostAddresses(_Said):
    """A host, as frames name it."""

    mac: str
    ipv4: str


class Facts(_Said):
    """All of it."""

    format: Literal[1] = 1
    resource: str
    mode: str
    source: str
    publisher: str
    mark: Annotated[str, Field(min_length=8)]
    """Stands in the payload of the message and in no other."""
    openflow_port: Annotated[int, _PORT]
    switches: dict[str, int]
    hosts: dict[str, HostAddresses]
    subscribers: list[str]
    files: dict[str, list[Place]]
    """Capture file → the places of its interfaces, in their order in the file."""

    @model_validator(mode="after")
    def _known(self) -> Facts:
        places = [place for listed in self.files.values() for place in listed]
        named = {place.host for place in places if isinstance(place, HostCable)}
        unknown = ({self.publisher, *self.subscribers} | named) - set(self.hosts)
        if unknown:
            raise ValueError(f"these hosts have no addresses: {', '.join(sorted(unknown))}")
        return self


def read_facts(folder: Path) -> Facts:
    """The facts beside the captures of a folder."""
    path = folder / FACTS_FILE
    hint = "give a folder that `bb sdn ladder --out FOLDER` wrote"
    try:
        return Facts.model_validate_json(path.read_bytes())
    except OSError as fault:
        raise InputError(f"{path} cannot be read: {fault.strerror or fault}", hint=hint) from fault
    except ValidationError as fault:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in fault.errors())
        raise InputError(f"{path} is not what it should be: {wrong}", hint=hint) from fault


def write_facts(folder: Path, facts: Facts) -> None:
    """Keep them beside the captures."""
    (folder / FACTS_FILE).write_text(facts.model_dump_json(indent=2) + "\n", encoding="utf-8")
