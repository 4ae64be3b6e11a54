"""What the three programs have in common: how they end.

An error that a user can mend is one line on the standard error and the exit code of
its class (`errors`); wrong usage ends with 2 as everywhere, an interrupt with 130.
Anything else is a bug and shows its traceback.
"""

import sys
from collections.abc import Callable

from fedperf_shared.errors import FedperfError

INTERRUPTED = 130

EXIT_CODES = {
    0: "done",
    1: "a bug, or a failure that has no code of its own",
    2: "wrong usage: unknown command or option",
    3: "wrong input: a file, a configuration or a value",
    4: "a local file or database cannot be read or written",
    5: "refused to protect privacy",
    6: "the coordinator cannot be reached or refuses",
    INTERRUPTED: "interrupted",
}


def run(program: Callable[[], object]) -> None:
    """Run a program to its end and leave with its exit code."""
    try:
        program()
    except FedperfError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
