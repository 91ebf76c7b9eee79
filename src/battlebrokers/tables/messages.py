"""`messages` and `exchanges`: what was said on a wire, and who answered what. Computed by the pipeline."""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

MESSAGES = Table(
    name="messages",
    layer="decoded",
    about="One application message found in a stream.",
    columns=(
        Column("stream", "int64", "The conversation."),
        Column("epoch", "int32", "Which use of its ports."),
        Column("number", "int64", "Number of the message in its conversation, from 0, in the order they were found."),
        Column("protocol", "string", "`mqtt`, `http`, `websocket`, `redis`, …"),
        Column("kind", "string", "What it is in its protocol's words: `PUBLISH`, `GET`, `200`, `Query`, …"),
        Column("sender", "string", "`client` or `server`."),
        Column("name", "string", "What it is about: topic, path, command's key, queue, statement; empty if nothing."),
        Column("correlation", "string", "The id by which it is paired; empty if it has none."),
        Column("failed", "bool", "Whether it says that something went wrong."),
        Column("bytes", "int64", "Its length on the wire, framing included."),
        Column("payload_bytes", "int64", "The user's part of it; 0 if it carries nothing."),
        Column("first_ns", "int64", "The packet with its first byte."),
        Column("last_ns", "int64", "The packet that completed it."),
        Column("device", "int32", "Publisher in our header, if the payload carries one, as it is or as base64 or hexadecimal digits.", nullable=True),
        Column("seq", "int64", "Sequence number in our header, likewise.", nullable=True),
        Column("fingerprint", "int64", "Hash of the payload; null if it carries none or too much to look at.", nullable=True),
        Column("identity", "int64", "Number of an identifier in the payload: our header as base64 or hexadecimal digits, a UUID, a key such as `messageId`; null if there is none, or our header itself.", nullable=True),
        Column("reason", "int32", "The reason or return code it carries (MQTT; of several the highest); null if it carries none, as an acknowledgement of two bytes.", nullable=True),
        Column("properties", "string", "Of an MQTT 5 packet, a JSON object: `reason_string`, `correlation_data` (hexadecimal), `response_topic`, `topic_alias`, `message_expiry_s`, `session_expiry_s`, `assigned_client_id`, `server_reference`, `subscription_ids`, `user` (pairs), `reasons` (one per filter), `cut` where a bound left something out; empty if it has none of them."),
    ),
)

EXCHANGES = Table(
    name="exchanges",
    layer="decoded",
    about="One request with its response, or with its absence.",
    columns=(
        Column("stream", "int64", "The conversation."),
        Column("epoch", "int32", "Which use of its ports."),
        Column("protocol", "string", "The protocol."),
        Column("kind", "string", "Kind of the request."),
        Column("name", "string", "What it is about."),
        Column("asker", "string", "`client` or `server`: who asked."),
        Column("request", "int64", "Number of the request among the messages."),
        Column("response", "int64", "Number of the (last) response; null if there is none.", nullable=True),
        Column("answer", "string", "Kind of the response; empty if there is none."),
        Column("outcome", "string", "`answered`, `failed` (the answer says so), `unanswered`."),
        Column("rule", "string", "How they were paired: `id`, `order`, `hint`."),
        Column("certain", "bool", "False when bytes were missing between them and only their order pairs them."),
        Column("asked_ns", "int64", "Last byte of the request."),
        Column("answered_ns", "int64", "First byte of the response.", nullable=True),
        Column("ended_ns", "int64", "Last byte of the response.", nullable=True),
        Column("request_bytes", "int64", "Length of the request."),
        Column("response_bytes", "int64", "Length of the response, all its parts together.", nullable=True),
    ),
)
