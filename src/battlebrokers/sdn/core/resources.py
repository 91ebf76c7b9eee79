"""Resources and who subscribes to them. Pure values: every change gives a new `Directory`, or says why not.

Changed by the broker on behalf of REST; read by the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from battlebrokers.errors import InputError
from battlebrokers.sdn.core.addresses import following


class Mode(StrEnum):
    """How copies are made."""

    REACTIVE = "reactive"
    """The first switch asks the controller, which sends a copy per subscriber there; every further switch asks about
    every copy. Nothing is installed."""
    DIRECT = "direct"
    """The controller is asked once per message and hands the copies out at each subscriber's own switch."""
    GROUP = "group"
    """The first switch makes a copy per subscriber, the others forward by address."""
    TREE = "tree"
    """One copy per link; the last switch rewrites it for its subscribers."""

    @property
    def asks(self) -> bool:
        """Whether switches ask the controller about every message, and do nothing by themselves."""
        return self in (Mode.REACTIVE, Mode.DIRECT)


class Source(StrEnum):
    """Whom a copy comes from."""

    PUBLISHER = "publisher"
    """As it was sent: only the destination is rewritten."""
    RESOURCE = "resource"
    """The resource's own address and the virtual MAC address."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One topic of the network."""

    address: str
    id: int
    mode: Mode = Mode.TREE
    source: Source = Source.PUBLISHER
    subscribers: dict[str, str] = field(default_factory=dict)
    """MAC address → IPv4 address; never changed in place."""
    name: str = ""
    """What people and gateways call it, such as an MQTT topic; no two have the same."""


class UnknownResourceError(InputError):
    """Nobody created it."""

    def __init__(self, address: str) -> None:
        super().__init__(f"there is no resource {address}", hint="list the resources, or create one")


class NameTakenError(InputError):
    """Another resource is called so."""


class UnknownSubscriberError(InputError):
    """Not subscribed to this resource."""


class AlreadySubscribedError(InputError):
    """Subscribed before."""


@dataclass(frozen=True, slots=True)
class Directory:
    """All resources, and what was handed out last: an address is never given twice."""

    resources: dict[str, Resource] = field(default_factory=dict)
    last_address: str | None = None
    last_id: int = 0

    def __getitem__(self, address: str) -> Resource:
        if address not in self.resources:
            raise UnknownResourceError(address)
        return self.resources[address]

    def named(self, name: str) -> Resource | None:
        """The resource of that name."""
        return next((one for one in self.resources.values() if name and one.name == name), None)

    def created(
        self, mode: Mode = Mode.TREE, source: Source = Source.PUBLISHER, name: str = ""
    ) -> tuple[Directory, Resource]:
        """With one more resource, at the next free address."""
        if (other := self.named(name)) is not None:
            raise NameTakenError(f"resource {other.address} is called '{name}' already", hint="choose another name")
        address = following(self.last_address)
        resource = Resource(address, self.last_id + 1, mode, source, name=name)
        return Directory(self.resources | {address: resource}, address, resource.id), resource

    def removed(self, address: str) -> Directory:
        """Without a resource and its subscriptions."""
        resource = self[address]
        left = {other: one for other, one in self.resources.items() if other != resource.address}
        return replace(self, resources=left)

    def changed(self, address: str, mode: Mode | None = None, source: Source | None = None) -> Directory:
        """With a resource in another mode, or with copies from another source."""
        resource = self[address]
        return self._with(replace(resource, mode=mode or resource.mode, source=source or resource.source))

    def subscribed(self, address: str, mac: str, ipv4: str) -> Directory:
        """With one more subscriber; one host is one subscriber, whatever else it subscribes to."""
        resource = self[address]
        if mac in resource.subscribers:
            raise AlreadySubscribedError(
                f"{mac} is subscribed to {address} already, as {resource.subscribers[mac]}",
                hint="remove the subscription first to change its address",
            )
        for other_mac, other_ipv4 in resource.subscribers.items():
            if other_ipv4 == ipv4:
                raise AlreadySubscribedError(
                    f"{ipv4} is subscribed to {address} already, by {other_mac}", hint="one address, one host"
                )
        return self._with(replace(resource, subscribers=resource.subscribers | {mac: ipv4}))

    def unsubscribed(self, address: str, mac: str) -> Directory:
        """Without a subscriber."""
        resource = self[address]
        if mac not in resource.subscribers:
            raise UnknownSubscriberError(
                f"{mac} is not subscribed to {address}", hint="list the subscribers of the resource"
            )
        left = {other: ipv4 for other, ipv4 in resource.subscribers.items() if other != mac}
        return self._with(replace(resource, subscribers=left))

    def differing(self, other: Directory) -> set[str]:
        """Addresses of resources that are not the same here and there."""
        every = self.resources.keys() | other.resources.keys()
        return {address for address in every if self.resources.get(address) != other.resources.get(address)}

    def still_reached(self, before: Directory) -> set[str]:
        """Who left a resource, and is still subscribed to another by which copies of the first may yet reach it.

        Between switches a copy of reactive or group mode tells whom it is for, not of what it is; copies of group mode
        alone are told from those that are wanted by their group.
        """
        left = {
            (mac, one.mode)
            for address, one in before.resources.items()
            for mac in one.subscribers
            if address not in self.resources or mac not in self.resources[address].subscribers
        }
        stayed = {(mac, one.mode) for one in self.resources.values() for mac in one.subscribers}
        pairs = ((Mode.REACTIVE, Mode.REACTIVE), (Mode.REACTIVE, Mode.GROUP), (Mode.GROUP, Mode.REACTIVE))
        return {mac for mac, mode in left for one, other in pairs if mode is one and (mac, other) in stayed}

    def _with(self, resource: Resource) -> Directory:
        return replace(self, resources=self.resources | {resource.address: resource})
