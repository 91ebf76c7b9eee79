"""`/api/v1`: resources, subscriptions, topology and statistics, described by OpenAPI."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.addresses import ipv4, mac
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.core.resources import Directory, Mode, Resource
from battlebrokers.sdn.counters import Sums
from battlebrokers.sdn.observer import Observer
from battlebrokers.sdn.rest.messages import (
    ChangedResource,
    HostAnswer,
    LinkAnswer,
    NewResource,
    ResourceAnswer,
    StatisticsAnswer,
    SubscriberAnswer,
    Subscription,
    SwitchAnswer,
    TestMessage,
    TopologyAnswer,
    port_of,
)
from battlebrokers.sdn.rest.refusals import REFUSALS

Address = Annotated[str, Path(examples=["1.1.1.1"])]


def api_routes(controller: Controller, observer: Observer, mode: Mode = Mode.TREE) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/api/v1", tags=["broker"], responses=REFUSALS)

    def told(resource: Resource, sums: Sums) -> ResourceAnswer:
        hosts = controller.state.network.hosts
        subscribers = [
            SubscriberAnswer(mac=one, ipv4=address, seen_at=str(hosts[one].port) if one in hosts else "")
            for one, address in resource.subscribers.items()
        ]
        return ResourceAnswer(
            address=resource.address, id=resource.id, name=resource.name, port=port_of(resource), mode=resource.mode,
            source=resource.source, subscribers=subscribers, published=sums.published[resource.address],
            delivered=sums.delivered[resource.address], refused=sums.refused[resource.address],
            dropped=sums.refused[resource.address] + sums.lost[resource.address],
            pending=controller.pending(resource.address),
        )  # fmt: skip

    @router.get("/resources")
    async def resources(name: str | None = None) -> list[ResourceAnswer]:
        """Every resource with its subscribers and counters; with `name` at most one."""
        await observer.look()
        sums, directory = observer.sums(), controller.state.directory
        wanted = [directory.named(name)] if name is not None else directory.resources.values()
        return [told(one, sums) for one in wanted if one is not None]

    @router.post("/resources", status_code=201)
    async def create(wanted: NewResource) -> ResourceAnswer:
        """A new resource at the next free address."""
        resource = await controller.create(wanted.mode or mode, wanted.source, wanted.name)
        return told(resource, observer.sums())

    @router.get("/resources/{address}")
    async def resource(address: Address) -> ResourceAnswer:
        """One resource."""
        await observer.look()
        return told(controller.state.directory[ipv4(address)], observer.sums())

    @router.patch("/resources/{address}")
    async def change(address: Address, wanted: ChangedResource) -> ResourceAnswer:
        """Another mode, or another source of copies; answered once that is in effect."""
        at = ipv4(address)
        await controller.change(lambda directory: directory.changed(at, wanted.mode, wanted.source))
        return told(controller.state.directory[at], observer.sums())

    @router.delete("/resources/{address}", status_code=204)
    async def remove(address: Address) -> None:
        """Remove a resource with its subscriptions."""
        at = ipv4(address)
        await controller.change(lambda directory: directory.removed(at))

    @router.post("/resources/{address}/subscribers", status_code=201)
    async def subscribe(address: Address, who: Subscription) -> ResourceAnswer:
        """Subscribe a host; every message published after the answer reaches it."""
        at = ipv4(address)

        def subscribed(directory: Directory) -> Directory:
            return directory.subscribed(at, who.mac, who.ipv4)

        await controller.change(subscribed)
        return told(controller.state.directory[at], observer.sums())

    @router.delete("/resources/{address}/subscribers/{who}", status_code=204)
    async def unsubscribe(address: Address, who: str) -> None:
        """Unsubscribe a host, by its MAC address; no message published after the answer reaches it."""
        at, leaver = ipv4(address), mac(who)
        await controller.change(lambda directory: directory.unsubscribed(at, leaver))

    @router.post("/resources/{address}/messages", status_code=202)
    async def publish(address: Address, message: TestMessage) -> dict[str, str]:
        """Publish a message from the controller, through the tables of a switch, for trying out."""
        at = ipv4(address)
        switch = controller.publish(at, message.text.encode(), message.port)
        return {"message": f"published on {at} from switch {switch}"}

    @router.get("/hosts")
    async def hosts() -> list[HostAnswer]:
        """Every host that was seen, and where."""
        return _hosts(controller)

    @router.delete("/hosts/{who}", status_code=204)
    async def forget(who: str) -> None:
        """Take a host as gone: its addresses and its port are free for another."""
        await controller.forget_host(mac(who))

    @router.get("/topology")
    async def topology() -> TopologyAnswer:
        """Switches, links and hosts."""
        await observer.look()
        links = [
            LinkAnswer(
                ends=((one.switch, one.number), (other.switch, other.number)),
                packets=observer.port_packets.get(one, 0) + observer.port_packets.get(other, 0),
            )
            for one, other in controller.state.network.links.items()
            if one < other
        ]
        switches = [_switch(controller, number) for number in sorted(controller.introductions)]
        return TopologyAnswer(switches=switches, links=links, hosts=_hosts(controller))

    @router.get("/statistics")
    async def statistics() -> StatisticsAnswer:
        """What was published, delivered and dropped since the controller started."""
        await observer.look()
        sums = observer.sums()
        counts = [controller.past, *(channel.counts for channel in controller.channels.values())]
        return StatisticsAnswer(
            resources={at: told(one, sums) for at, one in controller.state.directory.resources.items()},
            drops=dict(sums.dropped),
            refused_questions=controller.refused_questions,
            packet_ins=sum(one.packet_ins for one in counts),
            packet_outs=sum(one.packet_outs for one in counts),
            malformed=sum(one.malformed for one in counts),
        )

    return router


def _hosts(controller: Controller) -> list[HostAnswer]:
    return [
        HostAnswer(mac=host.mac, ipv4=host.ipv4, switch=host.port.switch, port=host.port.number)
        for host in controller.state.network.hosts.values()
    ]


def _switch(controller: Controller, number: int) -> SwitchAnswer:
    said, channel = controller.introductions[number], controller.channels.get(number)
    tables = controller.state.known.get(number, Tables())
    counts = channel.counts if channel else None
    return SwitchAnswer(
        number=number, connected=channel is not None, description=said.description,
        ports=sorted(controller.state.network.ports.get(number, ())), rules=len(tables.rules),
        groups=len(tables.groups), packet_ins=counts.packet_ins if counts else 0,
        packet_outs=counts.packet_outs if counts else 0, errors=counts.errors if counts else 0,
        malformed=counts.malformed if counts else 0,
    )  # fmt: skip
