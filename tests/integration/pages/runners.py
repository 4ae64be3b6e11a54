"""Table of the tests that run each command line of the pages, and substitutes for examples."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.pages.usage import is_name, is_whole
from tests.pages import ENGINEER, OFFICER, OPERATOR, README, RESEARCHER, CommandLine, lines_of

WALKED = (README, ENGINEER, OFFICER, OPERATOR, RESEARCHER)
"""Pages whose command lines a test runs in their order."""

STAND_INS = (
    # places and files (a file that a page shows is copied from the page)
    ("/var/log/spark-events", "spark-events"),
    ("coordinator.example", "127.0.0.1"),
    ("--out FILE", "--out calendar.toml"),
    ("--out DIR", "--out out"),
    ("replay DIRECTORY", 'replay "$FEDPERF_SERVER_DIRECTORY"'),
    # values that only a running system has: variables of `shell.Shell`
    ("fedperf://HOST:PORT/#...", "$JOIN_URL"),
    ("runs delete f003b", "runs delete $SPARE"),
    ("f003b", "$EXECUTION"),
    ("show 42a", "show $EXECUTION"),
    ("release show report-3-0", "release show $LEFT"),
    ("report-3-0", "$COMING"),
    # days within the calendar and the synthetic logs
    ("--joining-day 2026-12-01", "--joining-day $TODAY"),
    ("2026-11-20", "2025-06-17"),
    # smaller inputs for slow commands, and a deadline that is met
    ("rows=3.2M", "rows=320k"),
    ("--cores 64,128,256", "--cores 1,2,4"),
    ("--deadline 3m", "--deadline 30m"),
    ("--deadline 10s", "--deadline 30m"),
    ("--executions 100", "--executions 12"),
    ("fedperf simulate", "fedperf simulate --members 1"),
)


@dataclass(frozen=True, slots=True)
class Walk:
    """The page's own test runs the line, in order, with these additional options."""

    options: str = ""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Dedicated tests run the line, or the functions that it calls."""

    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ByCi:
    """`make check` in CI runs the line, or checks the result it would have."""


Runner = Walk | Elsewhere | ByCi


def run_by(*names: str) -> Elsewhere:
    """Return tests by file below `tests/` and prefix of the test name."""
    return Elsewhere(tuple(f"tests/{each}" for each in names))


QUICK = Walk("--quick")
ONE_WORKLOAD = Walk("--quick --workloads 1")
EXPERIMENTS = "unit/simulations/experiments"
INTERVALS = f"{EXPERIMENTS}/intervals"
PARTS = (
    *("experiment", "at_home", "deadlines", "repeats"),
    *("own_runs", "scale_outs", "spark_logs", "sql_queries", "unknown_kinds", "unrelated"),
)
DEMO = run_by("unit/simulations/demo/test_demo.py::test_demo_command_runs_all_three_parts_")
PLATFORMS = "integration/simulations/test_platform_choice.py"
FLOWER = (
    "integration/federation/test_flower_engine.py::"
    "test_flwr_run_gives_same_candidates_as_rounds_in_memory"
)
ADDRESSES = "integration/sources/test_addresses.py"
MEASURED = "unit/simulations/corpus"

RUNNERS: Mapping[str, Runner] = {
    "fedperf": Walk(),
    "fedperf-server": Walk(),
    "mkdir": Walk(),
    "python": Walk(),
    "python -m tests.unit.client.prediction.cached_predictions": run_by(
        "unit/client/prediction/test_cached_predictions.py::test_"
    ),
    "export": Walk(),
    "make demo": DEMO,
    "make install": ByCi(),
    "make test": ByCi(),
    "make check": ByCi(),
    "make map": run_by("unit/test_map.py::test_module_map_lists_every_module_with_a_sentence"),
    "make contracts": ByCi(),
    "make proto": ByCi(),
    "pip install --constraint constraints.txt --editable '.[sim]'": ByCi(),
    "flwr run simulations/flower_app": run_by(FLOWER),
    "fedperf advise --platforms arrow,duckdb": run_by(
        "unit/test_guides.py::test_guide_engine_filters_deduplicates_and_sorts"
    ),
    "fedperf ingest 's3://logs/prod?region=eu-west-1'": run_by(
        f"{ADDRESSES}::test_logs_in_a_store_are_stored_and_diagnosed_as_local_ones"
    ),
    "fedperf diagnose http://history.example:18080/history/app-20261128-0001": run_by(
        "unit/client/sources/test_history_server.py::test_diagnose_of_an_application_",
        f"{ADDRESSES}::test_history_server_of_pyspark_",
    ),
    "fedperf-sim demo": DEMO,
    "fedperf-sim list": Walk(),
    "fedperf-sim run NAME": run_by(
        "integration/pages/test_researcher_page.py::test_command_of_researcher_page_"
    ),
    "fedperf mcp": run_by("unit/client/commands/test_assistant.py::test_every_tool_"),
    "fedperf-sim verify": run_by(
        "unit/simulations/test_cli.py::test_verify_command_detects_an_edited_value_"
    ),
    "fedperf-sim reproduce --quick": run_by(
        "unit/simulations/test_cli.py::test_reproduce_command_prints_a_table_writes_a_page_and_sets_exit_code",
        "unit/simulations/harness/test_reproduction.py::test_",
    ),
    "fedperf-sim replay": run_by(
        "integration/pages/test_operator_page.py::test_commands_of_operator_page_"
    ),
    "fedperf-sim run privacy_audit": QUICK,
    "fedperf-sim run first_release": QUICK,
    "fedperf-sim run public_start": QUICK,
    "fedperf-sim run report_channel": run_by(
        f"{EXPERIMENTS}/test_report_channel.py::test_quick_report_channel_run_"
    ),
    "fedperf-sim run joining_gain": run_by(
        f"{EXPERIMENTS}/joining_gain/test_experiment.py::test_quick_gain_run_"
    ),
    "fedperf-sim run intervals": run_by(*(f"{INTERVALS}/test_{part}.py::test_" for part in PARTS)),
    "fedperf-sim run private_training": run_by(
        f"{EXPERIMENTS}/test_private_training.py::test_quick_private_training_run_"
    ),
    "fedperf-sim run profiling_models": run_by(
        f"{EXPERIMENTS}/test_profiling_models.py::test_quick_profiling_run_"
    ),
    "fedperf-sim run campaigns": run_by(
        f"{EXPERIMENTS}/campaigns/test_replay.py::test_quick_campaign_run"
    ),
    "fedperf-sim run scale": run_by(
        f"{EXPERIMENTS}/test_scale.py::test_scale_year_of_three_organizations_releases_as_scheduled",
        FLOWER,
    ),
    "fedperf-sim run platform_choice": run_by(
        f"{PLATFORMS}::test_platform_choice_fills_every_part_"
    ),
    "fedperf-sim run drift": run_by(
        f"{EXPERIMENTS}/drift/test_experiment.py::test_quick_drift_run_"
    ),
    "fedperf-sim run private_sharing": run_by(
        f"{EXPERIMENTS}/private_sharing/test_experiment.py::test_quick_private_sharing_run_"
    ),
    "fedperf-sim bench optimizer": run_by(
        f"{EXPERIMENTS}/optimizer/test_experiment.py::test_quick_optimizer_benchmark_"
    ),
    "fedperf-sim bench prediction": run_by(
        f"{EXPERIMENTS}/test_prediction.py::test_quick_prediction_benchmark_"
    ),
    "fedperf-sim bench ingest": run_by(
        f"{EXPERIMENTS}/ingest/test_experiment.py::test_quick_ingest_benchmark_"
    ),
    "fedperf-sim bench store": QUICK,
    "fedperf-sim measure": ONE_WORKLOAD,
    "fedperf-sim measure --out DIR --comparisons": run_by(f"{PLATFORMS}::measured"),
    "fedperf-sim measure --out DIR --train-only": run_by(f"{PLATFORMS}::measured"),
    "fedperf-sim measure --out DIR --sessions": run_by(
        "unit/simulations/commands/test_measured_set.py::test_measure_sessions_command_"
    ),
    "fedperf-sim fit-coefficients": run_by(
        f"{MEASURED}/test_cost_coefficients.py::test_shipped_cost_coefficients_equal_"
    ),
    "fedperf-sim train-base": run_by(
        f"{MEASURED}/test_pretraining.py::test_",
        f"{MEASURED}/test_shipped_surrogate.py::test_",
    ),
    "fedperf-sim calibrate-intervals": run_by(
        f"{MEASURED}/test_pretrained_widths.py::test_interval_widths_match_errors_"
    ),
}
"""Runners by prefix of the line. The longest matching prefix counts.

Lines that change the package itself (cost coefficients, pretrained models, intervals) are not
run. Their tests call the same functions and write elsewhere.
"""


class NoRunnerError(LookupError):
    """Raised for a line of a page that no test runs."""

    def __init__(self, line: CommandLine) -> None:
        super().__init__(f"{line}: nobody runs it; give it a runner in {Path(__file__).name}")


def entry_of(line: CommandLine) -> str:
    """Return the line's key in the table.

    Raises:
        NoRunnerError: The table has no runner for the line.
    """
    found = [each for each in RUNNERS if f"{line.text} ".startswith(f"{each} ")]
    if not found:
        raise NoRunnerError(line)
    return max(found, key=len)


def runner_of(line: CommandLine) -> Runner:
    """Return the runner of the line. Errors are those of `entry_of`."""
    return RUNNERS[entry_of(line)]


def with_stand_ins(text: str) -> str:
    """Return the line with substitutes for its examples."""
    for made_up, real in STAND_INS:
        text = text.replace(made_up, real)
    return text


PLACEHOLDER = re.compile(r"(?<![$\w])[A-Z]+\b|\.\.\.|\[")
"""Text that no command accepts literally: `DIR`, `PATH...`, `[--json]`. Variables are accepted."""


def to_be_run(line: CommandLine) -> str | None:
    """Return the line as its page's test runs it, or None if that test does not run it.

    Code in prose that only names a command, or is incomplete, is not run.
    """
    runner, text = runner_of(line), with_stand_ins(line.text)
    if not isinstance(runner, Walk):
        return None
    if line.in_prose and (PLACEHOLDER.search(text) or is_name(line) or not is_whole(line)):
        return None
    return f"{text} {runner.options}".strip()


def walk(*pages: Path) -> Iterator[str]:
    """Yield the lines that the test of these pages runs, in order and without duplicates.

    The test of the researcher's page runs experiments, on whichever page they are.
    """
    lines = (line for page in pages for line in lines_of(page))
    own = (line for line in lines if RESEARCHER in pages or line.words[0] != "fedperf-sim")
    yield from dict.fromkeys(text for line in own if (text := to_be_run(line)) is not None)
