"""Tests of output, messages and exit codes that all programs share."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from fedperf_shared.errors import (
    ConfigurationError,
    ConnectionRefusedByPeerError,
    FedperfError,
    InvalidInputError,
    PrivacyRefusedError,
    StorageError,
)
from fedperf_shared.runtime import command_line
from fedperf_shared.runtime.process import stop_on_signals
from tests.unit.shared.console_programs import Ended, run


def ending_with(error: BaseException) -> Ended:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def work() -> None:
        raise error

    return run(lambda: command_line.run(app))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FedperfError, 1),
        (InvalidInputError, 3),
        (ConfigurationError, 3),
        (StorageError, 4),
        (PrivacyRefusedError, 5),
        (ConnectionRefusedByPeerError, 6),
    ],
)
def test_fedperf_error_prints_one_line_and_exits_with_documented_code(
    kind: type[FedperfError], code: int
) -> None:
    ended = ending_with(kind("the disk is full,\n  make   room"))
    assert ended == Ended(code, "", "error: the disk is full, make room\n")
    assert code in command_line.EXIT_CODES


def test_keyboard_interrupt_exits_with_130() -> None:
    assert ending_with(KeyboardInterrupt()).code == command_line.INTERRUPTED == 130


def test_unexpected_exception_is_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        ending_with(ZeroDivisionError())


def test_unknown_option_exits_with_2() -> None:
    app = typer.Typer()
    app.command()(lambda: None)
    assert run(lambda: command_line.run(app), "--no-such-option").code == 2


counting = typer.Typer(cls=command_line.ProgramCommands, pretty_exceptions_enable=False)


@counting.callback()
def whole() -> None:
    """Provide a second command, so that `counted` is named on the line."""


@counting.command()
def counted(
    many: int,
    since: Annotated[
        datetime | None, typer.Option(click_type=command_line.TimestampParameter())
    ] = None,
) -> None:
    print(many, since)


@counting.command("wait")
def waiting() -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


def test_interrupted_command_prints_how_to_continue() -> None:
    ended = run(lambda: command_line.run(counting), "wait")
    assert (ended.code, ended.out) == (command_line.INTERRUPTED, "")
    [line] = ended.err.splitlines()
    assert line.startswith("stopped; to continue, call ")
    assert line.endswith("program wait again as before")


@pytest.mark.parametrize(("typed", "times"), [("cuonted", 1), ("ended", 0), ("no", 0)])
def test_unknown_command_suggests_a_close_name_once(typed: str, times: int) -> None:
    ended = run(lambda: command_line.run(counting), typed)
    assert ended.code == 2
    assert ended.err.count("Did you mean") == ended.err.count("'counted'") == times


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["many"], "Invalid value for 'MANY': 'many' is not a valid int"),
        (["1", "--since", "today"], "'today' is not a date such as 2027-01-01"),
    ],
)
def test_invalid_argument_value_prints_one_line_and_exits_with_3(
    words: list[str], says: str
) -> None:
    ended = run(lambda: command_line.run(counting), "counted", *words)
    assert ended.code == 3
    assert says in ended.complaint()


@pytest.mark.parametrize("words", [[], ["1", "2"], ["1", "--nothing"]])
def test_missing_or_unknown_argument_exits_with_2(words: list[str]) -> None:
    ended = run(lambda: command_line.run(counting), "counted", *words)
    assert ended.code == 2


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2027-01-01", "2027-01-01T00:00:00+00:00"),
        ("2027-01-01T09:00", "2027-01-01T09:00:00+00:00"),
        ("2027-01-01T09:00+01:00", "2027-01-01T08:00:00+00:00"),
        ("2027-01-01 09:00:00Z", "2027-01-01T09:00:00+00:00"),
    ],
)
def test_timestamp_parameter_converts_to_utc(written: str, meant: str) -> None:
    moment = command_line.TimestampParameter().convert(written, None, None)
    assert moment.isoformat() == meant
    assert moment.tzinfo is UTC


def test_show_prints_facts_one_per_line_or_as_exact_json() -> None:
    facts = {"epsilon": 1 / 3, "skipped": {"late": 2, "odd": 1}, "model_version": None, "ok": True}
    shown = run(lambda: command_line.show(facts, json=False))
    assert shown.out.splitlines() == [
        "epsilon: 0.333333",
        "skipped: 2 late, 1 odd",
        "model version: -",
        "ok: yes",
    ]
    assert run(lambda: command_line.show(facts, json=True)).json() == facts


def test_show_rows_prints_a_table_or_exact_json() -> None:
    rows: list[dict[str, object]] = [
        {"name": "one", "error": 0.1 + 0.2},
        {"name": "two", "error": None},
    ]
    assert run(lambda: command_line.show_rows(rows, json=True, empty="none")).json() == rows
    table = run(lambda: command_line.show_rows(rows, json=False, empty="none")).out
    assert "one" in table
    assert "0.3" in table
    assert run(lambda: command_line.show_rows([], json=False, empty="none")).out == "none\n"
    assert run(lambda: command_line.show_rows([], json=True, empty="none")).json() == []


def test_show_rows_folds_a_row_to_terminal_width_but_not_without_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {f"a figure {number}": 1000 + number for number in range(6)}

    def lines() -> list[str]:
        return run(lambda: command_line.show_rows([row], json=False, empty="")).out.splitlines()

    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(lines()) == 5
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, lines())) == 60
    assert len(lines()) > 5


def test_show_rows_too_wide_for_terminal_prints_one_line_per_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{f"figure {column}": 100 * row + column for column in range(12)} for row in (1, 2)]
    monkeypatch.setenv("COLUMNS", "60")
    shown = run(lambda: command_line.show_rows(rows, json=False, empty="")).out
    [line] = [line.split() for line in shown.splitlines() if "figure 7" in line]
    assert [word for word in line if word.isdigit()] == ["7", "107", "207"]
    assert len(shown.splitlines()) == 4 + 12


def test_show_rows_on_narrow_terminal_drops_spare_columns_and_keeps_short_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {"id": "0a1b2c3d", "what": "a long description " * 3, "at": "2026-03-24 18:12"}
    rows = [{**row, "time": "1.25 min", "spare": "not needed"}] * 6

    def shown(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        return run(lambda: command_line.show_rows(rows, json=False, empty="", spare=["spare"])).out

    assert "not needed" in shown(80)
    assert "spare" not in shown(49)
    for width in (70, 80, 120):
        assert shown(width).count("2026-03-24 18:12") == shown(width).count("1.25 min") == 6
        assert all(line[-1] in "┓┃┩│┘" for line in shown(width).splitlines())  # none is truncated


def test_show_escapes_terminal_control_sequences_in_untrusted_text() -> None:
    hostile = "a\x1b[31m\u202e[red]b[/red]:smile:\r"
    shown = "a\\x1b[31m\\u202e[red]b[/red]:smile:\\r"
    facts = run(lambda: command_line.show({"name": hostile, "by": {hostile: 1}}, json=False))
    assert facts.out == f"name: {shown}\nby: 1 {shown}\n"
    table = run(lambda: command_line.show_rows([{"name": hostile}], json=False, empty=""))
    assert shown in table.out
    assert "\x1b" not in ending_with(InvalidInputError(hostile)).err
    exact = run(lambda: command_line.show({"name": hostile}, json=True))
    assert exact.json() == {"name": hostile}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_on_signals_sets_event_first_and_terminates_on_second_signal(
    number: signal.Signals,
) -> None:
    program = """
        from fedperf_shared.runtime.process import stop_on_signals
        stop = stop_on_signals()
        print("ready", flush=True)
        stop.wait()
        print("asked", flush=True)
        stop.clear()
        stop.wait()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == "asked\n"
        child.send_signal(number)
        assert child.wait(10) == -number


def test_stop_on_signals_sets_event_in_the_current_process() -> None:
    kept = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(2)
        assert isinstance(stop, threading.Event)
    finally:
        signal.signal(signal.SIGTERM, kept[0])
        signal.signal(signal.SIGINT, kept[1])


@pytest.mark.parametrize("package", ["fedperf_client", "fedperf_server", "fedperf_simulations"])
def test_program_version_option_prints_version_and_imports_no_heavy_module(package: str) -> None:
    program = (
        "import sys\n"
        f"from {package} import cli\n"
        "sys.argv = ['program', '--version']\n"
        "try:\n    cli.main()\n"
        "finally:\n    print(sorted({*sys.modules} & {'torch', 'flwr', 'pandas', 'sdv', 'scipy'}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"fedperf {version('fedperf')}\n[]\n"


def test_help_text_is_wrapped_to_terminal_width_not_source_lines() -> None:
    app = typer.Typer(cls=command_line.ProgramCommands)

    @app.callback()
    def program() -> None: ...

    @app.command()
    def go() -> None:
        """Go.

        These words stand in the source on one line
        and these on another.

        A paragraph of its own.
        """

    shown = CliRunner().invoke(app, ["go", "--help"], env={"COLUMNS": "120"}).stdout

    lines = [line.strip() for line in shown.splitlines()]
    assert "These words stand in the source on one line and these on another." in lines
    assert "A paragraph of its own." in lines
