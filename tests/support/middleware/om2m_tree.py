"""What the contract server for OM2M remembers: a tree of oneM2M resources, and what each representation looks like.

A contract server for tests, not OM2M. No sockets here. In JSON, members of requests, answers and notifications have the
prefix `m2m:` and members of resources have none, as subscribers to OM2M have it in their sources.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

Members = dict[str, Any]
XML_NAMESPACE = "http://www.onem2m.org/xml/protocols"
NAMES = {1: "acp", 2: "ae", 3: "cnt", 4: "cin", 5: "cb", 23: "sub"}
TYPES = {name: number for number, name in NAMES.items()}
IDS = {1: "acp-", 2: "CAE", 3: "cnt-", 4: "cin-", 23: "sub-"}
BELOW = {5: (1, 2, 3, 23), 2: (3, 23), 3: (3, 4, 23)}
"""Which types may be made below which."""
ASKED_FOR = {2: ("api", "rr"), 4: ("con",), 23: ("nu",)}
"""What somebody who makes one must say."""
LISTS = ("nu", "lbl", "acpi", "poa")
CSE_ID, CSE_NAME = "in-cse", "in-name"


class DeniedError(Exception):
    """An answer that is no success: the code of oneM2M, of HTTP, and words."""

    def __init__(self, code: int, status: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.status = status
        self.words = words


def moment(later: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + later).strftime("%Y%m%dT%H%M%S")


@dataclass
class Resource:
    """One resource with those below it."""

    type: int
    members: Members
    parent: Resource | None = None
    children: dict[str, Resource] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        return str(self.members["ri"])

    @property
    def name(self) -> str:
        return "m2m:" + NAMES[self.type]


class Tree:
    """The CSE base and all below it."""

    def __init__(self) -> None:
        about: Members = {"rn": CSE_NAME, "ty": 5, "ri": f"/{CSE_ID}", "ct": moment(), "lt": moment(), "cst": 1}
        about |= {"csi": CSE_ID, "srt": [1, 2, 3, 4, 5, 9, 14, 15, 16, 17, 23], "poa": ["http://127.0.0.1:8080/"]}
        self.base = Resource(5, about)
        self._by_id: dict[str, Resource] = {f"/{CSE_ID}": self.base}

    def found(self, path: str) -> Resource:
        """By its id (`/in-cse/cnt-123`), or by names (`/in-cse/in-name/AE/DATA`, `/la` and `/ol` at its end)."""
        path = "/" + path.strip("/")
        if path in self._by_id:
            return self._by_id[path]
        _, cse, *names = path.split("/")
        if cse != CSE_ID or names[:1] != [CSE_NAME]:
            raise not_found()
        here = self.base
        for name in names[1:]:
            if name in ("la", "ol") and here.type == 3 and name not in here.children:
                instances = [each for each in here.children.values() if each.type == 4]
                if not instances:
                    raise not_found()
                here = instances[-1 if name == "la" else 0]
                continue
            if name not in here.children:
                raise not_found()
            here = here.children[name]
        return here

    def make(self, parent: Resource, type_: int, given: Members) -> Resource:
        if type_ not in BELOW.get(parent.type, ()):
            raise DeniedError(4108, 403, "Cannot create this resource type below its parent")
        missing = [name for name in ASKED_FOR.get(type_, ()) if given.get(name) in (None, [], "")]
        if missing and not (type_ == 4 and "con" in given):
            raise DeniedError(4000, 400, f"{missing[0]} is Mandatory")
        identity = IDS[type_] + str(secrets.randbelow(10**9))
        name = str(given.get("rn") or identity.replace("CAE", "ae-CAE").replace("-", "_", 1))
        if name in parent.children:
            raise DeniedError(4105, 409, "Name already present in the parent collection.")
        members: Members = {"rn": name, "ty": type_, "ri": f"/{CSE_ID}/{identity}", "pi": parent.identity}
        members |= {"ct": moment(), "lt": moment()} | {key: value for key, value in given.items() if key != "rn"}
        if type_ == 4:
            members |= {"cs": len(str(given["con"])), "st": 0}
        if type_ == 3:
            members |= {"et": moment(timedelta(days=365)), "st": 0, "mni": int(given.get("mni", 10000))}
            members |= {"mbs": 10000, "mia": 0, "cni": 0, "cbs": 0}
            members |= {"ol": f"/{CSE_ID}/{CSE_NAME}/{name}/ol", "la": f"/{CSE_ID}/{CSE_NAME}/{name}/la"}
        if type_ == 2:
            members |= {"et": moment(timedelta(days=365)), "aei": identity}
        made = Resource(type_, members, parent)
        parent.children[name] = made
        self._by_id[made.identity] = made
        if type_ == 4:
            self._forget_the_oldest(parent)
        return made

    def _forget_the_oldest(self, container: Resource) -> None:
        instances = [each for each in container.children.values() if each.type == 4]
        for old in instances[: max(0, len(instances) - int(container.members["mni"]))]:
            self.remove(old)
        container.members["cni"] = min(len(instances), int(container.members["mni"]))

    def remove(self, resource: Resource) -> None:
        if resource.parent is None:
            raise DeniedError(4005, 405, "Delete of CSEBase is not allowed")
        for child in [*resource.children.values()]:
            self.remove(child)
        del resource.parent.children[str(resource.members["rn"])]
        del self._by_id[resource.identity]

    def below(self, resource: Resource, type_: int | None) -> list[str]:
        """The names of all resources of a type below one, for discovery."""
        found: list[str] = []
        for child in resource.children.values():
            found += [structured(child)] if type_ in (None, child.type) else []
            found += self.below(child, type_)
        return found


def structured(resource: Resource) -> str:
    """`/in-cse/in-name/AE/DATA`."""
    above = f"/{CSE_ID}" if resource.parent is None else structured(resource.parent)
    return f"{above}/{resource.members['rn']}"


def not_found() -> DeniedError:
    return DeniedError(4004, 404, "Resource not found")


def from_xml(text: bytes) -> tuple[str, Members]:
    """Name and members of the only element; the name of a resource is an attribute of it."""
    root = ET.fromstring(text)
    members: Members = dict(root.attrib)
    for child in root:
        words = child.text or ""
        members[child.tag.rpartition("}")[2]] = words.split() if child.tag in LISTS else words
    return "m2m:" + root.tag.rpartition("}")[2], members


def to_xml(name: str, members: Members) -> bytes:
    """The same the other way; members with structures in them are elements with elements."""
    ET.register_namespace("m2m", XML_NAMESPACE)
    root = ET.Element(f"{{{XML_NAMESPACE}}}{name.removeprefix('m2m:')}")
    _fill(root, members)
    text: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text


def _fill(element: ET.Element, members: Members) -> None:
    for key, value in members.items():
        if key == "rn":
            element.set("rn", str(value))
        elif isinstance(value, dict):
            tag = f"{{{XML_NAMESPACE}}}{key.removeprefix('m2m:')}" if key[4:] in TYPES else key.removeprefix("m2m:")
            _fill(ET.SubElement(element, tag), value)
        else:
            words = ET.SubElement(element, key.removeprefix("m2m:"))
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            words.text = text.lower() if isinstance(value, bool) else text
