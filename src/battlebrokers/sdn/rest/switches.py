"""`/api/v1/switches`: what one switch knows, rule by rule and in words, with what each has counted."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from battlebrokers.errors import InputError
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.observer import Observer
from battlebrokers.sdn.rest.in_words import TABLES, actions_in_words, bucket_in_words, match_in_words
from battlebrokers.sdn.rest.refusals import REFUSALS


class UnknownSwitchError(InputError):
    """Never called."""


class RuleAnswer(BaseModel):
    """One rule; of those of a table that match, the one with the highest priority counts."""

    table: int
    table_name: str
    priority: int
    frames: str = Field(description="Which frames, in words.")
    then: str = Field(description="What happens to them, in words.")
    packets: int


class GroupAnswer(BaseModel):
    """One group: a copy for each of its buckets."""

    id: int
    resource: str
    buckets: list[str] = Field(description="What is done with each copy, in words.")
    packets: list[int] = Field(description="Copies made by each of them.")


class SwitchTablesAnswer(BaseModel):
    """All a switch knows."""

    number: int
    connected: bool
    description: str
    rules: list[RuleAnswer]
    groups: list[GroupAnswer]


def switch_routes(controller: Controller, observer: Observer) -> APIRouter:
    """All of them."""
    router = APIRouter(prefix="/api/v1/switches", tags=["broker"], responses=REFUSALS)

    @router.get("/{number}")
    async def switch(number: int) -> SwitchTablesAnswer:
        """The rules and groups of a switch."""
        if number not in controller.introductions:
            raise UnknownSwitchError(f"no switch {number} has called", hint="see /api/v1/topology for those that have")
        await observer.look()
        return _told(controller, observer, number)

    @router.delete("/{number}", status_code=204)
    async def forget(number: int) -> None:
        """Take a switch that is away as gone for good: no change waits for it any longer."""
        if number not in controller.introductions:
            raise UnknownSwitchError(f"no switch {number} has called", hint="see /api/v1/topology for those that have")
        controller.forget_switch(number)

    return router


def _told(controller: Controller, observer: Observer, number: int) -> SwitchTablesAnswer:
    tables = controller.state.known.get(number, Tables())
    counted, buckets = observer.rule_packets.get(number, {}), observer.bucket_packets.get(number, {})
    addresses = {one.id: one.address for one in controller.state.directory.resources.values()}
    rules = [
        RuleAnswer(
            table=rule.table, table_name=TABLES.get(rule.table, ""), priority=rule.priority,
            frames=match_in_words(rule.match), then=actions_in_words(rule, addresses), packets=counted.get(key, 0),
        )
        for key, rule in tables.rules.items()
    ]  # fmt: skip
    groups = [
        GroupAnswer(
            id=group.id, resource=addresses.get(group.id, ""), buckets=[bucket_in_words(one) for one in group.buckets],
            packets=[*buckets.get(group.id, []), *([0] * len(group.buckets))][: len(group.buckets)],
        )
        for group in tables.groups.values()
    ]  # fmt: skip
    return SwitchTablesAnswer(
        number=number, connected=number in controller.channels,
        description=controller.introductions[number].description,
        rules=sorted(rules, key=lambda one: (one.table, -one.priority)), groups=groups,
    )  # fmt: skip
