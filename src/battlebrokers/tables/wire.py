"""What captures add up to: `hops` of followed messages, and sums between peers: `responses`, `traffic`, `kinds`, …"""

from __future__ import annotations

from battlebrokers.tables.base import Column, Table

HOPS = Table(
    name="hops",
    layer="journeys",
    about="One leg of a followed message between two services, as seen on the wire.",
    columns=(
        Column("trace", "int64", "The message followed: the same number on all its legs."),
        Column("device", "int32", "Its publisher, if our header was found.", nullable=True),
        Column("seq", "int64", "Its number, likewise.", nullable=True),
        Column("leg", "int32", "Number of the leg, from 1, in the order they began."),
        Column("parent", "int32", "The leg that brought it to the sender; null where it was first seen.", nullable=True),
        Column("sender", "string", "Who sent it: a service, or `outside`."),
        Column("receiver", "string", "Who received it: a service, or `outside`."),
        Column("protocol", "string", "The protocol."),
        Column("kind", "string", "The message's kind."),
        Column("name", "string", "What it is about: topic, channel, path, …"),
        Column("stream", "int64", "The conversation."),
        Column("epoch", "int32", "Which use of its ports."),
        Column("number", "int64", "Number of the message in it."),
        Column("sent_ns", "int64", "Its first byte on the wire."),
        Column("received_ns", "int64", "Its last byte on the wire."),
        Column("inside_ns", "int64", "How long it was inside the sender: from the last byte of the parent leg to the first byte of this one.", nullable=True),
        Column("matched_by", "string", "`header` (ours, exact, also inside of what services wrap it into), `id` (the same identifier in the payload), or `fingerprint` (the same payload, seen once on each wire)."),
        Column("confidence", "float64", "1 for `header`, 0.98 for `id`, 0.95 for `fingerprint`."),
    ),
)

RESPONSES = Table(
    name="responses",
    layer="measures",
    about="One kind of exchange between two peers.",
    columns=(
        Column("asker", "string", "Who asked: a service, or `outside`."),
        Column("answerer", "string", "Who was asked."),
        Column("protocol", "string", "The protocol."),
        Column("kind", "string", "Kind of the request."),
        Column("n", "int64", "Requests."),
        Column("answered", "int64", "Those with an answer, uncertain ones included."),
        Column("failed", "int64", "Those whose answer says that it failed."),
        Column("unanswered", "int64", "Those without."),
        Column("uncertain", "int64", "Of the answered, those paired by order only, with bytes missing in between."),
        Column("min_ns", "int64", "Shortest time from the last byte of the request to the first of the answer.", nullable=True),
        Column("p25_ns", "int64", "A quarter took at most so long.", nullable=True),
        Column("p50_ns", "int64", "Half took at most so long.", nullable=True),
        Column("p75_ns", "int64", "Three quarters took at most so long.", nullable=True),
        Column("p95_ns", "int64", "95 of 100 took at most so long.", nullable=True),
        Column("p99_ns", "int64", "99 of 100 took at most so long.", nullable=True),
        Column("max_ns", "int64", "The longest.", nullable=True),
        Column("mean_ns", "float64", "The mean.", nullable=True),
        Column("request_bytes", "int64", "Bytes of all requests."),
        Column("response_bytes", "int64", "Bytes of all answers."),
    ),
)

TRAFFIC = Table(
    name="traffic",
    layer="measures",
    about="What was said in one second between two peers in one protocol.",
    columns=(
        Column("second", "int64", "Whole seconds since the epoch."),
        Column("sender", "string", "Who spoke: a service, or `outside`."),
        Column("receiver", "string", "Who was spoken to."),
        Column("protocol", "string", "The protocol."),
        Column("part", "string", "`request`, `response`, or `other` (pushes, one-way messages, acknowledged by nobody)."),
        Column("messages", "int64", "Messages."),
        Column("bytes", "int64", "Their bytes on the wire, framing included."),
    ),
)

KINDS = Table(
    name="kinds",
    layer="measures",
    about="Messages of one kind between two peers; rows with a name are those of its most frequent names.",
    columns=(
        Column("sender", "string", "Who spoke: a service, or `outside`."),
        Column("receiver", "string", "Who was spoken to."),
        Column("protocol", "string", "The protocol."),
        Column("kind", "string", "The messages' kind."),
        Column("name", "string", "Topic, channel, queue, key, …; null: all of the kind together.", nullable=True),
        Column("names", "int64", "How many different names they have, up to some thousands; 0 if none."),
        Column("n", "int64", "Messages."),
        Column("bytes", "int64", "Their bytes on the wire, framing included."),
        Column("payload_bytes", "int64", "The users' part of them."),
        Column("requests", "int64", "Those that asked something."),
        Column("responses", "int64", "Those that answered something."),
        Column("followed", "int64", "Those of a name that were followed from service to service; of a kind see `passages`."),
        Column("p50_ns", "int64", "Median time to the answer of a name, in steps of 2 %; of a kind see `responses`.", nullable=True),
        Column("p99_ns", "int64", "99 of 100 took at most so long, likewise.", nullable=True),
    ),
)

PASSAGES = Table(
    name="passages",
    layer="measures",
    about="One kind of followed message on its way between two services.",
    columns=(
        Column("sender", "string", "Who sent it: a service, or `outside`."),
        Column("receiver", "string", "Who received it."),
        Column("protocol", "string", "The protocol."),
        Column("kind", "string", "The message's kind."),
        Column("n", "int64", "Legs."),
        Column("inside_p50_ns", "int64", "How long the sender kept half of them at most; null where all were first seen.", nullable=True),
        Column("inside_p95_ns", "int64", "How long it kept 95 of 100 at most.", nullable=True),
    ),
)

ENDINGS = Table(
    name="endings",
    layer="measures",
    about="Where followed messages were seen last that never arrived: it sends others on, but not them.",
    columns=(
        Column("service", "string", "Whoever received them last."),
        Column("n", "int64", "Messages."),
    ),
)

EXAMPLES = Table(
    name="examples",
    layer="measures",
    about="One leg of a followed message that was chosen as an example; the other columns are those of `hops`.",
    columns=(
        Column("chosen", "string", "As what: `slowest`, `slow` (of the slowest hundredth), `ordinary` (of the faster half), `median`, `stuck` (never arrived)."),
        Column("chosen_from", "int64", "How many messages were followed in all."),
        *HOPS.columns,
    ),
)
