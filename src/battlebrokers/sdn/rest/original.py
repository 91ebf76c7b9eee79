"""The endpoints of the original, word for word: `/db/resources/json` and `/db/subscribers/<resource>/json`."""

from __future__ import annotations

from fastapi import APIRouter

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.addresses import ipv4
from battlebrokers.sdn.core.resources import Directory, Mode
from battlebrokers.sdn.rest.messages import OriginalLeaver, OriginalResource, OriginalSubscriber
from battlebrokers.sdn.rest.refusals import REFUSALS


def original_routes(controller: Controller, mode: Mode = Mode.TREE) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/db", tags=["as in the original"], responses=REFUSALS)

    @router.get("/resources/json")
    async def list_resources() -> dict[str, str]:
        """Address → id of every resource."""
        return {one.address: str(one.id) for one in controller.state.directory.resources.values()}

    @router.post("/resources/json")
    async def create_resource() -> dict[str, str]:
        """Create a resource at the next free address."""
        resource = await controller.create(mode)
        return {"message": f"Resource created, address: {resource.address}"}

    @router.delete("/resources/json")
    async def delete_resource(named: OriginalResource) -> dict[str, str]:
        """Delete a resource with its subscriptions."""
        address = ipv4(named.resource)
        await controller.change(lambda directory: directory.removed(address))
        return {"message": f"Resource deleted, address: {address}"}

    @router.get("/subscribers/{resource}/json")
    async def list_subscribers(resource: str) -> dict[str, str]:
        """MAC address → IPv4 address of every subscriber."""
        return dict(controller.state.directory[ipv4(resource)].subscribers)

    @router.post("/subscribers/{resource}/json")
    async def subscribe(resource: str, who: OriginalSubscriber) -> dict[str, str]:
        """Subscribe a host; answered once it receives."""
        address = ipv4(resource)

        def change(directory: Directory) -> Directory:
            return directory.subscribed(address, who.mac, who.ipv4)

        await controller.change(change)
        return {"message": "Subscription successful"}

    @router.delete("/subscribers/{resource}/json")
    async def unsubscribe(resource: str, who: OriginalLeaver) -> dict[str, str]:
        """Unsubscribe a host; answered once it receives nothing any more."""
        address = ipv4(resource)
        await controller.change(lambda directory: directory.unsubscribed(address, who.mac))
        return {"message": "Subscription removed"}

    return router
