"""The command line of simulations: `fedperf-sim`.

Nothing heavy is imported before a command needs it, so that help appears at once.
"""

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.runtime import command_line
from fedperf_shared.runtime.command_line import show, show_rows
from fedperf_simulations.commands import measured_set
from fedperf_simulations.commands.options import Json, Quick, Seed, now

if TYPE_CHECKING:
    from fedperf_simulations.harness.experiment import Settings

app = typer.Typer(
    name="fedperf-sim",
    help="Show, measure and test claims about learning together.",
    cls=command_line.ProgramCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)

Out = Annotated[Path | None, typer.Option(help="Directory of results; out/NAME by default.")]
Data = Annotated[
    Path | None, typer.Option(help="Directory of public data sets.", envvar="FEDPERF_DATA")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use at once.")]


def main() -> None:
    """Entry point of the console script."""
    command_line.run(app)


@app.callback()
def options(version: command_line.Version = False) -> None:
    """Read the options that every command has."""
    del version  # it has ended the program


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory of everything that it makes.")] = Path(
        "out/demo"
    ),
    seed: Seed = 0,
    quick: Quick = False,
    json: Json = False,
) -> None:
    """Show why to join, in six minutes; a busy machine takes longer.

    (a) what joining gives a new participant, (b) how predictions change when only half a core is
    available, (c) what leaves three organizations, for how much. Exit code 9: nothing was promoted
    in (a), or a release was lost in (c); one line names the reason.
    """
    import os
    import signal
    import time

    from rich.console import Console

    from fedperf_simulations.data.datasets import measured_executions
    from fedperf_simulations.demo.demo import run_demo
    from fedperf_simulations.demo.processes import Programs
    from fedperf_simulations.demo.scenario import QUICK, DemoSize
    from fedperf_simulations.demo.summary import show_summary
    from fedperf_simulations.demo.workspace import DemoWorkspace, fresh_directory
    from fedperf_simulations.harness.terminal import stages_shown

    # Asked to end, it ends as by Ctrl-C: with everything that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    executions = list(measured_executions())
    directory = fresh_directory(out)
    with (
        Programs(directory / "logs", os.environ) as programs,
        stages_shown(time.monotonic) as stages,
    ):
        size = QUICK if quick else DemoSize()
        world = DemoWorkspace(directory, seed, size, quick, programs, now, time.sleep)
        summary = run_demo(world, executions, stages)
    if json:
        show(summary.as_json(), json=True)
    else:
        show_summary(summary, Console())
        print(f"the page about it: {directory / 'report.html'}")
    if summary.shortfall:
        print(f"incomplete: {summary.shortfall}", file=sys.stderr)
        raise typer.Exit(command_line.INCOMPLETE)


@app.command()
def replay(
    directory: Annotated[Path, typer.Argument(help="Of a coordinator; it is only read.")],
    json: Json = False,
) -> None:
    """Play a coordinator's stored releases through the installed one, and compare what comes of it.

    One line per version, regime and drift of its calendar, and one for the correction. Members send
    nothing again: a change of the coordinator is judged by the stored releases.
    """
    from dataclasses import replace as changed

    from fedperf_memory.memory_federation import directory_in_memory
    from fedperf_server.app.composition import ggfn_task
    from fedperf_server.config import load_config
    from fedperf_server.state.database import Database
    from fedperf_simulations.federation.replay import compared, replayed

    config = load_config(directory)
    table = config.calendar
    source = Database.existing(config.database_url)
    task = ggfn_task()
    with directory_in_memory() as place:
        again = changed(config, directory=place / "coordinator", database_url="")
        with replayed(source, again, task) as federation:
            rows = compared(source, federation.database, table.period)
    source.close()
    show_rows(rows, json=json, empty="")


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List the experiments and benchmarks with the claims that they test."""
    from fedperf_simulations.experiments import ENTRIES, load

    rows = [
        {"name": entry.name, "kind": str(entry.kind), "claim": load(entry).claim}
        for entry in ENTRIES
    ]
    show_rows(rows, json=json, empty="no experiments yet")


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Of the experiment; see: fedperf-sim list")],
    seed: Seed = 0,
    data: Data = None,
    out: Out = None,
    jobs: Jobs = 1,
    quick: Quick = False,
    json: Json = False,
) -> None:
    """Test a claim by an experiment: a table with the published figure."""
    from fedperf_simulations.harness.experiment import Settings

    settings = Settings(seed, out or Path("out") / name, data, jobs, quick)
    _conduct("experiment", name, settings, json=json)


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Of the benchmark; see: fedperf-sim list")],
    seed: Seed = 0,
    data: Data = None,
    out: Out = None,
    jobs: Jobs = 1,
    quick: Quick = False,
    json: Json = False,
) -> None:
    """Measure a speed, as a ratio within one run."""
    from fedperf_simulations.harness.experiment import Settings

    settings = Settings(seed, out or Path("out") / name, data, jobs, quick)
    _conduct("bench", name, settings, json=json)


@app.command()
def verify(
    out: Annotated[Path, typer.Argument(help="Directory of results: of `run`, or `bench`.")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Compute every target and table again from the kept cells, and compare with the summary.

    One line per difference. Nothing is measured or trained: cells are read only.
    """
    from fedperf_simulations.experiments import load, named
    from fedperf_simulations.harness.verification import differences, read_summary

    summary = read_summary(out)
    lines = list(differences(load(named(summary["name"])), out, data=data))
    if json:
        show({"name": summary["name"], "differences": lines}, json=True)
    else:
        cells = len(summary["provenance"]["cells"])
        print("\n".join(lines) or f"{summary['name']}: what {cells} kept cells give")
    if lines:
        raise typer.Exit(command_line.DIFFERENT)


@app.command()
def reproduce(
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Whole runs (many hours), or small.")
    ],
    out: Annotated[Path, typer.Option(help="Directory of results and of the page.")],
    seed: Seed = 0,
    data: Data = None,
    jobs: Jobs = 1,
    json: Json = False,
) -> None:
    """Run and verify every experiment and benchmark; one page of all claims: OUT/claims.html.

    It goes on where it was interrupted. Experiments that fail or lack their data are listed on the
    page with the reason. Exit code 10: something failed, or differs from its cells.
    """
    from fedperf_simulations.experiments import ENTRIES, load
    from fedperf_simulations.harness.experiment import Settings
    from fedperf_simulations.harness.reproduction import reproduced, write_claims

    settings = Settings(seed, out, data, jobs, quick=not full)
    experiments = [(entry.command, load(entry)) for entry in ENTRIES]
    claims = []
    for each in reproduced(
        experiments, settings, announce=lambda line: print(line, file=sys.stderr)
    ):
        claims.append(each)
        write_claims(out, claims)
    if json:
        show({"claims": [each.as_row() for each in claims]}, json=True)
    else:
        show_rows([each.summed_up() for each in claims], json=False, empty="no experiments")
        print(f"the page of all claims: {out / 'claims.html'}")
    if any(each.is_wrong for each in claims):
        raise typer.Exit(command_line.DIFFERENT)


app.command()(measured_set.measure)
app.command()(measured_set.fit_coefficients)
app.command()(measured_set.calibrate_intervals)
app.command()(measured_set.train_base)


def _conduct(kind: str, name: str, settings: "Settings", *, json: bool) -> None:
    from fedperf_simulations.experiments import ExperimentKind, find, load
    from fedperf_simulations.harness.experiment import conduct

    summary = conduct(load(find(ExperimentKind(kind), name)), settings)
    if json:
        show(summary, json=True)
        return
    for table in ("rows", "targets"):
        content = summary[table]
        rows = content if isinstance(content, list) else []
        for _, part in groupby(rows, key=lambda row: row.get("part")):
            show_rows(list(part), json=False, empty="")
        if not rows:
            print(f"no {table}")
    notes = summary["notes"]
    for note in notes if isinstance(notes, list) else []:
        print(f"note: {note}")
    print(f"{settings.out / 'summary.json'} has all of it")
