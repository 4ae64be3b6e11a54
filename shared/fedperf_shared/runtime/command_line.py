"""Commands, output and exit codes of the three programs.

Facts are one line each for people, or a table, and JSON for programs. An error that a user can
correct is one line on the standard error and the exit code of its class (`errors`). Wrong usage
ends with 2 and an interrupt with 130. Anything else is a bug and shows its traceback. Texts may
come from files of others, so control characters are printed escaped.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from click import (
    Argument,
    BadParameter,
    ClickException,
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
from fedperf_shared.runtime.addresses import without_secrets

if TYPE_CHECKING:
    from click import Context

INTERRUPTED = 130
NO_FEASIBLE_SIZE = 7
NOTHING_MEASURED = 8
INCOMPLETE = 9
DIFFERENT = 10

# Version of the keys of `--json`. It grows when the name or the meaning of one changes.
JSON_SCHEMA = 1

UNFOLDED = 240  # width of a table in a file or pipe, in characters
READABLE = 10  # smallest readable width of a column with its borders, in characters
SHORT = 16  # longest value, such as a date or a duration, that is kept on one line, in characters
_CLOSE = 0.75  # similarity of two names from which one is suggested for the other
_COMPARED = "fingerprint"  # heading of values that people compare letter by letter
# What takes the JSON of a command; `call` collects it.
_PRINT: ContextVar[Callable[[bytes], object]] = ContextVar(
    "_PRINT", default=lambda content: print(content.decode())
)
_BORDERS = 3  # width of the border between two columns, in characters

# Present names of commands and options that were renamed, with their program.
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

EXIT_CODES = {
    0: "done",
    1: "a bug, or a failure that has no code of its own",
    2: "wrong usage: unknown command or option, or options that do not go together",
    3: "wrong input: a file, a configuration or a value",
    4: "a local file or database cannot be read or written",
    5: "refused to protect privacy",
    6: "the coordinator cannot be reached or refuses",
    NO_FEASIBLE_SIZE: "no size meets the deadline",
    NOTHING_MEASURED: "nothing measured: every trial of a campaign failed",
    INCOMPLETE: "the demo promoted nothing, or lost a report or an update",
    DIFFERENT: "results differ from their cached cells, or an experiment failed",
    INTERRUPTED: "interrupted; a daemon or server that is stopped ends with 0",
}


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit numpy and scipy to one thread, whether loaded already or later.

    With small matrices, threads that wait for each other cost twice the CPU, and ten times as
    much on busy cores. PyTorch keeps its threads, because training gains from them.
    """
    from threadpoolctl import threadpool_limits

    # The library reads this when it is loaded, here and in workers. `os.environ` stays unchanged,
    # because jobs of users are started with it.
    os.putenv("OPENBLAS_NUM_THREADS", "1")
    with threadpool_limits(1, user_api="blas"):
        yield


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        print(f"fedperf {version('fedperf')}")
        raise typer.Exit


# The option `--version` of every program.
Version = Annotated[
    bool,
    typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
]


class RenamedError(FedperfError):
    """Raised for a command or an option that was renamed."""

    exit_code = UsageError.exit_code


class TimestampParameter(ParamType[datetime]):
    """A timestamp in UTC, written as a day or in ISO 8601."""

    name = "time"

    def convert(self, value: object, param: Parameter | None, ctx: "Context | None") -> datetime:
        """Return the timestamp of `value`, in UTC unless it has a time zone."""
        if isinstance(value, datetime):
            return value
        try:
            timestamp = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a date such as 2027-01-01 or 2027-01-01T09:00", param, ctx)
        return timestamp.replace(tzinfo=timestamp.tzinfo or UTC).astimezone(UTC)


class ProgramCommands(TyperGroup):
    """The commands of a program.

    A value that is not allowed is wrong input. An unknown option, or one that excludes another, is
    wrong usage.
    """

    def get_command(self, ctx: "Context", cmd_name: str) -> Command | None:
        """Return the command of that name, None if there is none."""
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
        """Return the name of the command, the command, and the arguments for it.

        Raises:
            NoSuchCommand: there is none. Commands with similar names are suggested.
            RenamedError: the command was renamed.
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
            InvalidInputError: the value of one of its options is not allowed.
            RenamedError: one of its options was renamed.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Arguments are left out: they may be many files, or an invitation.
            again = f"{ctx.command_path} {ctx.invoked_subcommand or ''}".strip()
            print(f"stopped; to continue, call {again} again as before", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except NoSuchOption as error:
            self._refuse_renamed(f"{ctx.invoked_subcommand} {error.option_name}")
            raise
        except BadParameter as error:
            if error.param is None or isinstance(error, MissingParameter):
                raise
            raise InvalidInputError(error.format_message()) from error

    def _refuse_renamed(self, words: str) -> None:
        old = f"{self.name} {words}"
        if old in RENAMED:
            raise RenamedError(f"{old} is now {RENAMED[old]}")


def _restore_help(command: Command) -> None:
    """Restore the declared help of arguments.

    Click from 8.5 on has help of arguments itself, and overwrites the help that typer up to 0.20
    sets.
    """
    for each in command.params:
        if isinstance(each, Argument) and each.help is None and command.callback is not None:
            declared = get_type_hints(command.callback, include_extras=True)[str(each.name)]
            helps = (info.help for info in get_args(declared) if isinstance(info, ArgumentInfo))
            each.help = next(helps, None)


def run(program: Callable[[], object], *, extra: str | None = None) -> None:
    """Run a program and exit with its code. Its matrices are small, so one thread computes them.

    Args:
        program: the program.
        extra: the extra that all of its commands need, if any.
    """
    try:
        with _one_blas_thread():
            program()
    except (FedperfError, ModuleNotFoundError) as error:
        failure = _needs_extra(error, extra) if isinstance(error, ModuleNotFoundError) else error
        if failure is None:
            raise
        text = without_secrets(" ".join(str(failure).split()))
        print(f"error: {visible(text)}", file=sys.stderr)
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def call(program: typer.Typer, *words: str) -> dict[str, Any]:
    """Return the JSON of a command, which is called with `--json`, without printing it.

    The exit code is left out: the facts of the JSON say as much. One thread computes.

    Raises:
        FedperfError: as the command.
        InvalidInputError: usage is wrong, or an extra is missing.
    """
    contents: list[bytes] = []
    token = _PRINT.set(contents.append)
    try:
        with _one_blas_thread():
            program(words, standalone_mode=False)
    except ClickException as error:
        raise InvalidInputError(error.format_message()) from error
    except ModuleNotFoundError as error:
        raise _needs_extra(error) or error from error
    finally:
        _PRINT.reset(token)
    import orjson

    document: dict[str, Any] = orjson.loads(contents[-1])
    return document


def _needs_extra(error: ModuleNotFoundError, extra: str | None = None) -> InvalidInputError | None:
    """Return the error that names the extra with a missing module, None if no extra has it."""
    from fedperf_shared.runtime.extras import missing_extra

    missing = missing_extra(error, extra)
    return None if missing is None else InvalidInputError(missing)


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
    """Print rows as a table, or `empty` if there are none. JSON has them as `rows`.

    On a terminal that is too narrow, a table with fewer rows than columns is transposed. Any other
    table loses its `spare` columns if short values would be folded.
    """
    if json:
        _print_json({"rows": rows})
        return
    if not rows:
        print(empty)
        return
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(width=output_width())
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name.replace("_", " "): [_text(row.get(name)) for row in rows] for name in names}
    if len(columns) * READABLE > console.width and len(rows) < len(columns):
        lines = zip(*columns.values(), strict=True)
        numbered = {str(number): [*line] for number, line in enumerate(lines, 1)}
        columns = {"": [*columns], **numbered}
    elif spare and not _fits(columns, console.width):
        names_left = [name.replace("_", " ") for name in names if name not in spare]
        columns = {head: columns[head] for head in names_left}
    fits = _fits(columns, console.width)
    table = Table(
        *(
            Column(
                head, overflow="fold", no_wrap=head == "id" or (fits and _is_short(head, values))
            )
            for head, values in columns.items()
        )
    )
    for line in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, line))
    console.print(table)


def _is_short(head: str, values: Sequence[str]) -> bool:
    return head == _COMPARED or max(map(len, (head, *values))) <= SHORT


def _fits(columns: Mapping[str, Sequence[str]], width: int) -> bool:
    """Return whether short values stay on one line and the others are readable."""
    return width > sum(
        _BORDERS + (max(map(len, (head, *values))) if _is_short(head, values) else READABLE)
        for head, values in columns.items()
    )


def output_width() -> int | None:
    """Return None for the terminal's width, or `COLUMNS`. Files and pipes fold no row."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNFOLDED


def visible(text: str) -> str:
    """Return the text with every unprintable character escaped."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def shortened(text: str, longest: int) -> str:
    """Return the `visible` text, cut after `longest` characters."""
    line = visible(text)
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def _text(value: object) -> str:
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
    _PRINT.get()(orjson.dumps(numbered, default=str, option=orjson.OPT_INDENT_2))
