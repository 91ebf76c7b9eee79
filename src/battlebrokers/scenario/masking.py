"""The text of a scenario as it may be kept: secrets replaced, everything else as it was written.

Called by the reader. Needs a text that was read without mistakes; reads no files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from battlebrokers.scenario.model import Scenario
from battlebrokers.secrets import MASK, Secret, holds_only_variables, is_secret_name, masked_text

_ENVIRONMENT = re.compile(r"\{env:([^{}]+)\}")
_WORTH_PARSING = re.compile(r"pass|pwd|secret|token|key|cred|auth|sig|jwt", re.IGNORECASE)


def secrets_of(scenario: Scenario) -> list[Secret]:
    """The passwords a scenario says itself, and those of the environment that it names."""
    groups: list[Any] = [scenario.defaults, *scenario.fleets.values(), *scenario.clients.values()]
    given = [group.credentials.password for group in groups if group is not None and group.credentials is not None]
    found = [secret for secret in given if secret is not None]
    named = [name for secret in found for name in _ENVIRONMENT.findall(secret.reveal())]
    return [
        *(secret for secret in found if not holds_only_variables(secret.reveal())),
        *(Secret(os.environ[name]) for name in named if name in os.environ),
    ]


def masked_yaml(text: str) -> str:
    """YAML with ••• for every value under a secret name, however it is written."""
    if _WORTH_PARSING.search(text):
        pieces, at = [], 0
        for start, end in sorted(_secret_places(text)):
            if start >= at:
                pieces.append(text[at:start] + MASK)
                at = end
        text = "".join(pieces) + text[at:]
    return masked_text(text)


def _secret_places(text: str) -> set[tuple[int, int]]:
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except YAMLError:
        return set()
    found = _secret_scalars(root, secret=False)
    # An alias stands for the value at its anchor, which is where that is masked.
    return {_place(node, text) for node in found if str(node.value) and not holds_only_variables(str(node.value))}


def _secret_scalars(node: Node | None, *, secret: bool) -> Iterator[ScalarNode]:
    if isinstance(node, ScalarNode):
        if secret:
            yield node
    elif isinstance(node, SequenceNode):
        for child in node.value:
            yield from _secret_scalars(child, secret=secret)
    elif isinstance(node, MappingNode):
        for key, child in node.value:
            named = isinstance(key, ScalarNode) and is_secret_name(str(key.value))
            # `credentials` is no secret where it holds a mapping: its keys say what is.
            yield from _secret_scalars(child, secret=named and not isinstance(child, MappingNode))


def _place(node: ScalarNode, text: str) -> tuple[int, int]:
    """Where it stands; the line break behind a block (`|` or `>`) is not part of it."""
    start, end = node.start_mark.index, node.end_mark.index
    return start, start + len(text[start:end].rstrip("\n"))
