"""Commands of `fedperf-sim` that measure plans and fit the models that ship to them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedperf_shared.runtime.command_line import show
from fedperf_simulations.commands.options import Json, Quick, Seed, now

if TYPE_CHECKING:
    from fedperf_simulations.corpus.measurement import MeasurementDesign


def measure(
    out: Annotated[Path, typer.Option(help="Directory of log, data and measured set.")] = Path(
        "out/measured"
    ),
    seed: Seed = 1,
    workloads: Annotated[int | None, typer.Option(min=1, help="Distinct programs.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="Run everything on this one; the set of that platform.")
    ] = None,
    comparisons: Annotated[
        bool, typer.Option("--comparisons", help="Many plans of each workload: the comparison set.")
    ] = False,
    training_plans: Annotated[
        bool,
        typer.Option("--train-only", help="Measure the training set, which no evaluation uses."),
    ] = False,
    cpu_limit: Annotated[
        float | None, typer.Option(help="Share of one core for every run: the capped set.")
    ] = None,
    memory_limit: Annotated[
        str, typer.Option(help="Of all runs together, where --cpu-limit is given, such as 1GB.")
    ] = "1GB",
    large: Annotated[
        bool, typer.Option("--large", help="Inputs of 3 to 30 million rows: the large set.")
    ] = False,
    sessions: Annotated[
        str | None, typer.Option(help="Of SQL instead of programs: spark, duckdb or judged.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Sessions, from the first on.")] = None,
    quick: Quick = False,
    install: Annotated[
        bool, typer.Option("--install", help="Make it the measured set of this package.")
    ] = False,
    json: Json = False,
) -> None:
    """Run thousands of drawn workloads and keep what was measured; kill it, and it goes on.

    The machine should be idle otherwise; expect an hour or two, three for sessions of Spark.
    """
    from dataclasses import asdict

    from fedperf_simulations.corpus import comparison_set as designs
    from fedperf_simulations.corpus.measured_log import compact
    from fedperf_simulations.corpus.measurement import measure as measure_tasks
    from fedperf_simulations.corpus.resource_cap import Cap
    from fedperf_simulations.data.datasets import (
        CAPPED,
        COMPARISONS,
        HELD_OUT_SESSIONS,
        LARGE,
        TRAINING,
        measured_directory,
    )

    selected = {
        COMPARISONS: comparisons,
        TRAINING: training_plans,
        LARGE: large,
        CAPPED: cpu_limit is not None,
        platform or "": platform is not None,
        HELD_OUT_SESSIONS if sessions == "judged" else f"{sessions}_sessions": sessions is not None,
    }
    if sum(selected.values()) > 1:
        raise typer.BadParameter(
            "--comparisons, --train-only, --large, --platform, --cpu-limit and --sessions "
            "exclude each other"
        )
    out.mkdir(parents=True, exist_ok=True)
    folder = next((name for name, is_chosen in selected.items() if is_chosen), "")
    path = (measured_directory(folder) if install else out) / "measured.parquet"
    if sessions is not None:
        _measure_sessions(sessions, count, out, path, seed=seed, quick=quick, json=json)
        return
    if comparisons:
        design: MeasurementDesign = designs.comparison_settings(seed, workloads, quick=quick)
    elif cpu_limit is not None:
        cap = Cap(cpu_limit, _bytes(memory_limit))
        design = designs.capped_settings(seed, workloads, cap, quick=quick)
    elif training_plans:
        design = designs.training_settings(seed, workloads, quick=quick)
    elif large:
        design = designs.large_settings(seed, workloads, quick=quick)
    else:
        design = designs.measuring_settings(seed, workloads, platform, quick=quick)
    log = out / "measured.jsonl"
    counts = measure_tasks(design, log=log, data_directory=out / "data", clock=now)
    path.parent.mkdir(exist_ok=True)
    rows = compact(log, path, provenance=_provenance(seed, out))
    show({**asdict(counts), "rows": rows, "file": str(path)}, json=json)


def _measure_sessions(
    kind: str, count: int | None, out: Path, path: Path, *, seed: int, quick: bool, json: bool
) -> None:
    from dataclasses import asdict

    from fedperf_simulations.corpus.sql.session_draws import COUNTS, SessionDesign
    from fedperf_simulations.corpus.sql.session_set import (
        join_sessions,
        measure_sessions,
        sessions_in,
    )
    from fedperf_simulations.corpus.sql.sessions import SessionKind

    if kind not in set(SessionKind):
        raise typer.BadParameter(
            f"--sessions must be one of {', '.join(SessionKind)}, got {kind!r}"
        )
    session_kind = SessionKind(kind)
    design = SessionDesign(session_kind, seed, count or COUNTS[session_kind], is_quick=quick)
    path = path if path.parent != out else out / f"{kind}.parquet"
    path.parent.mkdir(exist_ok=True)
    measure_sessions(design, out / kind, measured=sessions_in(path))
    joined = join_sessions(design, out / kind, path, provenance=_provenance(seed, out))
    show({**asdict(joined), "file": str(path)}, json=json)


def _provenance(seed: int, out: Path) -> dict[str, str]:
    from fedperf_simulations.corpus.measured_log import provenance as measured_provenance
    from fedperf_simulations.harness.experiment import Settings, provenance

    commit = str(provenance(Settings(seed, out), ())["commit"] or "unknown")
    return measured_provenance(commit=commit, measured_at=now())


def fit_coefficients(json: Json = False) -> None:
    """Fit the prices of the analytic cost model to what was measured, and install them.

    Models correct these prices: train both pretrained models again afterwards.
    """
    from fedperf_simulations.corpus.cost_coefficients import fit_shipped_prices

    show(dict(fit_shipped_prices().executions), json=json)


def train_base(
    seed: Seed = 0,
    limited: Annotated[
        bool, typer.Option("--limited", help="The limited pretrained model of simulations.")
    ] = False,
    json: Json = False,
) -> None:
    """Train the public pretrained model on all measurements, and install it; 20 minutes.

    With it the additive head that `fedperf advise` searches by.
    """
    from dataclasses import asdict

    from fedperf_engines.optimizer import distillation
    from fedperf_simulations.corpus.pretraining import (
        EPOCHS,
        distil_shipped_head,
        train_limited_model,
        train_public_model,
    )
    from fedperf_simulations.corpus.training_set import Measurements
    from fedperf_simulations.data.datasets import measured_executions
    from fedperf_simulations.harness.terminal import bar

    with bar("training the pretrained model", EPOCHS) as advance:

        def on_epoch(_: int, loss: float) -> None:
            advance(f"loss {loss:.3f}")

        if limited:
            learned = train_limited_model(measured_executions(), seed=seed, on_progress=on_epoch)
            show(asdict(learned), json=json)
            return
        measurements = Measurements.read(seed)
        learned = train_public_model(measurements, on_progress=on_epoch)
    with bar("distilling the additive head", distillation.EPOCHS) as advance:
        head = distil_shipped_head(
            measurements, on_progress=lambda done, total: advance(f"{done} of {total}")
        )
    show({**asdict(learned), "head": asdict(head)}, json=json)


def calibrate_intervals(seed: Seed = 0, json: Json = False) -> None:
    """Measure the pretrained model's error by platform, and install it; 40 minutes.

    Two models are trained without a part of the measurements, and evaluated on it.
    """
    from dataclasses import asdict

    from fedperf_shared.model.pretrained import write_widths
    from fedperf_simulations.baselines.cost_models import ggfn
    from fedperf_simulations.corpus.pretraining import EPOCHS, measure_widths
    from fedperf_simulations.corpus.training_set import Measurements
    from fedperf_simulations.harness.terminal import bar

    with bar("training two pretrained models", 2 * EPOCHS) as advance:
        learn = ggfn(epochs=EPOCHS, seed=seed, on_progress=lambda _, loss: advance(f"{loss:.3f}"))
        measured = measure_widths(Measurements.read(seed), learn)
    write_widths(measured)
    show({each.name.lower(): asdict(width) for each, width in measured.items()}, json=json)


def _bytes(size: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError

    try:
        return TypeAdapter(ByteSize).validate_python(size)
    except ValidationError as error:
        raise typer.BadParameter(
            f"--memory-limit must be a size such as 1GB, got {size!r}"
        ) from error
