"""`/api/v1/lab`: the hosts of a service's own lab, given to devices and clients. Only there where there is a lab."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.topology import Topology
from battlebrokers.sdn.rest.messages import Request
from battlebrokers.sdn.seats import Role, Seat, Seats


class NewSeat(Request):
    """Who wants to sit."""

    role: Role


class SeatAnswer(BaseModel):
    """A host to be."""

    seat: int
    role: Role
    host: str
    namespace: str = Field(description="The network namespace of the host, as `ip netns` knows it.")
    mac: str
    ipv4: str
    switch: int


class LabAnswer(BaseModel):
    """The lab and who sits where."""

    topology: str
    title: str
    switches: int
    hosts: int
    device_hosts: list[str] = Field(description="Shared by all devices.")
    client_seats: int = Field(description="How many clients find a host to themselves.")
    free_client_seats: int
    seats: list[SeatAnswer]


def lab_routes(controller: Controller, topology: Topology, names: Names) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/api/v1/lab", tags=["lab"])
    seats = Seats(topology)

    def told(seat: Seat) -> SeatAnswer:
        host = seat.host
        return SeatAnswer(
            seat=seat.number, role=seat.role, host=host.name, namespace=names.namespace(host.name), mac=host.mac,
            ipv4=host.ipv4, switch=host.port.switch,
        )  # fmt: skip

    @router.get("")
    async def lab() -> LabAnswer:
        """The lab, and every seat that is taken."""
        clients = sum(seat.role == "client" for seat in seats.taken.values())
        return LabAnswer(
            topology=topology.name, title=topology.title, switches=len(topology.switches), hosts=len(topology.hosts),
            device_hosts=[host.name for host in seats.device_hosts], client_seats=len(seats.client_hosts),
            free_client_seats=len(seats.client_hosts) - clients, seats=[told(one) for one in seats.taken.values()],
        )  # fmt: skip

    @router.post("/seats", status_code=201)
    async def take(who: NewSeat) -> SeatAnswer:
        """A host for a device or a client; 409 when all seats for clients are taken."""
        return told(seats.take(who.role))

    @router.delete("/seats/{seat}", status_code=204)
    async def give_back(seat: int) -> None:
        """Give a seat back; a client's host is unsubscribed from everything first."""
        if seat in seats.taken and seats.taken[seat].role == "client":
            await _leave_everything(controller, seats.taken[seat].host.mac)
        seats.give_back(seat)

    return router


async def _leave_everything(controller: Controller, mac: str) -> None:
    def left(directory: Directory) -> Directory:
        for resource in list(directory.resources.values()):
            if mac in resource.subscribers:
                directory = directory.unsubscribed(resource.address, mac)
        return directory

    if any(mac in resource.subscribers for resource in controller.state.directory.resources.values()):
        await controller.change(left)
