"""The parts of a contender, where their packets and resources are found, and how their messages pair in captures.

Models of a contender file, used by `spec`; read by `wires`, `running` and whoever captures or observes.
"""

from __future__ import annotations

from pydantic import model_validator

from battlebrokers.contenders.strict import Name, Port, Strict
from battlebrokers.record.exporters import MEASURED_COLUMNS, Exporter


class Metrics(Strict):
    """Where a Prometheus server has this service's resources: a known exporter's names, or queries of your own."""

    exporter: Exporter | None = None
    labels: dict[str, str] = {}
    """Labels that pick this service out of the exporter's series, such as {name: my-redis}."""
    queries: dict[str, str] = {}
    """Column of `resources` → PromQL query; they win over the exporter's."""

    @model_validator(mode="after")
    def _something(self) -> Metrics:
        if self.exporter is None and not self.queries:
            raise ValueError("say exporter, queries or both")
        unknown = sorted(set(self.queries) - set(MEASURED_COLUMNS))
        if unknown:
            raise ValueError(f"{unknown[0]} is not a column of resources: {', '.join(MEASURED_COLUMNS)}")
        return self


class Service(Strict):
    """One part of the broker: its processes, and where its packets and its resources are found.

    Written as a plain list it means `processes`.
    """

    processes: list[str] = []
    """Names of its processes; `*` takes every process no other service names."""
    ports: list[Name | Port] | None = None
    """Where it listens: names from `ports`, or numbers. When absent, `*` has all ports no other service names."""
    interface: str = ""
    """The interface to capture on; when absent loopback, in a namespace all of them, of a container its veth."""
    filter: str = ""
    """Which packets to capture there, as pcap-filter says it, such as `udp`; when absent those of its `ports`."""
    namespace: str = ""
    """The network namespace it lives in: a name (`ip netns`) or a path."""
    container: str = ""
    """The container it lives in (Docker or Podman): a name or an id."""
    cgroup: str = ""
    """Its control group (v2) below /sys/fs/cgroup, such as `system.slice/redis.service`; when absent looked up."""
    metrics: Metrics | None = None


class Pairing(Strict):
    """Which of its JSON messages (over WebSocket) are requests and what answers them, for captures."""

    type: str = ""
    """Where the type of a message stands, dots leading inwards and numbers into lists: `action`, `header.type`, `0`."""
    id: str = ""
    """Where the id stands that request and response share; when absent types pair in order."""
    answers: dict[str, str] = {}
    """Type of the response to each type of request."""
    unanswered: list[str] = []
    """Types that ask for nothing."""

    @model_validator(mode="after")
    def _something(self) -> Pairing:
        if not self.type and (self.answers or self.unanswered or not self.id):
            raise ValueError("say type: where the type of a message stands")
        return self
