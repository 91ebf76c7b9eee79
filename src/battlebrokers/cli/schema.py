"""`bb schema`: the scenario language as JSON Schema, for editors and for generating scenarios."""

from __future__ import annotations

import json

from battlebrokers.output import echo_json
from battlebrokers.scenario.reference import json_schema


def schema() -> None:
    """Print the JSON Schema of a scenario.

    In VS Code, for instance: `bb schema > scenario.schema.json` and map it to your YAML files.
    """
    echo_json(json.dumps(json_schema(), indent=2, ensure_ascii=False))
