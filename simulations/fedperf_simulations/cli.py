"""The command line of simulations: `fedperf-sim`.

Nothing heavy is imported before a command needs it, so that help answers at once.
"""

import sys
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.programs import command_line
from fedperf_shared.programs.command_line import show, show_rows

if TYPE_CHECKING:
    from fedperf_simulations.experiments import ExperimentKind
    from fedperf_simulations.harness.experiment import Settings
    from fedperf_simulations.measured_set.measurement import MeasurementDesign

app = typer.Typer(
    name="fedperf-sim",
    help="Show, measure and answer claims about learning together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: "
    + "; ".join(f"{code} {text}" for code, text in command_line.EXIT_CODES.items()),
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")]
Out = Annotated[Path | None, typer.Option(help="Directory of results; out/NAME by default.")]
Data = Annotated[
    Path | None, typer.Option(help="Directory of public data sets.", envvar="FEDPERF_DATA")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes to use at once.")]
Quick = Annotated[bool, typer.Option("--quick", help="A small version that shows that it runs.")]


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
    """Let three organizations learn together on this machine; a busy one takes longer.

    Exit code 9: nothing was promoted, or a report or an update was lost; one line says what.
    """
    import os
    import signal
    import time

    from rich.console import Console

    from fedperf_simulations.data.datasets import measured_executions
    from fedperf_simulations.demo.demo import run_demo
    from fedperf_simulations.demo.processes import Programs
    from fedperf_simulations.demo.scenario import QUICK, DemoSize
    from fedperf_simulations.demo.tables import show_summary
    from fedperf_simulations.demo.world import DemoWorld, fresh_directory
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
        world = DemoWorld(directory, seed, size, programs, _now, time.sleep)
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

    One line per version, epoch and drift of its calendar, and one for the correction. Members are
    not asked again: a change of the coordinator is judged by the releases that there are.
    """
    from dataclasses import replace as changed

    from fedperf_server.app.task import ggfn_task
    from fedperf_server.config import load_config
    from fedperf_server.state.database import Database
    from fedperf_simulations.federation.memory_federation import directory_in_memory
    from fedperf_simulations.federation.replay import compared, replayed

    config = load_config(directory)
    table = config.timetable
    source = Database.existing(config.database_url)
    task = ggfn_task(table.model_method, norm_bound=config.update_norm_bound)
    with directory_in_memory() as place:
        again = changed(config, directory=place / "coordinator", database_url="")
        with replayed(source, again, task) as federation:
            rows = compared(source, federation.database, table.period)
    source.close()
    show_rows(rows, json=json, empty="the coordinator holds no version")


@app.command("list")
def list_experiments(json: Json = False) -> None:
    """List the experiments and benchmarks with the claims that they answer."""
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
    """Answer a claim by an experiment: a table beside the published figure."""
    from fedperf_simulations.experiments import ExperimentKind

    settings = _settings(out or Path("out") / name, seed, data=data, jobs=jobs, quick=quick)
    _conduct(ExperimentKind.EXPERIMENT, name, settings, json=json)


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
    from fedperf_simulations.experiments import ExperimentKind

    settings = _settings(out or Path("out") / name, seed, data=data, jobs=jobs, quick=quick)
    _conduct(ExperimentKind.BENCH, name, settings, json=json)


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
    found = list(differences(load(named(summary["name"])), out, data=data))
    if json:
        show({"name": summary["name"], "differences": found}, json=True)
    else:
        cells = len(summary["provenance"]["cells"])
        print("\n".join(found) or f"{summary['name']}: what {cells} kept cells say")
    if found:
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

    It goes on where it was interrupted. What fails or lacks its data stands on the page with the
    reason; exit code 10: something failed, or is not what its cells say.
    """
    from fedperf_simulations.experiments import ENTRIES, load
    from fedperf_simulations.harness.claims_page import write_claims
    from fedperf_simulations.harness.reproduction import reproduced

    settings = _settings(out, seed, data=data, jobs=jobs, quick=not full)
    experiments = [(entry.command, load(entry)) for entry in ENTRIES]
    claims = []
    for each in reproduced(experiments, settings, say=lambda line: print(line, file=sys.stderr)):
        claims.append(each)
        write_claims(out, claims)
    if json:
        show({"claims": [each.as_row() for each in claims]}, json=True)
    else:
        show_rows([each.summed_up() for each in claims], json=False, empty="no experiments")
        print(f"the page of all claims: {out / 'claims.html'}")
    if any(each.is_wrong for each in claims):
        raise typer.Exit(command_line.DIFFERENT)


@app.command()
def measure(
    out: Annotated[Path, typer.Option(help="Directory of log, data and measured set.")],
    seed: Seed = 1,
    workloads: Annotated[int | None, typer.Option(min=1, help="Distinct programs.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="Run everything on this one; the set of that platform.")
    ] = None,
    comparisons: Annotated[
        bool, typer.Option("--comparisons", help="Many plans of each workload: the comparison set.")
    ] = False,
    lessons: Annotated[
        bool, typer.Option("--lessons", help="As many more to learn from, which nothing judges.")
    ] = False,
    cpu_limit: Annotated[
        float | None, typer.Option(help="Share of one core for every run: the capped set.")
    ] = None,
    memory_limit: Annotated[
        str, typer.Option(help="Of all runs together, where --cpu-limit is given, such as 1GB.")
    ] = "1GB",
    quick: Quick = False,
    install: Annotated[
        bool, typer.Option("--install", help="Make it the measured set of this package.")
    ] = False,
    json: Json = False,
) -> None:
    """Run thousands of drawn workloads and keep what was measured; kill it, and it goes on.

    The machine should be idle otherwise; expect an hour or two.
    """
    from dataclasses import asdict

    from fedperf_simulations.data.datasets import CAPPED, COMPARISONS, LESSONS, MEASURED_DIRECTORY
    from fedperf_simulations.harness.experiment import Settings, provenance
    from fedperf_simulations.measured_set import designs
    from fedperf_simulations.measured_set.measured_log import compact
    from fedperf_simulations.measured_set.measured_log import provenance as measured_provenance
    from fedperf_simulations.measured_set.measurement import measure as measure_tasks
    from fedperf_simulations.measured_set.resource_cap import Cap

    out.mkdir(parents=True, exist_ok=True)
    log = out / "measured.jsonl"
    chosen = {
        COMPARISONS: comparisons,
        LESSONS: lessons,
        CAPPED: cpu_limit is not None,
        platform or "": platform is not None,
    }
    if sum(chosen.values()) > 1:
        raise typer.BadParameter(
            "--comparisons, --lessons, --platform and --cpu-limit exclude each other"
        )
    folder = next((name for name, is_chosen in chosen.items() if is_chosen), "")
    if comparisons:
        design: MeasurementDesign = designs.comparison_settings(seed, workloads, quick=quick)
    elif cpu_limit is not None:
        cap = Cap(cpu_limit, _bytes(memory_limit))
        design = designs.capped_settings(seed, workloads, cap, quick=quick)
    elif lessons:
        design = designs.lesson_settings(seed, workloads, quick=quick)
    else:
        design = designs.measuring_settings(seed, workloads, platform, quick=quick)
    found = measure_tasks(design, log=log, data_directory=out / "data", clock=_now)
    path = (MEASURED_DIRECTORY / folder if install else out) / "measured.parquet"
    path.parent.mkdir(exist_ok=True)
    commit = str(provenance(Settings(seed, out), ())["commit"] or "unknown")
    rows = compact(log, path, provenance=measured_provenance(commit=commit, measured_at=_now()))
    show({**asdict(found), "rows": rows, "file": str(path)}, json=json)


@app.command()
def start(
    seed: Seed = 0,
    limited: Annotated[
        bool, typer.Option("--limited", help="The start of simulations, which knows little.")
    ] = False,
    json: Json = False,
) -> None:
    """Train the public start from everything that was measured, and install it; 20 minutes.

    With it the additive head that `fedperf advise` searches by.
    """
    from dataclasses import asdict

    from fedperf_client.optimizer import distillation
    from fedperf_simulations.data.datasets import measured_executions
    from fedperf_simulations.harness.terminal import bar
    from fedperf_simulations.measured_set.shipped_head import distil_shipped_head
    from fedperf_simulations.measured_set.starts import (
        EPOCHS,
        train_limited_start,
        train_public_start,
    )
    from fedperf_simulations.measured_set.training_set import Measurements

    with bar("training the start", EPOCHS) as advance:

        def on_epoch(_: int, loss: float) -> None:
            advance(f"loss {loss:.3f}")

        if limited:
            learnt = train_limited_start(measured_executions(), seed=seed, on_progress=on_epoch)
            show(asdict(learnt), json=json)
            return
        measurements = Measurements.read(seed)
        learnt = train_public_start(measurements, on_progress=on_epoch)
    with bar("distilling the additive head", distillation.EPOCHS) as advance:
        head = distil_shipped_head(
            measurements, on_progress=lambda done, total: advance(f"{done} of {total}")
        )
    show({**asdict(learnt), "head": asdict(head)}, json=json)


def _settings(out: Path, seed: int, *, data: Path | None, jobs: int, quick: bool) -> "Settings":
    from fedperf_simulations.harness.experiment import Settings

    return Settings(seed=seed, out=out, data=data, jobs=jobs, quick=quick)


def _conduct(kind: "ExperimentKind", name: str, settings: "Settings", *, json: bool) -> None:
    from fedperf_simulations.experiments import find, load
    from fedperf_simulations.harness.experiment import conduct

    summary = conduct(load(find(kind, name)), settings)
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


def _bytes(size: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError as error:
        raise typer.BadParameter(
            f"--memory-limit must be a size such as 1GB, got {size!r}"
        ) from error


def _now() -> datetime:
    return datetime.now(UTC)
