"""Credentials from a CSV file: a row for each node. Called by the rules (to check) and the expansion (to use)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.errors import QuantityError
from battlebrokers.secrets import Secret

_COLUMNS = ("username", "password", "client_id")
_LARGEST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Login:
    """Who one node is."""

    username: str | None
    password: Secret | None
    client_id: str | None


def read_logins(path: Path) -> list[Login]:
    """All rows of a file whose first line names the columns; raises QuantityError if it is not one."""
    hint = "the first line names the columns: username,password or username,password,client_id"
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise QuantityError(f"{path.name} is larger than {_LARGEST_BYTES} bytes")
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, strict=True))
    except OSError as error:
        raise QuantityError(f"{path.name} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise QuantityError(f"{path.name} is not a CSV file in UTF-8: {error}", hint=hint) from None
    columns = set(rows[0]) if rows else {"username"}
    if "username" not in columns or not columns <= set(_COLUMNS):
        raise QuantityError(f"{path.name} has the wrong columns", hint=hint)
    return [
        Login(
            row.get("username") or None,
            Secret(row["password"]) if row.get("password") else None,
            row.get("client_id") or None,
        )
        for row in rows
    ]
