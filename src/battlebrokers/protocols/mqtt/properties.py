"""The MQTT 5 properties as one typed value; absent is None (or an empty tuple), never zero.

Carried by packets; `property_codec` reads and writes them. Nothing here touches bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, repr=False)
class Properties:
    """All properties of MQTT 5; which packet may carry which is checked when they are written or read."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_s: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_bytes: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_identifiers_available: bool | None = None
    shared_subscription_available: bool | None = None

    def __repr__(self) -> str:
        # Twenty-seven absent fields would hide the one that matters.
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"Properties({', '.join(f'{name}={value!r}' for name, value in named if value not in (None, ()))})"


EMPTY = Properties()
