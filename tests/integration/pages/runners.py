"""Who runs the command lines of the pages, and what stands for what is made up in them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.pages.usage import is_name, is_whole
from tests.pages import ENGINEER, OFFICER, OPERATOR, README, RESEARCHER, CommandLine, lines_of

WALKED = (README, ENGINEER, OFFICER, OPERATOR, RESEARCHER)
"""Pages that are walked: a test runs their lines in their order."""

STAND_INS = (
    # places and files; what a page shows of a file is taken from the page
    ("/var/log/spark-events", "spark-events"),
    ("coordinator.example", "127.0.0.1"),
    ("--out FILE", "--out calendar.toml"),
    ("--out DIR", "--out out"),
    ("replay DIRECTORY", 'replay "$FEDPERF_SERVER_DIRECTORY"'),
    # what only a running system knows: variables that `shell.Shell` finds when a line has them
    ("fedperf://HOST:PORT/#...", "$JOIN_URL"),
    ("runs delete f003b", "runs delete $SPARE"),
    ("f003b", "$EXECUTION"),
    ("show 42a", "show $EXECUTION"),
    ("release show report-3-0", "release show $LEFT"),
    ("report-3-0", "$COMING"),
    # days, within the calendar and the logs that are made up
    ("--joining-day 2026-12-01", "--joining-day $TODAY"),
    ("2026-11-20", "2025-06-17"),
    # what takes long, in small; a deadline that is kept
    ("rows=3.2M", "rows=320k"),
    ("--cores 64,128,256", "--cores 1,2,4"),
    ("--deadline 3m", "--deadline 30m"),
    ("--deadline 10s", "--deadline 30m"),
    ("--executions 100", "--executions 12"),
    ("fedperf simulate", "fedperf simulate --members 1"),
)


@dataclass(frozen=True, slots=True)
class Walk:
    """The test of the page runs it, in the page's order, with these options after it."""

    options: str = ""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Tests that are there for it anyway run it, or what it calls."""

    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ByCi:
    """`make check`, which is what CI runs, does it, or looks at what it would make."""


Runner = Walk | Elsewhere | ByCi


def run_by(*names: str) -> Elsewhere:
    """Tests by their files below `tests/` and how their names begin."""
    return Elsewhere(tuple(f"tests/{each}" for each in names))


QUICK = Walk("--quick")
ONE_WORKLOAD = Walk("--quick --workloads 1")
EXPERIMENTS = "unit/simulations/experiments"
INTERVALS = f"{EXPERIMENTS}/intervals"
PARTS = (
    *("experiment", "at_home", "deadlines", "repeats"),
    *("own_runs", "scale_outs", "spark_logs", "sql_queries", "unknown_kinds", "unrelated"),
)
DEMO = run_by("unit/simulations/demo/test_demo.py::test_the_demo_tells_its_three_parts_")
PLATFORMS = "integration/simulations/test_platform_choice.py"
FLOWER = (
    "integration/federation/test_flower_engine.py::"
    "test_flwr_run_gives_the_candidates_of_the_rounds_in_memory"
)
MEASURED = "unit/simulations/corpus"

RUNNERS: Mapping[str, Runner] = {
    "fedperf": Walk(),
    "fedperf-server": Walk(),
    "mkdir": Walk(),
    "python": Walk(),
    "python -m tests.unit.client.prediction.cached_answers": run_by(
        "unit/client/prediction/test_cached_answers.py::test_"
    ),
    "export": Walk(),
    "make demo": DEMO,
    "make install": ByCi(),
    "make test": ByCi(),
    "make check": ByCi(),
    "make map": run_by("unit/test_map.py::test_the_map_has_every_module_with_a_sentence"),
    "make contracts": ByCi(),
    "make proto": ByCi(),
    "pip install --constraint constraints.txt --editable '.[sim]'": ByCi(),
    "flwr run simulations/flower_app": run_by(FLOWER),
    "fedperf advise --platforms arrow,duckdb": run_by(
        "unit/test_guides.py::test_the_engine_runs_its_operations"
    ),
    "fedperf-sim demo": DEMO,
    "fedperf-sim list": Walk(),
    "fedperf-sim run NAME": run_by("integration/pages/test_researchers_lines.py::test_a_line_of_"),
    "fedperf-sim verify": run_by(
        "unit/simulations/test_cli.py::test_what_was_run_is_verified_and_an_edited_figure_ends_"
    ),
    "fedperf-sim reproduce --quick": run_by(
        "unit/simulations/test_cli.py::test_all_claims_are_a_table_a_page_and_an_exit_code",
        "unit/simulations/harness/test_reproduction.py::test_",
    ),
    "fedperf-sim replay": run_by("integration/pages/test_operators_lines.py::test_the_lines_of_"),
    "fedperf-sim run privacy_audit": QUICK,
    "fedperf-sim run first_release": QUICK,
    "fedperf-sim run public_start": QUICK,
    "fedperf-sim run report_channel": run_by(
        f"{EXPERIMENTS}/test_report_channel.py::test_a_quick_"
    ),
    "fedperf-sim run joining_gain": run_by(
        f"{EXPERIMENTS}/joining_gain/test_experiment.py::test_a_quick_run_"
    ),
    "fedperf-sim run intervals": run_by(*(f"{INTERVALS}/test_{part}.py::test_" for part in PARTS)),
    "fedperf-sim run private_training": run_by(
        f"{EXPERIMENTS}/test_private_training.py::test_a_quick_run_"
    ),
    "fedperf-sim run profiling_models": run_by(
        f"{EXPERIMENTS}/test_profiling_models.py::test_a_quick_run_"
    ),
    "fedperf-sim run campaigns": run_by(
        f"{EXPERIMENTS}/campaigns/test_replay.py::test_a_quick_run"
    ),
    "fedperf-sim run scale": run_by(
        f"{EXPERIMENTS}/test_scale.py::test_a_small_year_releases_what_its_schedules_say", FLOWER
    ),
    "fedperf-sim run platform_choice": run_by(f"{PLATFORMS}::test_every_part_has_rows_and_"),
    "fedperf-sim run drift": run_by(f"{EXPERIMENTS}/drift/test_experiment.py::test_a_quick_run_"),
    "fedperf-sim run private_sharing": run_by(
        f"{EXPERIMENTS}/private_sharing/test_experiment.py::test_a_quick_run_"
    ),
    "fedperf-sim bench optimizer": run_by(
        f"{EXPERIMENTS}/optimizer/test_experiment.py::test_the_benchmark_runs_"
    ),
    "fedperf-sim bench prediction": run_by(
        f"{EXPERIMENTS}/test_prediction.py::test_a_warm_question_is_faster_"
    ),
    "fedperf-sim bench ingest": run_by(
        f"{EXPERIMENTS}/ingest/test_experiment.py::test_the_benchmark_runs"
    ),
    "fedperf-sim bench store": QUICK,
    "fedperf-sim measure": ONE_WORKLOAD,
    "fedperf-sim measure --out DIR --comparisons": run_by(f"{PLATFORMS}::measured"),
    "fedperf-sim measure --out DIR --train-only": run_by(f"{PLATFORMS}::measured"),
    "fedperf-sim measure --out DIR --sessions": run_by(
        "unit/simulations/commands/test_measured_set.py::test_sessions_are_measured_"
    ),
    "fedperf-sim fit-coefficients": run_by(
        f"{MEASURED}/prices/test_price_fit.py::test_the_prices_that_ship_"
    ),
    "fedperf-sim train-base": run_by(
        f"{MEASURED}/starts/test_pretraining.py::test_",
        f"{MEASURED}/starts/test_shipped_surrogate.py::test_",
    ),
    "fedperf-sim calibrate-intervals": run_by(
        f"{MEASURED}/starts/test_widths.py::test_widths_are_the_errors_"
    ),
}
"""By how lines begin; of several the longest counts. Lines that change the package itself (prices,
starts, widths) are not run: the tests call what they call, and write elsewhere."""


class NoRunnerError(LookupError):
    """Nobody runs a line of a page."""

    def __init__(self, line: CommandLine) -> None:
        super().__init__(f"{line}: nobody runs it; give it a runner in {Path(__file__).name}")


def entry_of(line: CommandLine) -> str:
    """How the table calls the line.

    Raises:
        NoRunnerError: it has no runner.
    """
    found = [each for each in RUNNERS if f"{line.text} ".startswith(f"{each} ")]
    if not found:
        raise NoRunnerError(line)
    return max(found, key=len)


def runner_of(line: CommandLine) -> Runner:
    """Whoever runs the line; errors as `entry_of`."""
    return RUNNERS[entry_of(line)]


def with_stand_ins(text: str) -> str:
    """A line as it can be run."""
    for made_up, real in STAND_INS:
        text = text.replace(made_up, real)
    return text


PLACEHOLDER = re.compile(r"(?<![$\w])[A-Z]+\b|\.\.\.|\[")
"""What no command takes literally: `DIR`, `PATH...`, `[--json]`; variables are."""


def to_be_run(line: CommandLine) -> str | None:
    """The line as the walk of its page runs it; None where others do, or where nobody is to.

    Between words may stand the name of a command, or what it looks like: nothing to run.
    """
    runner, text = runner_of(line), with_stand_ins(line.text)
    if not isinstance(runner, Walk):
        return None
    if line.in_prose and (PLACEHOLDER.search(text) or is_name(line) or not is_whole(line)):
        return None
    return f"{text} {runner.options}".strip()


def walk(*pages: Path) -> Iterator[str]:
    """What the test of these pages runs, in their order; what stands there twice once.

    Experiments are run by the test of the researcher's page, wherever they are named.
    """
    lines = (line for page in pages for line in lines_of(page))
    own = (line for line in lines if RESEARCHER in pages or line.words[0] != "fedperf-sim")
    yield from dict.fromkeys(text for line in own if (text := to_be_run(line)) is not None)
