"""Output and exit codes of the three programs.

Facts are one line each for people, or a table, and JSON for programs. An error that a user can mend
is one line on the standard error and the exit code of its class (`errors`). Wrong usage ends with 2
as everywhere, an interrupt with 130. Anything else is a bug and shows its traceback. Texts may come
from files of others: for people they are printed so that no character of them commands the
terminal.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, get_args, get_type_hints

import typer
from click import (
    Argument,
    BadParameter,
    Command,
    MissingParameter,
    NoSuchCommand,
    NoSuchOption,
    Parameter,
    ParamType,
    UsageError,
)
from typer.core import TyperGroup
from typer.models import ArgumentInfo

from fedperf_shared.errors import FedperfError, InvalidInputError

if TYPE_CHECKING:
    from click import Context
    from rich.table import Column

INTERRUPTED = 130
NO_ANSWER = 7
NOTHING_MEASURED = 8
INCOMPLETE = 9
DIFFERENT = 10

JSON_SCHEMA = 1
"""Number of the names and meanings that `--json` has; it grows where one of them changes."""

UNFOLDED = 240
"""Characters of a table's row where no terminal folds it."""

READABLE = 10
"""Characters that a column needs, with its borders."""

SHORT = 16
"""Characters of a value that is hard to read in two lines, such as a date or a duration."""

_CLOSE = 0.75
"""Share of letters that two names have in common where one may be a slip for the other."""

_COMPARED = "fingerprint"
"""The column of values that people compare letter by letter."""

_BORDERS = 3
"""Characters between two columns."""

RENAMED = {
    "fedperf gain": "fedperf evaluate",
    "fedperf models": "fedperf weights",
    "fedperf quality": "fedperf evaluate-synthetic",
    "fedperf rehearse": "fedperf simulate",
    "fedperf evaluate --chart": "fedperf evaluate --plot",
    "fedperf-server add-org": "fedperf-server org add",
    "fedperf-server announce": "fedperf-server declare-change",
    "fedperf-server epochs": "fedperf-server regimes",
    "fedperf-server list": "fedperf-server org list",
    "fedperf-server revoke": "fedperf-server org revoke",
}
"""Commands and options that have another name now, with their program."""

EXIT_CODES = {
    0: "done",
    1: "a bug, or a failure that has no code of its own",
    2: "wrong usage: unknown command or option, or options that do not go together",
    3: "wrong input: a file, a configuration or a value",
    4: "a local file or database cannot be read or written",
    5: "refused to protect privacy",
    6: "the coordinator cannot be reached or refuses",
    NO_ANSWER: "no size meets the deadline",
    NOTHING_MEASURED: "nothing measured: every trial of a campaign failed",
    INCOMPLETE: "the demo promoted nothing, or lost a report or an update",
    DIFFERENT: "results differ from their cached cells, or an experiment failed",
    INTERRUPTED: "interrupted; a daemon or server that is told to stop ends with 0",
}


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Let numpy and scipy compute in one thread, loaded already or not; PyTorch is left alone.

    Threads that wait for each other over small matrices cost twice the CPU, and ten times as
    much where cores are busy; training of the network, which PyTorch does, gains from them.
    """
    from threadpoolctl import threadpool_limits

    # Read when the library is loaded, here and in workers. Not in `os.environ`, so that jobs of
    # users, which are started with that, find the environment that fedperf found.
    os.putenv("OPENBLAS_NUM_THREADS", "1")
    with threadpool_limits(1, user_api="blas"):
        yield


def _show_version(has_query: bool) -> None:
    """Print the version of all programs and end, if requested."""
    if has_query:
        from importlib.metadata import version

        print(f"fedperf {version('fedperf')}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
]
"""Prefix of every program's own options."""


class WrongValueError(InvalidInputError):
    """An option or an argument has a value that it cannot have."""


class RenamedError(FedperfError):
    """A command or an option is called by a name that it had once."""

    exit_code = UsageError.exit_code


class TimestampParameter(ParamType[datetime]):
    """A timestamp in UTC, written as a day or in ISO 8601."""

    name = "moment"

    def convert(self, value: object, param: Parameter | None, ctx: "Context | None") -> datetime:
        """Return the timestamp of `value`, in UTC unless it has a time zone."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no day or moment like 2027-01-01, 2027-01-01T09:00", param, ctx
            )
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class ProgramCommands(TyperGroup):
    """Commands of a program: help as wide as the terminal, and a wrong value is wrong input.

    An option that there is not, or that does not go with another, is wrong usage.
    """

    def get_command(self, ctx: "Context", cmd_name: str) -> Command | None:
        """The command of that name; None where there is none."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            paragraphs = command.help.split("\n\n")
            command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
        if command is not None:
            _restore_help(command)
        return command

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        """The command that the words begin with, and the words that are left for it.

        Raises:
            NoSuchCommand: there is none; those with a name that is hard to tell apart are named.
            RenamedError: there was one, which is called otherwise now.
        """
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            typed = error.command_name
            self._refuse_renamed(typed)
            close = get_close_matches(typed, self.list_commands(ctx), cutoff=_CLOSE)
            raise NoSuchCommand(typed, possibilities=close, ctx=ctx) from None

    def invoke(self, ctx: "Context") -> object:
        """Run the requested command. An interrupt prints how to continue.

        Raises:
            WrongValueError: one of its options cannot have the value that was given.
            RenamedError: one of its options is called otherwise now.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Without its words, which may be many files of a pattern, or an invitation.
            again = f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()
            print(f"stopped; to go on, call {again} again as before", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except NoSuchOption as error:
            self._refuse_renamed(f"{ctx.invoked_subcommand} {error.option_name}")
            raise
        except BadParameter as error:
            if error.param is None or isinstance(error, MissingParameter):
                raise
            raise WrongValueError(error.format_message()) from error

    def _refuse_renamed(self, words: str) -> None:
        """Raise RenamedError where the words are a name that is no more."""
        old = f"{self.name} {words}"
        if old in RENAMED:
            raise RenamedError(f"{old} is called {RENAMED[old]} now")


def _restore_help(command: Command) -> None:
    """Give arguments the help that they were declared with.

    Click from 8.5 on has help of arguments itself, and overwrites what typer up to 0.20 had set.
    """
    for each in command.params:
        if isinstance(each, Argument) and each.help is None and command.callback is not None:
            declared = get_type_hints(command.callback, include_extras=True)[str(each.name)]
            found = (info.help for info in get_args(declared) if isinstance(info, ArgumentInfo))
            each.help = next(found, None)


def run(program: Callable[[], object], *, extra: str | None = None) -> None:
    """Run a program to its end and leave with its exit code.

    Its matrices are small, so it multiplies them in one thread, and so do its workers.

    Args:
        program: what runs.
        extra: the extra that the program needs, if all of its commands need it.
    """
    try:
        with _one_blas_thread():
            program()
    except FedperfError as error:
        print(f"error: {visible(' '.join(str(error).split()))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        from fedperf_shared.runtime.extras import extra_with

        missing = None if error.name is None else extra_with(error.name, extra)
        if missing is None:
            raise
        print(
            f"error: this needs {error.name}, which is not installed; "
            f"run: pip install 'fedperf[{missing}]'",
            file=sys.stderr,
        )
        sys.exit(InvalidInputError.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def show(facts: Mapping[str, object], *, json: bool) -> None:
    """Print facts by name."""
    if json:
        _print_json(facts)
        return
    for name, value in facts.items():
        print(f"{name.replace('_', ' ')}: {_text(value)}")


def show_rows(
    rows: Sequence[Mapping[str, object]], *, json: bool, empty: str, spare: Collection[str] = ()
) -> None:
    """Print rows as a table, `empty` where there are none; programs get them as `rows`.

    A terminal that is too narrow for the columns gets the table turned: a line for each of them.
    Where there are too many rows for that, or short values would be folded, it gets the columns
    without the `spare` ones.
    """
    if json:
        _print_json({"rows": rows})
        return
    if not rows:
        print(empty)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    names = list(dict.fromkeys(name for row in rows for name in row))
    console = Console(width=output_width())
    is_narrow = len(names) * READABLE > console.width
    is_turned = is_narrow and len(rows) < len(names)
    cells = [[_text(row.get(name)) for name in names] for row in rows]
    if spare and not is_turned and not _widths(names, cells, console.width)[1]:
        names = [name for name in names if name not in spare]
        cells = [[_text(row.get(name)) for name in names] for row in rows]
    if is_turned:
        heads = _heads(names)
        names = ["", *map(str, range(1, len(rows) + 1))]
        cells = [list(line) for line in zip(heads, *cells, strict=True)]
    table = Table(*_columns(names, cells, console.width))
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)


def output_width() -> int | None:
    """Return None for the terminal's width, or `COLUMNS`. Files and pipes fold no row."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNFOLDED


def _columns(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> "list[Column]":
    """Columns that fold long values and cut none; an id, which people copy, stays whole.

    Short values and fingerprints stay whole as well, where that leaves enough for the others.
    """
    from rich.table import Column

    whole, fits = _widths(names, cells, width)
    return [
        Column(head, overflow="fold", no_wrap=head == "id" or (fits and each is not None))
        for head, each in zip(_heads(names), whole, strict=True)
    ]


def _widths(
    names: Sequence[str], cells: Sequence[Sequence[str]], width: int
) -> tuple[list[int | None], bool]:
    """The width of each column that stays whole, None of another; whether all of them fit."""
    heads = _heads(names)
    columns = zip(heads, zip(*cells, strict=True), strict=True)
    longest = [max(map(len, (head, *values))) for head, values in columns]
    whole = [
        each if each <= SHORT or head == _COMPARED else None
        for head, each in zip(heads, longest, strict=True)
    ]
    needed = sum(_BORDERS + (READABLE if each is None else each) for each in whole)
    return whole, needed < width


def _heads(names: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]


def visible(text: str) -> str:
    """The text with everything that cannot be seen, or changes how it is seen, spelled out."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def shortened(text: str, longest: int) -> str:
    """The text as `visible` shows it, cut where that is longer than `longest` characters."""
    shown = visible(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def _text(value: object) -> str:
    """A value for people; programs get it exactly, as JSON."""
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(count)} {_text(name)}" for name, count in value.items()) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value in (None, "") else visible(str(value))


def _print_json(content: Mapping[str, object]) -> None:
    import orjson

    numbered = {"schema": JSON_SCHEMA, **content}
    print(orjson.dumps(numbered, default=str, option=orjson.OPT_INDENT_2).decode())
