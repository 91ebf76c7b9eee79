"""The secret that REST asks for beyond loopback: made, read from a file or the environment, compared.

Used by the service, the gateway and the commands of `bb sdn`. It never appears in a command line or an error.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from battlebrokers.errors import InputError

TOKEN_VARIABLE: Final = "BB_SDN_TOKEN"  # noqa: S105 (the name of a variable)
_FEWEST_CHARACTERS: Final = 16
_MOST_CHARACTERS: Final = 1024
_HINT: Final = "16 to 1024 visible ASCII characters without blanks, such as of: openssl rand -hex 32"


def new_token() -> str:
    """A random token that can be part of a URL."""
    return secrets.token_urlsafe(32)


def given_token(file: Path | None) -> str | None:
    """The token of a file, else of the environment, else None."""
    if file is None:
        text = os.environ.get(TOKEN_VARIABLE, "").strip()
        return _checked(text, f"the token in {TOKEN_VARIABLE}") if text else None
    try:
        with file.open("rb") as source:
            content = source.read(_MOST_CHARACTERS + 2)
    except OSError as fault:
        raise InputError(
            f"the token file {file} cannot be read: {fault.strerror}", hint="--token-file takes a file with the token"
        ) from fault
    return _checked(content.decode("latin-1").strip(), f"the token in {file}")


def is_bearer(authorization: str, token: str) -> bool:
    """Whether an `Authorization` header carries the token; takes as long for a nearly right one as for any other."""
    scheme, _, sent = authorization.partition(" ")
    matches = hmac.compare_digest(sent.strip().encode(), token.encode())
    return matches and scheme.lower() == "bearer"


def _checked(token: str, what: str) -> str:
    if not _FEWEST_CHARACTERS <= len(token) <= _MOST_CHARACTERS:
        size = f"more than {_MOST_CHARACTERS}" if len(token) > _MOST_CHARACTERS else str(len(token))
        raise InputError(f"{what} has {size} characters", hint=_HINT)
    if not all("!" <= character <= "~" for character in token):
        raise InputError(f"{what} contains blanks or characters beyond ASCII", hint=_HINT)
    return token
