"""All that `bb` writes to a terminal or a pipe goes through here, and nothing of it steers the terminal.

Called by the verbs and the reports. Texts of scenarios, brokers, captures and run folders are printed as they are read:
control characters as visible escapes, known secrets masked, and no markup but our own styles.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import IO, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from battlebrokers.secrets import masked_text
from battlebrokers.visible import visible, visible_json


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print lines of text; line breaks in it are line breaks."""
    typer.echo(visible(masked_text(str(text)), keep_breaks=True), err=err, nl=nl)


def echo_json(document: str | bytes, *, nl: bool = True) -> None:
    """Print a JSON document that was already encoded."""
    text = document.decode() if isinstance(document, bytes) else document
    typer.echo(visible_json(masked_text(text)), nl=nl)


def complain(error: BaseException) -> None:
    """Print where an error comes from, for those who look for our bugs."""
    echo("".join(traceback.format_exception(error)), err=True, nl=False)


class PlainConsole(Console):
    """A console for texts of others: it takes no markup, and shows what would steer the terminal.

    Rich's own codes for colours and progress bars are segments of their own kind and pass.
    """

    def __init__(
        self, *, stderr: bool = False, file: IO[str] | None = None, width: int | None = None
    ) -> None:  # fmt: skip
        super().__init__(stderr=stderr, file=file, width=width, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text as it is: no markup, no emoji codes."""
        return super().render_str(_shown(text), **(options | {"markup": False, "emoji": False}))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is drawn: texts are made visible before they are laid out, and whatever is left after it."""
        if isinstance(renderable, Text):
            renderable = _shown_text(renderable)
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else visible(segment.text, keep_breaks=True)
            yield segment if shown == segment.text else Segment(shown, segment.style)


def _shown(text: str) -> str:
    """One text of a table or line: a break in it is somebody else's, and would begin a line that looks like ours."""
    return visible(masked_text(text))


def _shown_text(text: Text) -> Text:
    plain = text.plain
    if _shown(plain) == plain:
        return text
    # Spans would point at the wrong characters: one style for all of it.
    style = text.style or (text.spans[0].style if text.spans else "")
    return Text(_shown(plain), style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap, end=text.end)


def print_errors_visibly() -> None:
    """Take over what the interpreter itself prints to stderr: warnings, log lines, errors nobody caught."""

    def warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        echo(f"warning: {category.__name__}: {message}", err=True)

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        echo("".join(traceback.format_exception(kind, error, trace)), err=True, nl=False)

    warnings.showwarning = warn
    sys.excepthook = uncaught
    threading.excepthook = lambda given: complain(given.exc_value) if given.exc_value is not None else None
    logging.lastResort = _Visibly(logging.WARNING)


class _Visibly(logging.Handler):
    """Log lines of libraries that nobody has asked for."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        echo(self.format(record), err=True)
