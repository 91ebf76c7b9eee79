"""CoAP messages as bytes: heads by hand, options by aiocoap, blocks and statuses as numbers.

Pure functions used by the talk and the link. Reading any bytes ends in a message or in MalformedMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import unquote_to_bytes

from aiocoap.numbers.optionnumbers import OptionNumber
from aiocoap.options import Options
from aiocoap.optiontypes import ContentFormatOption, UintOption

from battlebrokers.errors import InputError

CON, NON, ACK, RST = range(4)
EMPTY = 0
METHODS = {"get": 1, "post": 2, "put": 3, "delete": 4, "patch": 6}
CHANGED, CONTINUE, BAD_OPTION = 0x44, 0x5F, 0x82
ETAG, OBSERVE, URI_HOST, URI_PATH, CONTENT_FORMAT, URI_QUERY, BLOCK2, BLOCK1 = 4, 6, 3, 11, 12, 15, 23, 27
JSON_FORMAT = b"\x32"
LARGEST_BLOCK = 6
"""Blocks of 2 ** (6 + 4) = 1024 bytes, the largest there are."""
LONGEST_SEGMENT_BYTES = 255

_HEAD = struct.Struct(">BBH")
_UINTS_OF_ONEM2M = frozenset({267, 307})
"""ty and rsc; its other options are texts."""

_UNDERSTOOD = frozenset({BLOCK1, BLOCK2, *range(257, 312, 2), 2049, 2053})
"""Critical options that an answer may carry: of blocks, and those of oneM2M and OCF, which dialects may read."""

Option = tuple[int, bytes]
_NO_PAYLOAD = "a payload marker is followed by no payload"


class MalformedMessage(ValueError):  # noqa: N818 - what came, not what we did
    """What came is no CoAP."""


@dataclass(slots=True)
class Message:
    """One message that came in."""

    kind: int
    code: int
    message_id: int
    token: bytes
    payload: bytes = b""
    options: dict[int, list[bytes]] = field(default_factory=dict)
    size: int = 0
    bad_option: int = 0
    """The first critical option that nobody here understands; 0 when there is none."""

    def option(self, number: int) -> bytes | None:
        """The first option of that number."""
        found = self.options.get(number)
        return found[0] if found else None

    @property
    def status(self) -> int:
        """4.04 as 404."""
        return status_of(self.code)

    def named_options(self) -> dict[str, str]:
        """All options by number as text, for what a dialect keeps of an answer."""
        return {str(number): values[0].decode("utf-8", "replace") for number, values in self.options.items()}


def status_of(code: int) -> int:
    """4.04 as 404."""
    return (code >> 5) * 100 + (code & 31)


def uint(number: int) -> bytes:
    """A number as options carry it: no leading zeros, zero is nothing."""
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def head(kind: int, code: int, message_id: int, token: bytes = b"") -> bytes:
    """The first bytes of a message, the token included."""
    return _HEAD.pack(0x40 | kind << 4 | len(token), code, message_id) + token


def encoded_options(options: Iterable[Option]) -> bytes:
    """Options in the order of their numbers, as they stand on the wire."""
    made = Options()
    for number, value in options:
        made.add_option(OptionNumber(number).create_option(decode=value))
    return bytes(made.encode())


def read(datagram: bytes) -> Message:
    """A datagram as a message; raises MalformedMessage."""
    size = len(datagram)
    if size < 4:
        raise MalformedMessage(f"{size} bytes are too few for CoAP")
    first, code, message_id = _HEAD.unpack_from(datagram)
    if first >> 6 != 1:
        raise MalformedMessage("it is not CoAP version 1")
    start = 4 + (first & 15)
    if first & 15 > 8 or start > size:
        raise MalformedMessage("its token is longer than it may be")
    made = Message(first >> 4 & 3, code, message_id, datagram[4:start], size=size)
    if start == size:
        return made
    if code == EMPTY:
        raise MalformedMessage("an empty message has something in it")
    if datagram[start] == 0xFF:
        made.payload = datagram[start + 1 :]
        if not made.payload:
            raise MalformedMessage(_NO_PAYLOAD)
    else:
        options = Options()
        try:
            made.payload = bytes(options.decode(datagram[start:]))
            for option in options.option_list():
                made.options.setdefault(int(option.number), []).append(bytes(option.encode()))
        except Exception as error:  # aiocoap answers some nonsense with whatever Python raises on the way
            raise MalformedMessage(f"its options cannot be read: {error}"[:200]) from error
        if not made.payload and datagram[-1] == 0xFF and _ends_with_marker(datagram[start:]):
            raise MalformedMessage(_NO_PAYLOAD)
        # Odd numbers are critical (RFC 7252 §5.4.6).
        made.bad_option = next((number for number in made.options if number & 1 and number not in _UNDERSTOOD), 0)
    return made


def _ends_with_marker(options: bytes) -> bool:
    """Whether the last byte is the payload marker, and not the last of an option's value."""
    try:
        Options().decode(options[:-1])
    except Exception:  # noqa: BLE001 - an option without its last byte is reported in several ways
        return False
    return True


# ── blocks (RFC 7959) ────────────────────────────────────────────────────────────────────────────────────────────


def block_option(number: int, more: bool, exponent: int) -> bytes:
    """The value of a Block1 or Block2 option."""
    return uint(number << 4 | (8 if more else 0) | exponent)


def read_block(value: bytes) -> tuple[int, bool, int]:
    """Number, whether more follow, size exponent (0 to 6)."""
    whole = int.from_bytes(value[:3], "big")
    return whole >> 4, bool(whole & 8), min(whole & 7, LARGEST_BLOCK)


def bytes_in_blocks(options: Sequence[Option], body_bytes: int, exponent: int, token_bytes: int) -> int:
    """What all requests take together that carry a body of that size, block by block."""
    size = 1 << exponent + 4
    blocks = -(-body_bytes // size)
    # The number of a block stands in one byte below 16, in two below 4096, else in three: all else is alike.
    limits = (0, 16, 4096, max(blocks, 4096))
    frames = 0
    for first, end in pairwise(limits):
        count = min(end, blocks) - first
        if count > 0:
            option = (BLOCK1, block_option(first, True, exponent))
            frames += count * (_HEAD.size + token_bytes + len(encoded_options([*options, option])) + 1)
    return frames + body_bytes


# ── addresses and options of a dialect ───────────────────────────────────────────────────────────────────────────


def path_options(path: str) -> list[Option]:
    """`/a/b?c=d` as options; percent signs are decoded."""
    way, _, query = path.partition("?")
    options = [(URI_PATH, unquote_to_bytes(part)) for part in way.removeprefix("/").split("/") if way.strip("/")]
    options += [(URI_QUERY, unquote_to_bytes(part)) for part in query.split("&") if part]
    return options


def topic_options(prefix: str, topic: str) -> list[Option]:
    """The path of a topic below a prefix; nothing is decoded, for topics are no URLs."""
    parts = [part for part in prefix.split("/") if part]
    return [(URI_PATH, part.encode()) for part in [*parts, *topic.removeprefix("/").split("/")]]


def option_number(name: str) -> int:
    """An option by number or by its registered name (`accept`, `content-format`)."""
    if name.isdecimal() and int(name) < 65_536:
        return int(name)
    try:
        return int(OptionNumber[name.upper().replace("-", "_")])
    except KeyError:
        raise InputError(
            f"CoAP has no option {name!r}", hint="Give its number, or a name such as accept or content-format."
        ) from None


def option_value(number: int, text: bytes) -> bytes:
    """The value a dialect's text stands for: numbers where the option is one, or where it says `uint:`."""
    explicit = text.startswith(b"uint:")
    digits = text.removeprefix(b"uint:")
    if explicit or number in _UINTS_OF_ONEM2M or _is_uint(number):
        if not digits.isdigit():
            raise InputError(f"option {number} is a number, not {digits[:40]!r}")
        return uint(int(digits))
    return text


def _is_uint(number: int) -> bool:
    return isinstance(OptionNumber(number).create_option(decode=b""), UintOption | ContentFormatOption)
