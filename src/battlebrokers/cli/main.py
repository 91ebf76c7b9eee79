"""Where `bb` begins. Loading the verbs takes a second; whoever presses Ctrl-C in it meets no traceback."""

from __future__ import annotations

import sys

from battlebrokers import signals
from battlebrokers.arguments import mask_own_arguments

_ENVIRONMENT, _INTERRUPTED = 4, 130


def main() -> None:
    """Load the verbs and run the command line."""
    mask_own_arguments()
    try:
        signals.listen()
        from battlebrokers.cli.app import run_command_line
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)
    except (ImportError, MemoryError) as error:
        print(f"error: bb cannot be loaded: {error or 'out of memory'}", file=sys.stderr)
        print(
            "hint: is there enough memory (ulimit -v), and is the installation complete (make setup)?", file=sys.stderr
        )
        sys.exit(_ENVIRONMENT)
    run_command_line()


if __name__ == "__main__":
    main()
