"""A contract server for tests, in the place of FIWARE Orion: NGSIv2 over HTTP, notifications by HTTP and MQTT.

It is NOT Orion. It is written from Orion's public documentation (orion-api.md of 3.x and 4.x) and proved with filip, a
client of others. It keeps everything in memory, tells each subscription in order, and has no geo queries and no
registrations. Run as `python -m support.middleware.orion [--http PORT]`; it prints its ports as JSON when it is ready.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from support.middleware.orion_context import (
    Context,
    Entity,
    RefusalError,
    Told,
    bad,
    checked_subscription,
    satisfies,
    selects,
)
from support.middleware.orion_postman import Postman
from support.middleware.serving import ports_from_command_line, serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Orion:
    """NGSIv2's resources over one context."""

    def __init__(self) -> None:
        self.context = Context()
        self.postman = Postman()

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self.answered], client_max_size=1 << 20)
        attributes = "/v2/entities/{id}/attrs"
        application.add_routes(
            [
                web.get("/version", self.version),
                web.get("/v2", self.entry_points),
                web.post("/v2/entities", self.create),
                web.get("/v2/entities", self.list_entities),
                web.get("/v2/entities/", self.list_entities),
                web.get("/v2/entities/{id}", self.read_entity),
                web.delete("/v2/entities/{id}", self.delete_entity),
                web.get(attributes, self.read_entity),
                web.post(attributes, self.change),
                web.patch(attributes, self.change),
                web.put(attributes, self.change),
                web.get(attributes + "/{name}", self.read_attribute),
                web.put(attributes + "/{name}", self.change_attribute),
                web.delete(attributes + "/{name}", self.delete_attribute),
                web.get(attributes + "/{name}/value", self.read_value),
                web.put(attributes + "/{name}/value", self.change_value),
                web.get("/v2/subscriptions", self.list_subscriptions),
                web.get("/v2/subscriptions/", self.list_subscriptions),
                web.post("/v2/subscriptions", self.subscribe),
                web.post("/v2/subscriptions/", self.subscribe),
                web.get("/v2/subscriptions/{id}", self.read_subscription),
                web.patch("/v2/subscriptions/{id}", self.change_subscription),
                web.delete("/v2/subscriptions/{id}", self.delete_subscription),
                web.post("/v2/op/update", self.batch_update),
            ]
        )
        application.on_cleanup.append(lambda _: self.postman.close())
        return application

    @web.middleware
    async def answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Errors as Orion says them, and the headers every answer has."""
        try:
            if request.method in ("POST", "PUT", "PATCH"):
                check_body(request)
            answer = await handler(request)
        except RefusalError as refusal:
            answer = web.json_response(refusal.body, status=refusal.status)
        except web.HTTPMethodNotAllowed:
            words = {"error": "MethodNotAllowed", "description": "method not allowed"}
            answer = web.json_response(words, status=405)
        except web.HTTPNotFound:
            words = {"error": "BadRequest", "description": "Service not found. Check your URL as probably it is wrong."}
            answer = web.json_response(words, status=400)
        answer.headers["Fiware-Correlator"] = request.headers.get("Fiware-Correlator") or str(uuid.uuid4())
        return answer

    async def version(self, request: web.Request) -> web.Response:
        about = {"version": "3.10.1", "uptime": "0 d, 0 h, 0 m, 1 s", "doc": "a contract server for tests, not Orion"}
        return web.json_response({"orion": about})

    async def entry_points(self, request: web.Request) -> web.Response:
        names = {"entities_url": "/v2/entities", "types_url": "/v2/types", "subscriptions_url": "/v2/subscriptions"}
        return web.json_response(names | {"registrations_url": "/v2/registrations"})

    async def create(self, request: web.Request) -> web.Response:
        options = options_of(request)
        entity, new, due = self.context.create(
            *place(request, "/"),
            await document(request),
            key_values="keyValues" in options,
            upsert="upsert" in options,
            forced="forcedUpdate" in options,
        )
        self._tell(entity, due)
        where = f"/v2/entities/{entity.id}?type={entity.type}"
        return web.Response(status=201 if new else 204, headers={"Location": where})

    async def list_entities(self, request: web.Request) -> web.Response:
        query = request.query
        kinds = query["type"].split(",") if "type" in query else [None]
        ids = query["id"].split(",") if "id" in query else [None]
        service, path = place(request)
        found = [
            entity for name in ids for kind in kinds for entity in self.context.matching(service, path, name, kind)
        ]
        patterns = {key: query[key] for key in ("idPattern", "typePattern") if key in query}
        found = [entity for entity in found if selects(patterns, entity) and satisfies(entity, query.get("q", ""))]
        names = query["attrs"].split(",") if "attrs" in query else None
        return paged(request, [entity.told(shape_of(request), names) for entity in found])

    async def read_entity(self, request: web.Request) -> web.Response:
        entity = self._entity(request)
        names = request.query["attrs"].split(",") if "attrs" in request.query else None
        told = entity.told(shape_of(request), names)
        if request.path.endswith("/attrs") and isinstance(told, dict):
            del told["id"], told["type"]
        return web.json_response(told)

    async def delete_entity(self, request: web.Request) -> web.Response:
        entity = self._entity(request)
        self._tell(entity, self.context.delete(entity))
        return web.Response(status=204)

    async def change(self, request: web.Request) -> web.Response:
        options = options_of(request)
        given = await document(request)
        entity = self._entity(request)
        due = self.context.update(
            entity,
            given,
            key_values="keyValues" in options,
            append=request.method == "POST",
            strict="append" in options,
            forced="forcedUpdate" in options,
            replace=request.method == "PUT",
        )
        self._tell(entity, due)
        return web.Response(status=204)

    async def read_attribute(self, request: web.Request) -> web.Response:
        return web.json_response(self._attribute(request)[1])

    async def change_attribute(self, request: web.Request) -> web.Response:
        given = await document(request)
        self._change_one(request, given)
        return web.Response(status=204)

    async def delete_attribute(self, request: web.Request) -> web.Response:
        entity = self._entity(request)
        self._tell(entity, self.context.remove_attribute(entity, request.match_info["name"]))
        return web.Response(status=204)

    async def read_value(self, request: web.Request) -> web.Response:
        value = self._attribute(request)[1]["value"]
        if isinstance(value, dict | list):
            return web.json_response(value)
        return web.Response(text=json.dumps(value))

    async def change_value(self, request: web.Request) -> web.Response:
        _, attribute = self._attribute(request)
        if request.content_type == "text/plain":
            try:
                value = json.loads(await request.text())
            except ValueError:
                raise bad("attribute value type not recognized") from None
        else:
            value = await document(request)
        self._change_one(request, attribute | {"value": value})
        return web.Response(status=204)

    async def list_subscriptions(self, request: web.Request) -> web.Response:
        service, path = place(request)
        told = [
            known.document
            for known in self.context.subscriptions.values()
            if known.service == service and (path == "/#" or known.path == path)
        ]
        return paged(request, told)

    async def subscribe(self, request: web.Request) -> web.Response:
        identity = self.context.subscribe(*place(request), await document(request))
        return web.Response(status=201, headers={"Location": f"/v2/subscriptions/{identity}"})

    async def read_subscription(self, request: web.Request) -> web.Response:
        known = self.context.subscription(place(request)[0], request.match_info["id"])
        return web.json_response(known.document)

    async def change_subscription(self, request: web.Request) -> web.Response:
        known = self.context.subscription(place(request)[0], request.match_info["id"])
        given = await document(request)
        known.document = checked_subscription(known.document | given)
        return web.Response(status=204)

    async def delete_subscription(self, request: web.Request) -> web.Response:
        identity = request.match_info["id"]
        self.context.subscription(place(request)[0], identity)
        del self.context.subscriptions[identity]
        self.postman.forget(identity)
        return web.Response(status=204)

    async def batch_update(self, request: web.Request) -> web.Response:
        given = await document(request)
        action = given.get("actionType")
        if action not in ("append", "appendStrict", "update", "replace", "delete"):
            raise bad(f"invalid update action type: right ones are append, update and delete, not {action}")
        options = options_of(request)
        service, path = place(request, "/")
        for item in given.get("entities", []):
            attributes = {name: value for name, value in item.items() if name not in ("id", "type")}
            known = self.context.matching(service, path, item.get("id", ""), item.get("type"))
            if action.startswith("append") and not known:
                entity, _, due = self.context.create(
                    service, path, item, key_values="keyValues" in options, upsert=False
                )
                self._tell(entity, due)
                continue
            entity = self.context.one(service, path, item.get("id", ""), item.get("type"))
            if action == "delete" and not attributes:
                self._tell(entity, self.context.delete(entity))
                continue
            if action == "delete":
                for name in attributes:
                    self._tell(entity, self.context.remove_attribute(entity, name))
                continue
            due = self.context.update(
                entity,
                attributes,
                key_values="keyValues" in options,
                append=action.startswith("append"),
                strict=action == "appendStrict",
                forced="forcedUpdate" in options,
                replace=action == "replace",
            )
            self._tell(entity, due)
        return web.Response(status=204)

    def _entity(self, request: web.Request) -> Entity:
        return self.context.one(*place(request), request.match_info["id"], request.query.get("type"))

    def _attribute(self, request: web.Request) -> tuple[Entity, dict[str, Any]]:
        entity = self._entity(request)
        found = entity.attributes.get(request.match_info["name"])
        if found is None:
            raise RefusalError(404, "NotFound", "The entity does not have such an attribute")
        return entity, found

    def _change_one(self, request: web.Request, given: Any) -> None:
        entity, _ = self._attribute(request)
        forced = "forcedUpdate" in options_of(request)
        due = self.context.update(
            entity,
            {request.match_info["name"]: given},
            key_values=False,
            append=False,
            strict=False,
            forced=forced,
            replace=False,
        )
        self._tell(entity, due)

    def _tell(self, entity: Entity, due: list[Told]) -> None:
        headers = {"Fiware-ServicePath": entity.path}
        if entity.service:
            headers["Fiware-Service"] = entity.service
        self.postman.send(due, headers)


def check_body(request: web.Request) -> None:
    if not request.can_read_body:
        words = "Zero/No Content-Length in PUT/POST/PATCH request"
        raise RefusalError(411, "ContentLengthRequired", words)
    value = request.path.endswith("/value")
    if request.content_type != "application/json" and not (value and request.content_type == "text/plain"):
        raise RefusalError(415, "UnsupportedMediaType", f"not supported content type: {request.content_type}")


async def document(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except ValueError:
        raise RefusalError(400, "ParseError", "Errors found in incoming JSON buffer") from None


def place(request: web.Request, default_path: str = "/#") -> tuple[str, str]:
    """The tenant and the service path."""
    path = request.headers.get("Fiware-ServicePath", default_path)
    if not path.startswith("/"):
        raise bad("Only /absolute/ Service Paths allowed [a service path must begin with /]")
    return request.headers.get("Fiware-Service", "").lower(), path.rstrip("/") or "/"


def options_of(request: web.Request) -> set[str]:
    return {*filter(None, request.query.get("options", "").split(","))}


def shape_of(request: web.Request) -> str:
    options = options_of(request)
    return next((shape for shape in ("keyValues", "values") if shape in options), "normalized")


def paged(request: web.Request, found: list[Any]) -> web.Response:
    try:
        limit, offset = int(request.query.get("limit", 20)), int(request.query.get("offset", 0))
    except ValueError:
        raise bad("Bad pagination limit") from None
    if not 1 <= limit <= 1000:
        raise bad(f"Bad pagination limit: /{limit}/ [a value between 1 and 1000 is expected]")
    headers = {"Fiware-Total-Count": str(len(found))} if "count" in options_of(request) else {}
    return web.json_response(found[offset : offset + limit], headers=headers)


if __name__ == "__main__":
    serve(Orion().application(), ports_from_command_line("http"))
