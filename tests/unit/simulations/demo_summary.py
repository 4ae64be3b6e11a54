"""A small demo summary for the tests of its presentation."""

from dataclasses import replace

from fedperf_simulations.demo.summary import (
    Change,
    DemoSummary,
    DriftAlarm,
    MachineResult,
    NewParticipantResult,
    OrganizationResult,
    ReleaseSummary,
    RoundSummary,
    UnscheduledSlots,
    WindowErrors,
    YearResult,
)

ALDER = OrganizationResult(
    name="alder",
    size_class="large",
    workloads=2101,
    unit="workload",
    epsilon_spent=0.9876,
    replace_one_epsilon=1.9,
    epsilon_budget=1.0,
    delta=1e-5,
    left=(ReleaseSummary("residual_report", 1, 4_000), ReleaseSummary("tangent_update", 1, 640)),
    slots_not_planned=(UnscheduledSlots("some residual_report", "signal-to-noise: too few"),),
    lost=(),
    fingerprint="AB12 CD34",
)

CEDAR = replace(
    ALDER, name="cedar", size_class="small", left=(ReleaseSummary("residual_report", 1, 4_000),)
)

BETTER = Change(-31.4, -36.2, -25.1, 200)
SAME = Change(0.8, -2.9, 4.6, 200)
WORSE = Change(12.0, 3.0, 21.0, 200)

NOTICED = DriftAlarm(
    window=4, platforms=("duckdb", "pandas"), factor=1.47, organizations=10, epoch_window=5
)

YEAR = YearResult(
    organizations=10,
    workloads=1600,
    epsilon=0.99,
    platform="Polars",
    family="credit",
    windows=tuple(WindowErrors(1.9 - 0.05 * each, 1.25, 1.5) for each in range(8)),
    cap_window=3,
    newcomer=(
        NewParticipantResult(0, None, 1.95, 1.61, 1.21, BETTER),
        NewParticipantResult(3, 3.12, 1.72, 1.58, 1.22, SAME),
    ),
    machines=(
        MachineResult("whole cores", 1.25, 1.26, SAME),
        MachineResult("half a core", 1.51, 1.37, BETTER),
    ),
    noticed=NOTICED,
    false_alarms=0,
    rehearsed=512,
    promoted=3,
    last_word="no sure gain by reports yet",
    seconds=201.5,
)

SUMMARY = DemoSummary(
    seed=7,
    year=YEAR,
    organizations=(ALDER, CEDAR),
    rounds=(RoundSummary(1, "new_version", 2, 2, {}),),
    total_seconds=312.4,
    seconds={"year": 240.0, "window": 48.0},
    provenance={"versions": {"fedperf": "0.1.0"}, "seed": 7},
)
