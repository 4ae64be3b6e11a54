"""The command line of simulations: `fedperf-sim`.

Nothing heavy is imported before a command needs it, so that help answers at once.
"""

import sys
from dataclasses import replace
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
    from fedperf_simulations.measured_set.comparison_set import ComparisonSettings
    from fedperf_simulations.measured_set.measurement import MeasurementDesign
    from fedperf_simulations.measured_set.workload_draws import MeasuringSettings

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
    from fedperf_simulations.measured_set.measured_log import compact
    from fedperf_simulations.measured_set.measured_log import provenance as measured_provenance
    from fedperf_simulations.measured_set.measurement import measure as measure_tasks

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
        design: MeasurementDesign = _comparison_settings(seed, workloads, quick=quick)
    elif cpu_limit is not None:
        design = _capped_settings(seed, workloads, cpu_limit, memory_limit, quick=quick)
    elif lessons:
        design = _lesson_settings(seed, workloads, quick=quick)
    else:
        design = _measuring_settings(seed, workloads, platform, quick=quick)
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
    print(f"{settings.out / 'summary.json'} has all of it")


def _measuring_settings(
    seed: int, workloads: int | None, platform: str | None, *, quick: bool
) -> "MeasuringSettings":
    from fedperf_shared.workflow.vocabulary import platform_of
    from fedperf_simulations.measured_set.workload_draws import MeasuringSettings

    alone = platform_of(platform) if platform else None
    full = MeasuringSettings(seed)
    count = workloads or (40 if quick else full.workloads)
    compared = 0 if alone else min(full.comparisons, count // 10)
    most_rows = 100_000 if quick else full.most_rows
    return MeasuringSettings(seed, count, comparisons=compared, most_rows=most_rows, platform=alone)


def _capped_settings(
    seed: int, workloads: int | None, cpu_limit: float, memory_limit: str, *, quick: bool
) -> "MeasuringSettings":
    """One thread has less than a core; a busy core elsewhere disturbs nothing."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    from fedperf_simulations.measured_set.resource_cap import (
        CAPPED_PLATFORMS,
        CAPPED_WORKLOADS,
        Cap,
    )

    try:
        memory_bytes = TypeAdapter(ByteSize).validate_python(memory_limit)
    except ValidationError as error:
        raise typer.BadParameter(
            f"--memory-limit must be a size such as 1GB, got {memory_limit!r}"
        ) from error
    cap = Cap(cpu_limit, memory_bytes)
    drawn = _measuring_settings(
        seed, workloads or (None if quick else CAPPED_WORKLOADS), None, quick=quick
    )
    return replace(
        drawn,
        comparisons=0,
        two_threads_share=0.0,
        disturbed_cores=1.2,
        among=CAPPED_PLATFORMS,
        cap=cap,
    )


def _comparison_settings(seed: int, workloads: int | None, *, quick: bool) -> "ComparisonSettings":
    from fedperf_simulations.measured_set.comparison_set import ComparisonSettings

    full = ComparisonSettings(seed)
    if not quick:
        return ComparisonSettings(seed, workloads or full.workloads)
    return ComparisonSettings(
        seed, workloads or 12, series=1, exhaustive=1, most_rows=10_000, mixed=1
    )


def _lesson_settings(seed: int, workloads: int | None, *, quick: bool) -> "ComparisonSettings":
    """No series; of the next seed, so that workloads are others."""
    from fedperf_simulations.measured_set.comparison_set import LESSON_PROGRAMS

    drawn = _comparison_settings(seed + 1, workloads, quick=quick)
    return replace(drawn, series=0, exhaustive=1 if quick else LESSON_PROGRAMS)


def _now() -> datetime:
    return datetime.now(UTC)
