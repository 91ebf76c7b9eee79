"""What the contract server for FIWARE Orion remembers: entities, attributes, subscriptions; and who is to be told.

A contract server for tests, written from the NGSIv2 documentation; it is not Orion and shares no code with it.
No sockets here: `orion.py` puts it behind HTTP.
"""

from __future__ import annotations

import operator
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Attribute = dict[str, Any]
FORBIDDEN = re.compile(r"[<>\"'=;()]")
FORBIDDEN_IN_NAMES = re.compile(r"[<>\"'=;()&?/#\s\x00-\x1f\x7f]|[^\x00-\x7f]")
TYPES = {str: "Text", bool: "Boolean", int: "Number", float: "Number", type(None): "None"}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
ENTITY_NOT_FOUND = "The requested entity has not been found. Check type and id"
SUBSCRIPTION_NOT_FOUND = "The requested subscription has not been found. Check id"


class RefusalError(Exception):
    """An error as NGSIv2 says it."""

    def __init__(self, status: int, error: str, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.body = {"error": error, "description": description}


def bad(description: str) -> RefusalError:
    return RefusalError(400, "BadRequest", description)


@dataclass
class Entity:
    service: str
    path: str
    id: str
    type: str
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def told(self, shape: str = "normalized", names: list[str] | None = None, without: list[str] = []) -> Any:  # noqa: B006
        chosen = {
            name: attribute
            for name, attribute in self.attributes.items()
            if (not names or "*" in names or name in names) and name not in without
        }
        if shape == "values":
            ordered = [chosen[name] for name in names if name in chosen] if names else list(chosen.values())
            return [attribute["value"] for attribute in ordered]
        head = {"id": self.id, "type": self.type}
        if shape == "keyValues":
            return head | {name: attribute["value"] for name, attribute in chosen.items()}
        return head | chosen


@dataclass
class Told:
    """One notification that is due."""

    subscription: dict[str, Any]
    body: dict[str, Any]
    shape: str


@dataclass
class Subscription:
    service: str
    path: str
    document: dict[str, Any]

    def wants(self, entity: Entity, alteration: str, touched: set[str]) -> bool:
        document = self.document
        if document["status"] != "active" and document["status"] != "oneshot":
            return False
        if self.service != entity.service or not under(entity.path, self.path):
            return False
        subject = document["subject"]
        if not any(selects(selector, entity) for selector in subject["entities"]):
            return False
        condition = subject.get("condition", {})
        if alteration not in condition.get("alterationTypes", ["entityCreate", "entityChange"]) and not (
            alteration == "entityChange" and "entityUpdate" in condition.get("alterationTypes", [])
        ):
            return False
        wanted = set(condition.get("attrs", []))
        if wanted and not wanted & touched:
            return False
        return satisfies(entity, condition.get("expression", {}).get("q", ""))

    def notification(self, entity: Entity) -> Told:
        asked = self.document["notification"]
        shape = asked.get("attrsFormat", "normalized")
        data = entity.told(shape, asked.get("attrs"), asked.get("exceptAttrs", []))
        return Told(self.document, {"subscriptionId": self.document["id"], "data": [data]}, shape)


def under(path: str, asked: str) -> bool:
    """Whether a service path is meant; `/a/#` means everything below `/a`."""
    if asked.endswith("#"):
        return (path + "/").startswith(asked[:-1])
    return path == asked


def selects(selector: dict[str, Any], entity: Entity) -> bool:
    for plain, pattern, value in (("id", "idPattern", entity.id), ("type", "typePattern", entity.type)):
        if plain in selector and selector[plain] != value:
            return False
        if pattern in selector and not re.search(selector[pattern], value):
            return False
    return True


def satisfies(entity: Entity, query: str) -> bool:
    """The simple query language: statements joined by `;`, each a comparison or an existence."""
    for statement in filter(None, query.split(";")):
        found = re.fullmatch(r"(!?)([\w.:-]+)(?:(==|!=|>=|<=|>|<)(.*))?", statement)
        if found is None:
            raise bad(f"invalid query expression: {statement}")
        unless, name, sign, text = found.groups()
        attribute = entity.attributes.get(name)
        if sign is None:
            if (attribute is None) is not bool(unless):
                return False
            continue
        if attribute is None:
            return False
        if not OPERATORS[sign](*comparable(attribute["value"], text)):
            return False
    return True


def comparable(value: Any, text: str) -> tuple[Any, Any]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return value, float(text)
        except ValueError:
            pass
    return str(value), text.strip("'")


def checked_name(what: str, name: Any) -> str:
    if not isinstance(name, str):
        raise bad(f"Invalid JSON type for {what}")
    if not 1 <= len(name) <= 256:
        limit = "min length supported: 1" if not name else "max length supported: 256"
        raise bad(f"{what} length: {len(name)}, {limit}")
    if FORBIDDEN_IN_NAMES.search(name):
        raise bad(f"Invalid characters in {what}")
    return name


def checked_attribute(name: str, given: Any, *, key_values: bool) -> Attribute:
    checked_name("attribute name", name)
    if key_values:
        given = {"value": given}
    if not isinstance(given, dict):
        raise bad("attribute must be a JSON object, unless keyValues option is used")
    unknown = set(given) - {"value", "type", "metadata"}
    if unknown:
        raise bad(f"unrecognized property for context attribute: {min(unknown)}")
    value = given.get("value")
    kind = given.get("type", TYPES.get(type(value), "StructuredValue"))
    checked_name("attribute type", kind)
    if kind != "TextUnrestricted" and any(FORBIDDEN.search(text) for text in texts(value)):
        raise bad("Invalid characters in attribute value")
    return {"type": kind, "value": value, "metadata": given.get("metadata", {})}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)


class Context:
    """The whole state; every change returns the notifications that are due."""

    def __init__(self) -> None:
        self.entities: list[Entity] = []
        self.subscriptions: dict[str, Subscription] = {}
        self._by_id: dict[str, list[Entity]] = {}

    def matching(self, service: str, path: str, id: str | None = None, type: str | None = None) -> list[Entity]:  # noqa: A002
        pool = self.entities if id is None else self._by_id.get(id, [])
        return [
            entity
            for entity in pool
            if entity.service == service and under(entity.path, path) and type in (None, entity.type)
        ]

    def one(self, service: str, path: str, id: str, type: str | None) -> Entity:  # noqa: A002
        found = self.matching(service, path, id, type)
        if not found:
            raise RefusalError(404, "NotFound", ENTITY_NOT_FOUND)
        if len(found) > 1:
            raise RefusalError(409, "TooManyResults", "More than one matching entity. Please refine your query")
        return found[0]

    def create(
        self, service: str, path: str, given: Any, *, key_values: bool, upsert: bool, forced: bool = False
    ) -> tuple[Entity, bool, list[Told]]:
        """The entity, whether it is new, and who is to be told."""
        if not isinstance(given, dict):
            raise bad("not a JSON object")
        identity = checked_name("entity id", given.get("id", ""))
        kind = checked_name("entity type", given.get("type", "Thing"))
        attributes = {
            name: checked_attribute(name, value, key_values=key_values)
            for name, value in given.items()
            if name not in ("id", "type")
        }
        found = self.matching(service, path, identity, kind)
        if found and not upsert:
            raise RefusalError(422, "Unprocessable", "Already Exists")
        if found:
            return found[0], False, self._changed(found[0], attributes, forced=forced)
        entity = Entity(service, path, identity, kind, attributes)
        self.entities.append(entity)
        self._by_id.setdefault(identity, []).append(entity)
        return entity, True, self._due(entity, "entityCreate", set(attributes))

    def update(
        self, entity: Entity, given: Any, *, key_values: bool, append: bool, strict: bool, forced: bool, replace: bool
    ) -> list[Told]:
        if not isinstance(given, dict):
            raise bad("not a JSON object")
        for name in ("id", "type"):
            if name in given:
                raise bad(f"entity {name} specified in payload")
        if not given and not replace:
            raise bad("empty payload")
        attributes = {name: checked_attribute(name, value, key_values=key_values) for name, value in given.items()}
        missing = [name for name in attributes if name not in entity.attributes]
        present = [name for name in attributes if name in entity.attributes]
        if missing and not append and not replace:
            words = f"one or more of the attributes in the request do not exist: [ {' '.join(missing)} ]"
            raise RefusalError(422, "Unprocessable", words)
        if strict and present:
            words = f"one or more of the attributes in the request already exist: [ {', '.join(present)} ]"
            raise RefusalError(422, "Unprocessable", words)
        before = entity.attributes
        if replace:
            entity.attributes = {}
        return self._changed(entity, attributes, forced=forced, before=before)

    def remove_attribute(self, entity: Entity, name: str) -> list[Told]:
        if entity.attributes.pop(name, None) is None:
            raise RefusalError(404, "NotFound", "The entity does not have such an attribute")
        return self._due(entity, "entityChange", {name})

    def delete(self, entity: Entity) -> list[Told]:
        self.entities.remove(entity)
        self._by_id[entity.id].remove(entity)
        return self._due(entity, "entityDelete", set(entity.attributes))

    def subscribe(self, service: str, path: str, given: Any) -> str:
        identity = secrets.token_hex(12)
        document = checked_subscription(given) | {"id": identity}
        self.subscriptions[identity] = Subscription(service, path, document)
        return identity

    def subscription(self, service: str, identity: str) -> Subscription:
        found = self.subscriptions.get(identity)
        if found is None or found.service != service:
            raise RefusalError(404, "NotFound", SUBSCRIPTION_NOT_FOUND)
        return found

    def _changed(
        self,
        entity: Entity,
        attributes: dict[str, Attribute],
        *,
        forced: bool,
        before: dict[str, Attribute] | None = None,
    ) -> list[Told]:
        earlier = entity.attributes if before is None else before
        changed = {name for name, attribute in attributes.items() if forced or earlier.get(name) != attribute}
        changed |= set(earlier) - set(attributes) if before is not None and not entity.attributes else set()
        entity.attributes = entity.attributes | attributes
        return self._due(entity, "entityChange" if changed else "entityUpdate", changed or set(attributes))

    def _due(self, entity: Entity, alteration: str, touched: set[str]) -> list[Told]:
        due = []
        for subscription in self.subscriptions.values():
            if subscription.wants(entity, alteration, touched):
                due.append(subscription.notification(entity))
                if subscription.document["status"] == "oneshot":
                    subscription.document["status"] = "inactive"
        return due


def checked_subscription(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise bad("not a JSON object")
    subject = given.get("subject")
    if not isinstance(subject, dict):
        raise bad("no subject for subscription specified")
    selectors = subject.get("entities")
    if not isinstance(selectors, list) or not selectors:
        raise bad("no subject entities specified")
    for selector in selectors:
        if not isinstance(selector, dict) or not {"id", "idPattern"} & set(selector):
            raise bad("subject entities element has not id nor idPattern")
        if {"id", "idPattern"} <= set(selector):
            raise bad("subject entities element has id and idPattern")
    told = given.get("notification")
    if not isinstance(told, dict):
        raise bad("no notification for subscription specified")
    ways = {"http", "httpCustom", "mqtt", "mqttCustom"} & set(told)
    if len(ways) != 1:
        raise bad("http notification is missing" if not ways else "multiple notification ways specified")
    way = ways.pop()
    if not re.match(r"https?://." if way.startswith("http") else r"mqtts?://.", str(told[way].get("url", ""))):
        raise bad("Invalid URL parsing notification url")
    if way.startswith("mqtt") and not told[way].get("topic"):
        raise bad("topic is missing")
    if {"attrs", "exceptAttrs"} <= set(told):
        raise bad("http notification has attrs and exceptAttrs")
    if told.get("attrsFormat", "normalized") not in ("normalized", "keyValues", "values"):
        raise bad("invalid attrsFormat (accepted values: keyValues, normalized, values)")
    return given | {
        "status": given.get("status", "active"),
        "subject": {"condition": {"attrs": []}} | subject,
        "notification": {"attrs": [], "attrsFormat": "normalized", "onlyChangedAttrs": False, "covered": False} | told,
    }
