"""A small demo summary for tests of what shows it."""

from dataclasses import replace

from fedperf_client.optimizer.methods import Method
from fedperf_simulations.demo.summary import (
    ChoiceResult,
    DemoSummary,
    LeftOut,
    OrganizationResult,
    PlatformTime,
    QErrors,
    Released,
    RoundSummary,
    VersionSummary,
)

ALDER = OrganizationResult(
    name="alder",
    size_class="large",
    executions=2345,
    workloads=2101,
    live=110,
    unit="workload",
    epsilon_spent=0.9876,
    replace_one_epsilon=1.9,
    epsilon_budget=1.0,
    delta=1e-5,
    bytes_out=4_640,
    slots_made=2,
    slots_not_planned=(LeftOut("residual_report, window 1", "signal-to-noise: too few"),),
    releases=(
        Released("residual_report", 0, 4.5, 0.2, 4_000),
        Released("tangent_update", 0, 20.5, 0.9876, 640),
    ),
    lost=(),
    q_error=QErrors(local=1.51, base=2.22, shared=2.03, personalized=1.33),
    coverage=0.91,
    held_out=120,
    model_version=3,
    fingerprint="AB12 CD34",
)

CEDAR = replace(ALDER, name="cedar", size_class="small", executions=310, workloads=300)

CHOICE = ChoiceResult(
    organization="birch",
    family="credit",
    rows=300_000,
    operators=("file_source", "join", "ml_train"),
    platforms=("duckdb", "duckdb", "sklearn"),
    method=Method.BEAM,
    plans_scored=812,
    predicted_seconds=0.41,
    interval=(0.25, 0.68),
    level=0.9,
    extrapolating=False,
    measured_seconds=0.444,
    single={"duckdb": PlatformTime(0.7, 0.777), "pandas": PlatformTime(0.9, None)},
)

SUMMARY = DemoSummary(
    seed=7,
    organizations=(ALDER, CEDAR),
    start_error=2.111,
    rounds=(
        RoundSummary(1, "new_version", 2, 2, {}, 20.1, 2, 1.999),
        RoundSummary(2, "no_quorum", 2, 1, {"missing": 1}, 22.0, None, None),
    ),
    versions=(
        VersionSummary(1, "promoted", "the start", 2.111),
        VersionSummary(2, "candidate", "waits for the next window's reports", 1.999),
    ),
    windows=2,
    window_seconds=24.0,
    choice=CHOICE,
    seconds={"histories": 1.0, "rounds": 48.0},
    provenance={"versions": {"fedperf": "0.1.0"}, "seed": 7},
)
