"""How a client introduces itself, and what the broker's welcome allows it.

Called by the link around CONNECT and CONNACK. Pure: options in, packet out; packet in, limits out.
"""

from __future__ import annotations

from dataclasses import dataclass

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import LinkOptions
from battlebrokers.protocols.mqtt.framing import MAX_FRAME_BYTES
from battlebrokers.protocols.mqtt.packets import V5, V311, ConnAck, Connect, WillMessage
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.reasons import reason_words

ALIASES_ACCEPTED = 1024
"""How many topic aliases we let a broker use, when aliases are asked for at all; bounds memory."""

_VERSIONS = {"3.1.1": V311, "5": V5, "5.0": V5}
_WRONG_CREDENTIALS = {(V311, 4), (V311, 5), (V5, 0x86), (V5, 0x87)}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker allows on this connection; the defaults are the specification's."""

    receive_maximum: int = 65_535
    maximum_qos: int = 2
    retain_available: bool = True
    maximum_packet_bytes: int = MAX_FRAME_BYTES
    topic_aliases: int = 0
    keep_alive_s: int | None = None
    """The broker's own choice, which wins over ours."""


DEFAULT_LIMITS = Limits()


def protocol_version(options: LinkOptions) -> int:
    """The protocol level of the version asked for in words."""
    try:
        return _VERSIONS[options.version]
    except KeyError:
        raise InputError(f"MQTT {options.version} is not spoken here", hint="Use version 3.1.1 or 5.") from None


def connect_packet(options: LinkOptions, client_id: str) -> Connect:
    """The CONNECT these options ask for."""
    version = protocol_version(options)
    will = None
    properties = EMPTY
    if options.will is not None:
        delay_s = options.will.delay_s or None
        will = WillMessage(
            options.will.topic,
            options.will.payload,
            options.will.qos,
            options.will.retain,
            Properties(will_delay_s=delay_s) if version == V5 and delay_s else EMPTY,
        )
    if version == V5:
        properties = Properties(
            session_expiry_s=options.session_expiry_s or None,
            receive_maximum=options.receive_maximum if options.receive_maximum < 65_535 else None,
            topic_alias_maximum=ALIASES_ACCEPTED if options.topic_alias else None,
        )
    return Connect(
        client_id=client_id,
        version=version,
        clean=options.clean,
        keep_alive_s=options.keep_alive_s,
        username=options.username,
        password=None if options.password is None else options.password.reveal().encode(),
        will=will,
        properties=properties,
    )


def limits_of(welcome: ConnAck) -> Limits:
    """What a welcome allows."""
    told = welcome.properties
    if told is EMPTY or told == EMPTY:
        return DEFAULT_LIMITS
    return Limits(
        receive_maximum=65_535 if told.receive_maximum is None else told.receive_maximum,
        maximum_qos=2 if told.maximum_qos is None else told.maximum_qos,
        retain_available=told.retain_available is not False,
        maximum_packet_bytes=told.maximum_packet_bytes or MAX_FRAME_BYTES,
        topic_aliases=told.topic_alias_maximum or 0,
        keep_alive_s=told.server_keep_alive_s,
    )


def refusal(answer: ConnAck, version: int, broker: str) -> LinkError:
    """The error that tells why a broker did not let us in."""
    words = reason_words(answer.reason, version)
    why = f" ({answer.properties.reason_string})" if answer.properties.reason_string else ""
    hint = "Check username and password." if (version, answer.reason) in _WRONG_CREDENTIALS else ""
    return LinkError(f"{broker} refused the connection: {words}{why}", hint=hint, code=answer.reason)
