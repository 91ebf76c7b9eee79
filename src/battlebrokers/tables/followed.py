"""What captures say of services and single messages: `service_peers` and `followed`.

Captures alone (`bb pcap`) have them as `services` and `journeys`; a run's own tables of these names say what its
services used and what its listeners were owed.
"""

from __future__ import annotations

from dataclasses import replace

from battlebrokers.tables.base import Column, Table

FOLLOWED = Table(
    name="followed",
    layer="journeys",
    about="One message followed through the services; its legs are in `hops`. `bb pcap` writes it as `journeys`.",
    columns=(
        Column("trace", "int64", "The message: the same number as in `hops`."),
        Column("device", "int32", "Its publisher, if our header was found.", nullable=True),
        Column("seq", "int64", "Its number, likewise.", nullable=True),
        Column("legs", "int32", "How many legs were seen."),
        Column("first_ns", "int64", "Its first byte on any wire."),
        Column("last_ns", "int64", "Its last byte on any wire."),
        Column("first_seen", "string", "Who sent it first: a service, or `outside`."),
        Column("last_seen", "string", "Who received it last: a service, or `outside`."),
        Column(
            "arrived",
            "bool",
            "Whether it reached the outside, or a service that sends nothing on; else `last_seen` is where it got stuck.",
        ),
        Column("matched_by", "string", "The least certain of the ways its legs were recognised: see `hops`."),
        Column("confidence", "float64", "That of the least certain leg."),
    ),
)

SERVICE_PEERS = Table(
    name="service_peers",
    layer="measures",
    about="What one service was asked by one peer and what they said to each other, over the whole capture. `bb pcap` writes it as `services`.",
    columns=(
        Column("service", "string", "The service; a server without a name is its address and port."),
        Column("peer", "string", "Whom it talked to: a service, or `outside`."),
        Column("requests", "int64", "What the peer asked the service; kinds apart are in `responses`."),
        Column("answered", "int64", "Requests with an answer."),
        Column("failed", "int64", "Those whose answer says that it failed."),
        Column("unanswered", "int64", "Requests without."),
        Column("uncertain", "int64", "Of the answered, those paired by order only, with bytes missing in between."),
        Column("request_bytes", "int64", "Bytes of all requests."),
        Column("response_bytes", "int64", "Bytes of all answers."),
        Column(
            "response_mean_ns",
            "float64",
            "Mean time from the last byte of a request to the first of its answer.",
            nullable=True,
        ),
        Column("response_p50_ns", "int64", "Half took at most so long.", nullable=True),
        Column("response_p95_ns", "int64", "95 of 100 took at most so long.", nullable=True),
        Column("response_p99_ns", "int64", "99 of 100 took at most so long.", nullable=True),
        Column("response_max_ns", "int64", "The longest.", nullable=True),
        Column("received_messages", "int64", "All messages from the peer."),
        Column("received_bytes", "int64", "Their bytes on the wire, framing included."),
        Column("sent_messages", "int64", "All messages to the peer."),
        Column("sent_bytes", "int64", "Their bytes."),
        Column(
            "cpu_mean_percent",
            "float64",
            "Mean CPU of the service, whoever it worked for; 100 is one core. Null for captures alone.",
            nullable=True,
        ),
        Column("rss_max_bytes", "int64", "Its highest resident memory, likewise.", nullable=True),
    ),
)

ALONE = {FOLLOWED.name: replace(FOLLOWED, name="journeys"), SERVICE_PEERS.name: replace(SERVICE_PEERS, name="services")}
"""The same tables as captures alone have them."""
