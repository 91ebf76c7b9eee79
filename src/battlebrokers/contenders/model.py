"""The data model of a middleware: what topics become there, resources with attributes. Pure.

Part of a contender file (`model`). Asked by `run.fitness` for the topics of a scenario, by the controller and by
`run.registering` for what templates may say of each.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from battlebrokers.contenders.strict import Strict
from battlebrokers.scenario.model import Clients, Fleet, Scenario

ONLY_ATTRIBUTE = "value"
"""What the attribute of a topic of a single level is called."""
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_MOST = 1000

Count = Annotated[int, Field(ge=1, le=_MOST)]


class Model(Strict):
    """What topics become: resources with attributes. A topic is one attribute of one resource."""

    attribute: Literal["last-level"] = "last-level"
    """The last level of a topic is `${attribute}`, the levels before it are `${resource}`, as one word."""
    resources: Count | None = None
    """So many for each topic that a scenario names, which gets the levels `resource-1/attribute-1` and so on."""
    attributes: Count | None = None
    """So many for each of these resources."""
    choose: Literal["round-robin", "random"] | None = None
    """How a device goes over them where the scenario does not say; when absent round robin."""

    @model_validator(mode="after")
    def _something_to_choose(self) -> Model:
        if self.choose is not None and not self.spreads:
            raise ValueError("`choose` needs `resources` or `attributes` to choose from")
        return self

    @property
    def spreads(self) -> bool:
        """Whether each topic of a scenario becomes several."""
        return self.resources is not None or self.attributes is not None

    def spread(self, scenario: Scenario) -> Scenario:
        """The scenario with every topic spread over resources and attributes, and filters that match as before."""
        if not self.spreads:
            return scenario
        defaults = scenario.defaults
        said = defaults.topic_choice if defaults is not None else None

        def fleet(each: Fleet) -> Fleet:
            choice = each.topic_choice or said or self.choose
            return each.model_copy(update={"topic": self._topics(each.topic), "topic_choice": choice})

        def clients(each: Clients) -> Clients:
            wanted = tuple(f if f.split("/")[-1] == "#" else f"{f}/+/+" for f in each.subscribe)
            return each.model_copy(update={"subscribe": wanted})

        return scenario.model_copy(
            update={
                "fleets": {name: fleet(each) for name, each in scenario.fleets.items()},
                "clients": {name: clients(each) for name, each in scenario.clients.items()},
            }
        )

    def _topics(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            f"{topic}/resource-{resource}/attribute-{attribute}"
            for topic in topics
            for resource in range(1, (self.resources or 1) + 1)
            for attribute in range(1, (self.attributes or 1) + 1)
        )


def facts_of(topic: str) -> dict[str, str]:
    """What a model makes of a topic: the names of its resource and of its attribute there."""
    before, slash, last = topic.rpartition("/")
    resource, attribute = (before, last) if slash else (topic, "")
    return {"resource": _ODD.sub("-", resource), "attribute": _ODD.sub("-", attribute) or ONLY_ATTRIBUTE}
