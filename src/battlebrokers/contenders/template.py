"""`${name}` templates of contender files: rendered strictly, an unknown name is a mistake and never an empty string.

Called by the spec model (to check names when a file is read) and by the lifecycle (to fill them in).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


def names_in(text: str) -> set[str]:
    """Every name a template asks for."""
    return set(_PLACEHOLDER.findall(text))


def render(text: str, values: Mapping[str, str]) -> str:
    """The template with every `${name}` replaced; an unknown name raises KeyError."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], text)


def symbolic(names: set[str]) -> dict[str, str]:
    """Values that stand for themselves, so that two renderings differ only where the files do."""
    return {name: f"<{name}>" for name in names}
