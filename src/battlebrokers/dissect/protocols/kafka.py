"""Kafka: requests under their API's name, responses as `…Response`, paired by correlation id; opened by the registry.

A response is read with its request's API and version. Records of batches (format 2, packed or not) in Produce and Fetch
are told as messages of kind `Record` inside the request or response that carries them; they ask nothing. Batches that
cannot be read are counted as undecoded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import Struct

from battlebrokers.dissect.kafka_records import INTEGERS, Cursor, Walk, fetched_topic, produce_failed
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Dissection, Talk

_REQUEST = Struct(">ihhih")
_RESPONSE = Struct(">ii")
_MAX_BYTES = 512 << 20
_WAITING = 65_536

_APIS = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata",
    "ControlledShutdown", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup",
    "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics",
    "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs",
    "AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate", "CreatePartitions", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken", "DeleteGroups", "ElectLeaders",
    "IncrementalAlterConfigs", "AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete",
    "DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials", "AlterUserScramCredentials", "Vote",
    "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "AlterPartition", "UpdateFeatures", "Envelope",
    "FetchSnapshot", "DescribeCluster", "DescribeProducers", "BrokerRegistration", "BrokerHeartbeat",
    "UnregisterBroker", "DescribeTransactions", "ListTransactions", "AllocateProducerIds", "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe", "ControllerRegistration", "GetTelemetrySubscriptions", "PushTelemetry",
    "AssignReplicasToDirs", "ListConfigResources", "DescribeTopicPartitions", "ShareGroupHeartbeat",
    "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter",
    "InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
)  # fmt: skip
_PRODUCE, _FETCH, _METADATA, _API_VERSIONS = 0, 1, 3, 18
_NEVER = 1 << 15
_FLEXIBLE = (
    9, 12, 6, 9, 4, 2, 6, 3, 8, 6, 3, 6, 4, 4, 4, 5, 3, _NEVER, 3, 5, 4, 2, 2, 4, 3, 3, 3, 1, 3, 2, 2, 2, 4, 2, 2, 2,
    2, 2, 2, 2, 2, 2, 2, 2, 1, 0, 0, _NEVER, 1, 1,
)  # fmt: skip
"""By API: the first version with compact fields and tags; all later APIs have them from the beginning."""
_KNOWN_PRODUCE, _KNOWN_FETCH = 13, 18
"""The last versions whose layout is read."""
_ERROR_AT = {
    11: (2, 0, 4), 12: (1, 0, 4), 13: (1, 0, 4), 14: (1, 0, 4), 16: (1, 0, 4), 10: (1, 0, 4), 17: (0, 0, 0),
    18: (0, 0, 0), 22: (0, 4, 4), 25: (0, 4, 4), 26: (0, 4, 4), 36: (0, 0, 0),
}  # fmt: skip
"""API → (version that put the throttle time in front, place of the error code before it, and from it on)."""


@dataclass(slots=True)
class _Asked:
    """What is needed to read a response."""

    api: int
    version: int
    name: str


@dataclass(slots=True)
class _Large:
    """A message that is read as it comes: larger than anybody waits for."""

    walk: Walk
    number: int
    end: int
    """Its offset in the sender's stream."""


class _Kafka:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._asked: dict[int, deque[_Asked]] = {}
        self._lost = [False, False]
        self._large: list[_Large | None] = [None, None]

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk, size, here = self._talk, len(data), 0
        talk.need[sender] = 0
        if (large := self._large[sender]) is not None:
            here = self._go_on(sender, large, data, 0, min(size, large.end - at), at)
            if self._large[sender] is not None or talk.skipping[sender]:
                return here
        if self._lost[sender]:
            here = self._search(sender, data, 0)
            talk.undecoded_bytes += here
            self._lost[sender] = here >= size
        least = 14 if sender == CLIENT else 8
        while size - here >= least:
            length = INTEGERS[4].unpack_from(data, here)[0] + 4
            if not least <= length <= _MAX_BYTES or (sender == CLIENT and not _plausible(data, here)):
                found = self._search(sender, data, here + 1)
                talk.broken(found - here)
                here = found
                self._lost[sender] = here >= size
                continue
            end = here + length
            shown = min(end, here + WHOLE_MESSAGE_BYTES)
            if shown > size:
                talk.need[sender] = shown - here
                break
            if sender == CLIENT:
                here = self._request(data, here, shown, end, at)
            else:
                here = self._response(data, here, shown, end, at)
            if (large := self._large[sender]) is not None:
                here = self._go_on(sender, large, data, here, min(size, end), at)
                if self._large[sender] is not None or talk.skipping[sender]:
                    break
            elif end > shown:
                talk.skip(sender, end - here)
                break
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        self._lost[sender] = False
        if (large := self._large[sender]) is not None:
            self._talk.undecoded(large.walk.give_up())
            self._large[sender] = None

    def resync(self, sender: int, data: bytes) -> int:
        return 0 if self._begins(sender, data, 0) else -1

    def _begins(self, sender: int, data: bytes, here: int) -> bool:
        """Whether a message begins here, told by its ids and by what follows it."""
        if len(data) - here < 14:
            return sender == SERVER and len(data) - here >= 8 and self._expected(data, here)
        if not (_certain_request(data, here) if sender == CLIENT else self._expected(data, here)):
            return False
        end = here + 4 + INTEGERS[4].unpack_from(data, here)[0]
        if len(data) - end < 14:
            return True
        return _plausible(data, end) if sender == CLIENT else 4 <= INTEGERS[4].unpack_from(data, end)[0] <= _MAX_BYTES

    def _expected(self, data: bytes, here: int) -> bool:
        length, correlation = _RESPONSE.unpack_from(data, here)
        return 4 <= length <= _MAX_BYTES and correlation in self._asked

    def _search(self, sender: int, data: bytes, start: int) -> int:
        """Where the next message begins; the end if nowhere."""
        # Sizes are below 512 MiB: a message begins with a small byte, nearly always with a zero.
        here = data.find(b"\0", start)
        while here >= 0:
            if self._begins(sender, data, here):
                return here
            here = data.find(b"\0", here + 1)
        return len(data)

    def _request(self, data: bytes, start: int, shown: int, end: int, at: int) -> int:
        """Tell a request; returns up to where it was read."""
        talk = self._talk
        _, api, version, correlation, client = _REQUEST.unpack_from(data, start)
        flexible = version >= _flexible_from(api)
        body = Cursor(data, start + 14 + max(0, client), shown, flexible=flexible)
        body.tags()
        name, walk = "", None
        if api == _PRODUCE and version <= _KNOWN_PRODUCE:
            walk = self._walk(CLIENT, version, flexible=flexible)
            body.here = walk.begin(data, body.here, shown, at)
            name = walk.name
        elif api == _FETCH and version <= _KNOWN_FETCH:
            name = fetched_topic(body, version)
        elif api == _METADATA and version < 10:
            name = body.string() if body.count() > 0 else ""
        number = talk.add(CLIENT, at + start, at + end, _api_name(api), name, str(correlation))
        if walk is None or walk.acks:
            talk.ask(correlation, number)
            if len(self._asked) >= _WAITING:
                del self._asked[next(iter(self._asked))]
            self._asked.setdefault(correlation, deque(maxlen=_WAITING)).append(_Asked(api, version, name))
        if walk is None:
            return shown
        return self._go_on(CLIENT, _Large(walk, number, at + end), data, body.here, shown, at)

    def _response(self, data: bytes, start: int, shown: int, end: int, at: int) -> int:
        """Tell a response; returns up to where it was read."""
        talk = self._talk
        correlation = _RESPONSE.unpack_from(data, start)[1]
        waiting = self._asked.get(correlation)
        if not waiting:
            talk.add(SERVER, at + start, at + end, "Response", correlation=str(correlation))
            return shown
        asked = waiting.popleft()
        if not waiting:
            del self._asked[correlation]
        api, version, name = asked.api, asked.version, asked.name
        flexible = version >= _flexible_from(api)
        body = Cursor(data, start + 8, shown, flexible=flexible)
        if api != _API_VERSIONS:  # whose header stays the old one, so that anybody can read it
            body.tags()
        failed, walk = False, None
        if api == _FETCH and version <= _KNOWN_FETCH:
            walk = self._walk(SERVER, version, flexible=flexible)
            body.here = walk.begin(data, body.here, shown, at)
            name = walk.name or name
        elif api == _PRODUCE and version <= _KNOWN_PRODUCE:
            failed = produce_failed(body, version)
        elif api in _ERROR_AT:
            since, before, after = _ERROR_AT[api]
            body.here += after if version >= since else before
            failed = body.number(2) != 0
        number = talk.add(
            SERVER, at + start, at + end, f"{_api_name(api)}Response", name, str(correlation), failed=failed
        )  # fmt: skip
        talk.answer(correlation, number)
        if walk is None:
            return shown
        return self._go_on(SERVER, _Large(walk, number, at + end), data, body.here, shown, at)

    def _walk(self, sender: int, version: int, *, flexible: bool) -> Walk:
        add = self._talk.add

        def tell(topic: str, start: int, end: int, value: bytes, size: int) -> None:
            add(sender, start, end, "Record", topic, payload=value, payload_bytes=size)

        return Walk(version, fetch=sender == SERVER, flexible=flexible, tell=tell)

    def _go_on(self, sender: int, large: _Large, data: bytes, here: int, shown: int, at: int) -> int:
        """Read more of a message with records; returns up to where, and remembers it if more is to come."""
        talk, walk = self._talk, large.walk
        known_bytes = walk.payload_bytes
        here = walk.read(data, min(here, shown), shown, at, last=at + shown == large.end)
        if walk.payload_bytes > known_bytes:
            talk.extend(large.number, large.end, walk.payload_bytes - known_bytes)
        if walk.failed:
            talk.fail(large.number)
        talk.undecoded(walk.undecoded_bytes)
        walk.undecoded_bytes = 0
        if walk.done:
            self._large[sender] = None
            talk.skip(sender, large.end - at - shown)
            return shown
        self._large[sender] = large
        talk.need[sender] = walk.need
        return here


def _flexible_from(api: int) -> int:
    return _FLEXIBLE[api] if 0 <= api < len(_FLEXIBLE) else 0


def _api_name(api: int) -> str:
    return _APIS[api] if 0 <= api < len(_APIS) else f"Api{api}"


def _plausible(data: bytes, here: int) -> bool:
    length, api, version, _, client = _REQUEST.unpack_from(data, here)
    return bool(10 <= length <= _MAX_BYTES and api >= 0 and 0 <= version < 64 and -1 <= client <= length - 10)


def _certain_request(data: bytes, here: int) -> bool:
    """Whether a request begins here, beyond doubt."""
    if len(data) - here < 14 or not _plausible(data, here):
        return False
    _, api, version, correlation, client = _REQUEST.unpack_from(data, here)
    name = data[here + 14 : here + 14 + max(0, client)]
    return api < len(_APIS) and version < 24 and correlation >= 0 and client <= 255 and (not name or name.isascii())


def _recognise(client: bytes, server: bytes) -> float:
    if not _certain_request(client, 0):
        return 0.0
    _, api, _, correlation, _ = _REQUEST.unpack_from(client)
    if len(server) >= 8 and _RESPONSE.unpack_from(server)[1] == correlation:
        return 0.9
    return 0.8 if api == _API_VERSIONS else 0.55


@dissector("kafka", ports=(9092, 9093, 9094), recognise=_recognise)
def kafka(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _Kafka(talk)
