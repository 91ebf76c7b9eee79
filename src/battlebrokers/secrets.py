"""Secrets: the one type that holds them, and how texts are freed of them before they are shown or stored.

Called wherever a password or token enters, is printed or is written. Holds the values this process knows, so that they
are found in texts of others (a broker's log, an error message). It never writes a value anywhere.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Self
from urllib.parse import quote, quote_plus

MASK: Final = "•••"

_SHORTEST_KNOWN = 6
"""Shorter values are masked where they stand, but not searched for: they are part of too many words."""
_MOST_KNOWN = 2_000

_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization|signature"
    r"|bearer|requirepass|masterauth|(^|[_.-])(pass|pwd|auth|jwt|sig|cookie)($|[_.-])",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"(file|path|dir|expiry|timeout|ttl|type|ur[il]|method|mode|enabled)$", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(r"^(x-amz-.*|key|code|sas|s?session(id)?|user_?key)$", re.IGNORECASE)

_MAY_BE_SECRET = re.compile(r"pass|pwd|secret|token|key|cred|auth|sig|bearer|jwt|cookie", re.IGNORECASE)
"""Lines without any of these are not looked at closer."""

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>[^\s\"'<>`]+)")
_PARAMETER = re.compile(r"(?P<name>(?<=[?&;])[^=&;?#\s\"'<>/]+)=(?P<value>[^&;#\s\"'<>`]*)")
_PAIR = re.compile(
    r"""(?P<name>(?P<quote>["']?)-{0,2}[A-Za-z][\w.-]*(?P=quote))
    (?P<between>[ \t]*[:=][ \t]*|[ \t]+)
    (?P<value>"(?:[^"\\\n]|\\.)*" | '[^'\n]*' | (?:Bearer|Basic|Digest|Token)[ \t]+[^\s,;}\]"']+
      | [^\s,;}\]"'{\[][^\s,;}\]"']*)""",
    re.VERBOSE,
)
_JSON_PAIR = re.compile(r'("([\w.-]{1,60})"\s*:\s*)"(?:[^"\\\n]|\\.)*"')
_SCHEME_OF_HEADER = re.compile(r"\b(?P<kind>Bearer|Basic)(?P<gap>[ \t]+)[A-Za-z0-9._~+/=-]{8,}")
_VARIABLES_ONLY = re.compile(r"(\{env:[^{}]+\}|\$\{[^{}]+\})+")


class Secret:
    """A password or token: `reveal` tells it, everything else shows •••. It cannot be changed, pickled or encoded."""

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The value, for the wire or for another process of this run."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_as_bytes(self._value), _as_bytes(other._value))

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a secret cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a secret cannot be changed")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret cannot be pickled")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """A text in models; dumped as ••• unless the context of the dump says `reveal`."""
        from pydantic_core import core_schema  # only models need it

        def shown(secret: Secret, info: Any) -> str:
            return secret.reveal() if (info.context or {}).get("reveal") else MASK

        def taken(value: Any) -> Secret:
            if isinstance(value, Secret):
                return value
            if isinstance(value, str):
                return Secret(value)
            raise ValueError("must be a text")  # and not what it is: that may be the secret

        return core_schema.no_info_plain_validator_function(
            taken,
            serialization=core_schema.plain_serializer_function_ser_schema(shown, info_arg=True),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        """To whoever writes a file it is a text."""
        return {"type": "string"}


_known: dict[str, None] = {}
"""Values this process knows to be secret, in every spelling they are looked for; the newest last."""


def remember(*secrets: Secret | str | None) -> None:
    """From now on these values are masked in every text of this process, wherever they stand in it."""
    for secret in secrets:
        value = secret.reveal() if isinstance(secret, Secret) else secret
        if value is None or len(value) < _SHORTEST_KNOWN or value == MASK:
            continue
        for spelling in _spellings(value):
            _known.pop(spelling, None)
            _known[spelling] = None
    while len(_known) > _MOST_KNOWN:
        del _known[next(iter(_known))]


def remember_named(values: Mapping[str, str | list[str]]) -> None:
    """The same for variables whose names say that they are secret, such as a token kept from a login."""
    remember(*(value for name, value in values.items() if isinstance(value, str) and is_secret_name(name)))


def remember_in(value: Any, *, name: str = "") -> None:
    """The same for what stands under secret names in plain data, such as a header in a contender file."""
    if isinstance(value, dict):
        for key, inner in value.items():
            remember_in(inner, name=str(key))
    elif isinstance(value, list):
        for inner in value:
            remember_in(inner, name=name)
    elif isinstance(value, str) and is_secret_name(name) and "$" not in value and not holds_only_variables(value):
        remember(value, value.partition(" ")[2])  # a header may name its scheme first: `Bearer …`


def forget_all() -> None:
    """Know nothing any more; for tests, which share a process."""
    _known.clear()


def _spellings(value: str) -> set[str]:
    """The value as it is, as URLs write it, and as JSON does."""
    plain = value.encode("utf-8", "surrogatepass")
    found = {value, quote(plain, safe=""), quote(plain), quote_plus(plain)}
    return found | {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _as_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret: password, api_key, meshblu_auth_token; but not password_file."""
    return bool(_SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


def is_secret_parameter(name: str) -> bool:
    """The same for a parameter in a URL, where also `key` and `X-Amz-…` are."""
    return is_secret_name(name) or bool(_SECRET_PARAMETER.match(name))


def holds_only_variables(value: str) -> bool:
    """Whether a text is made of `{env:NAME}` and `${name}` alone, and so tells nothing."""
    return bool(_VARIABLES_ONLY.fullmatch(value))


def masked_parameters(text: str) -> str:
    """The text without the values of secret query parameters."""
    if "=" not in text:
        return text
    return _PARAMETER.sub(lambda found: _kept(found, is_secret_parameter), text)


def _kept(found: re.Match[str], is_secret: Any) -> str:
    if not is_secret(found["name"]) or not found["value"]:
        return found[0]
    return f"{found['name']}={MASK}"


def masked_url(text: str) -> str:
    """A URL without password and without the values of secret parameters; anything else as `masked_text` has it."""
    return masked_text(text)


def bare_url(text: str) -> str:
    """A URL without credentials and query; what is no URL stays as it is."""
    found = _URL.match(text)
    if found is None:
        return text
    return found["scheme"] + re.split(r"[?#]", _userinfo(found["rest"])[2], maxsplit=1)[0]


def url_secrets(text: str) -> list[Secret]:
    """What a URL holds of secrets, as it is written there."""
    found: list[Secret] = []
    for url in _URL.finditer(text):
        userinfo, _, rest = _userinfo(url["rest"])
        user, colon, password = userinfo.partition(":")
        found += [Secret(part) for part in ((password,) if colon else (user,)) if part]
        # What is left when the URL is wrong may be the rest of the password.
        found += [Secret(each["value"]) for each in _PARAMETER.finditer(rest) if is_secret_parameter(each["name"])]
    return found


def _userinfo(rest: str) -> tuple[str, str, str]:
    """What stands before the host in the rest of a URL, the @ if there is one, and what follows."""
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" not in place and ":" in place and "@" in rest and not _is_port(place.rpartition(":")[2]):
        # A password with an unescaped / ? or #: what looks like the path is still part of it.
        place = rest
    userinfo, at, _ = place.rpartition("@")
    return userinfo, at, rest[len(userinfo) + len(at) :]


def _is_port(text: str) -> bool:
    return text == "" or text.isdecimal() or text.endswith("]")


def _masked_match(found: re.Match[str]) -> str:
    userinfo, at, rest = _userinfo(found["rest"])
    if not at:
        return found[0]
    user, colon, _ = userinfo.partition(":")
    # A name alone may be a token, as some services have it.
    shown = f"{user}:{MASK}" if colon else MASK
    return f"{found['scheme']}{shown}@{rest}"


def masked_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """A text without passwords in URLs, without secret parameters, and without these and all known secrets."""
    if "://" in text:
        text = _URL.sub(_masked_match, text)
    text = masked_parameters(text)
    if '":' in text or '" :' in text:
        text = _JSON_PAIR.sub(lambda found: found[1] + f'"{MASK}"' if is_secret_name(found[2]) else found[0], text)
    if "earer" in text or "asic" in text:
        text = _SCHEME_OF_HEADER.sub(lambda found: f"{found['kind']}{found['gap']}{MASK}", text)
    given = [spelling for secret in secrets if secret for spelling in _spellings(secret.reveal())]
    present = [value for value in (*given, *_known) if value in text]
    for value in sorted(present, key=len, reverse=True):
        # A short word is one only by itself: `test` must not take the middle out of `latest`.
        if len(value) < 8 and value.isalnum():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", MASK, text)
        else:
            text = text.replace(value, MASK)
    return text


def masked_document(text: str) -> str:
    """A configuration, a log or another document, also without the values of keys such as `password`."""
    return masked_text("".join(_masked_line(line) for line in text.splitlines(keepends=True)))


def _masked_line(line: str) -> str:
    if not _MAY_BE_SECRET.search(line):
        return line
    at, parts = 0, []
    while (pair := _PAIR.search(line, at)) is not None:
        name = pair["name"].strip("\"'-")
        # Without : or = only the first word of a line, or an option, names what follows it.
        alone = pair["between"].strip() or pair["name"].startswith("-") or not line[: pair.start()].strip()
        if alone and is_secret_name(name) and not holds_only_variables(pair["value"].strip("\"'")):
            quote_mark = pair["value"][0] if pair["value"][0] in "\"'" else ""
            parts.append(f"{line[at : pair.start('value')]}{quote_mark}{MASK}{quote_mark}")
            at = pair.end()
        else:
            # The value may itself be a name: `env PASSWORD=x`.
            end = pair.end("name")
            parts.append(line[at:end])
            at = end
    return "".join(parts) + line[at:]


def masked_values(value: Any, *, name: str = "") -> Any:
    """Plain data without secrets: texts under secret names, and whatever `masked_text` finds in the others."""
    if isinstance(value, dict):
        return {key: masked_values(inner, name=str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(inner, name=name) for inner in value]
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, str):
        hidden = bool(value) and is_secret_name(name) and not holds_only_variables(value)
        return MASK if hidden else masked_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and is_secret_name(name):
        return MASK
    return value


def masked_setting(text: str) -> str:
    """`key=value` as options take it: the value is masked where the key, or a key inside the value, is secret."""
    path, equals, value = text.partition("=")
    if not equals or "://" in path:
        return masked_text(text)
    if is_secret_name(path.strip().rpartition(".")[2]) and not _is_mapping(value):
        return text if holds_only_variables(value) else f"{path}={MASK}"
    return f"{path}={masked_document(value)}" if _is_mapping(value) else masked_text(text)


def _is_mapping(value: str) -> bool:
    return value.lstrip().startswith("{")
