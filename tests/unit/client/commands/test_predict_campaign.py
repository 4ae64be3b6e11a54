"""`fedperf predict --campaign`: predictions for a profiled job at given column values."""

import json
from pathlib import Path

import pytest

from fedperf_campaigns.campaign.definition import (
    WHOLE,
    journal_path,
    load_campaign,
    other_campaigns,
)
from fedperf_campaigns.campaign.journal import TrialKey, TrialOutcome, TrialStatus
from fedperf_client.formatting import progress
from fedperf_client.home.config import Home
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE
from tests.unit.client.data_directories import fedperf
from tests.unit.client.profiling.campaign.campaigns import campaign_text, write_campaign
from tests.unit.client.profiling.campaign.nightly import CAMPAIGN, with_nightly, with_trials
from tests.unit.client.terminals import on_a_terminal
from tests.unit.shared.console_programs import Ended

MORE = """
[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = [100, 200, 400]
workers = [1, 2]
platform = ["duckdb", "spark"]
cached = [false, true]
k = [7]
"""


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create("")
    return home


@pytest.fixture
def home(empty: Home) -> Home:
    return with_nightly(empty)


def rows_by_workers(rows: str, workers: str) -> str:
    columns = f"[grid.columns]\nrows = {rows}\nworkers = {workers}"
    return f'[grid]\nsize = "rows"\nparallelism = "workers"\n{columns}\n'


def ask(
    home: Home, *settings: str, campaign: object = "nightly", more: tuple[str, ...] = ()
) -> Ended:
    words = [word for each in settings for word in ("--set", each)]
    return fedperf(home, "predict", "--campaign", campaign, *words, *more)


def answers(home: Home, *settings: str, more: tuple[str, ...] = ()) -> list[dict[str, object]]:
    facts = ask(home, *settings, more=("--json", *more)).json()
    assert isinstance(facts, dict)
    return list(facts["predictions"])


def own_campaign(home: Home, grid: str, outcomes: dict[int, TrialOutcome], run: str = "") -> Path:
    """Store a campaign of this grid with these outcomes by configuration."""
    file = write_campaign(home.directory.parent, campaign_text(grid=grid, run=run))
    trials = [(TrialKey(number, WHOLE, 0), each) for number, each in outcomes.items()]
    with_trials(home, file, trials)
    return file


def took(seconds: float) -> TrialOutcome:
    return TrialOutcome(TrialStatus.OK, wall_seconds=seconds)


def test_predict_campaign_extrapolates_larger_input_within_its_interval(home: Home) -> None:
    """True law: 0.1 s, plus 0.035 s for each 10,000 rows, divided by the workers."""
    found = answers(home, "rows=3200000,workers=1,2,4")
    assert [each["columns"] for each in found] == [
        {"rows": 3_200_000, "workers": workers} for workers in (1, 2, 4)
    ]
    for each, workers in zip(found, (1, 2, 4), strict=True):
        truth = 0.1 + 320 / workers * 0.035
        assert float(str(each["p50_seconds"])) == pytest.approx(truth, rel=0.1)
        assert float(str(each["lower_seconds"])) < truth < float(str(each["upper_seconds"]))
        assert float(str(each["upper_seconds"])) < 1.6 * float(str(each["lower_seconds"]))
        assert each["extrapolating"]


def test_predict_campaign_within_the_grid_is_no_extrapolation(home: Home) -> None:
    inside, between = answers(home, "rows=400000,300000", "workers=2")
    assert [inside["regime"], between["regime"]] == ["observed", "interpolated input"]
    assert not inside["extrapolating"]
    assert not between["extrapolating"]
    assert float(str(inside["p50_seconds"])) == pytest.approx(0.82, rel=0.05)


def test_predict_campaign_text_output_shows_table_decision_and_evidence(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ended = ask(home, "rows=3200000,workers=1,2,4,8", more=("--deadline", "4s"))
    assert ended.code == 0
    for words in (
        "P50",
        "90% interval",
        "3,200,000",
        "extrapolated input, uncalibrated",
        "fewest workers that meet 4 s: 4, with a probability of",
        "evidence: 24 runs of 12 configurations; ensemble:",
        "imports and connections before the first component's start are not in the time",
        "--set is now: fedperf predict nightly --at rows=3200000,workers=1,2,4,8",
    ):
        assert words in ended.out
    assert ended.err == ""


def test_predict_campaign_by_file_equals_prediction_by_name(home: Home) -> None:
    by_name = ask(home, "rows=500000,workers=3", more=("--json",))
    by_file = ask(home, "rows=500000,workers=3", campaign=CAMPAIGN, more=("--json",))
    assert by_file.json() == by_name.json()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_predict_campaign_with_unmeetable_deadline_exits_with_its_code(
    home: Home, form: tuple[str, ...]
) -> None:
    ended = ask(home, "rows=3200000,workers=1,2", more=("--deadline", "1s", *form))
    assert ended.code == NO_FEASIBLE_SIZE
    if form:
        assert json.loads(ended.out)["cheapest_feasible"] == []
    else:
        assert (
            "no workers of the query meet 1 s with a probability of 90 %; the best: 2, < 1%"
            in ended.out
        )


def test_predict_campaign_gives_smallest_parallelism_for_each_input_size(home: Home) -> None:
    ask_for = ("rows=400000,3200000", "workers=1,2,4,8")
    ended = ask(home, *ask_for, more=("--deadline", "4s"))
    assert "rows=400,000: fewest workers that meet 4 s: 1," in ended.out
    assert "rows=3,200,000: fewest workers that meet 4 s: 4," in ended.out
    facts = ask(home, *ask_for, more=("--deadline", "4s", "--json")).json()
    assert isinstance(facts, dict)
    assert {"rows": 3_200_000, "workers": 4} in facts["cheapest_feasible"]


def test_predict_campaign_from_one_trial_uses_prior_slopes(empty: Home) -> None:
    with_nightly(empty, most=1)
    ended = ask(empty, "rows=200000,workers=1,2")
    assert ended.code == 0
    assert "evidence: 1 run of 1 configuration; ensemble: prior slopes 100%" in ended.out


def test_predict_campaign_needs_no_value_for_constant_columns(empty: Home) -> None:
    own_campaign(empty, MORE, {0: took(5.0), 5: took(6.0)})
    ended = ask(empty, "rows=400,workers=2,platform=spark,cached=true")
    assert ended.code == 0
    assert "spark" in ended.out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("rows=400,worker=2", "there is no column 'worker'; there are rows, workers, platform"),
        ("rows=400", "column workers has several values, name one or more: --at workers=1,2"),
        ("rows=4,rows=5", "'rows' is given twice"),
        ("rows=many,workers=1", "column rows holds numbers; got 'many'"),
        ("rows=nan,workers=1", "column rows holds numbers; got 'nan'"),
        ("rows=4,workers=1.5,platform=spark,cached=true", "workers counts whole units; got 1.5"),
        ("400", "'400' has no name; write values as rows=1000,workers=1,2,4"),
        ("rows=4,workers=1,platform=flink", "column platform holds duckdb,spark; got 'flink'"),
        ("rows=4,workers=1,platform=spark,cached=yes", "column cached holds false,true; got 'yes'"),
        ("rows=-4,workers=1,platform=spark,cached=true", "holds positive numbers, got -4"),
    ],
)
def test_predict_campaign_with_invalid_column_fails_in_one_line(
    empty: Home, setting: str, said: str
) -> None:
    own_campaign(empty, MORE, {0: took(5.0)})
    ended = ask(empty, setting)
    assert ended.code == 3
    assert said in ended.complaint()


def test_predict_campaign_accepts_fractions_where_the_grid_has_some(empty: Home) -> None:
    grid = rows_by_workers("[100, 200]", "[0.5, 1]")
    own_campaign(empty, grid, {0: took(5.0), 2: took(8.0)})
    assert ask(empty, "rows=150.5,workers=1.5").code == 0


def test_predict_campaign_outside_constraint_predicts_and_names_it(
    empty: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    rule = "workers <= 1 or rows >= 200"
    grid = rows_by_workers("[100, 200]", "[1, 2]").replace(
        "[grid.columns]", f'constraints = ["{rule}"]\n[grid.columns]'
    )
    own_campaign(empty, grid, {0: took(2.0), 1: took(4.0), 2: took(2.5)})
    found = answers(empty, "rows=100,200", "workers=1,2")
    broken = {(each["columns"]["rows"], each["columns"]["workers"]) for each in found  # type: ignore[index]
              if each["broken_constraint"] == rule}  # fmt: skip
    assert broken == {(100, 2)}
    ended = ask(empty, "rows=100,workers=2")
    assert f"ruled out by the campaign ({rule})" in ended.out
    assert "ruled out" not in ask(empty, "rows=200,workers=2").out


def test_predict_campaign_with_too_many_combinations_is_refused(home: Home) -> None:
    many = ",".join(map(str, range(1, 102)))
    assert "at most 100 are" in ask(home, f"rows=100000,workers={many}").complaint()


def test_predict_campaign_that_never_ran_names_the_profile_command(
    empty: Home, tmp_path: Path
) -> None:
    ended = ask(empty, "rows=1", campaign=CAMPAIGN)
    assert ended.code == 3
    assert f"has not run as {CAMPAIGN} says" in ended.complaint()
    assert f"fedperf profile {CAMPAIGN}" in ended.complaint()
    assert "no campaign of that name ran" in ask(empty, "rows=1", campaign="absent").complaint()
    with_nightly(empty)
    edited = tmp_path / "edited.toml"
    edited.write_text(CAMPAIGN.read_text().replace("repetitions = 2", "repetitions = 3"))
    hint = ask(empty, "rows=1", campaign=edited).complaint()
    assert "--campaign nightly asks about what ran under that name" in hint


def test_predict_campaign_with_only_failed_trials_is_refused(empty: Home) -> None:
    own_campaign(empty, MORE, {n: TrialOutcome(TrialStatus.FAILED, "exit code 1") for n in (0, 1)})
    ended = ask(empty, "rows=400,workers=2,platform=spark,cached=true")
    assert ended.code == 3
    assert "all 2 trials of campaign nightly failed" in ended.complaint()


def test_predict_campaign_without_outcomes_is_refused(empty: Home) -> None:
    with_trials(empty, CAMPAIGN, [])
    assert "has measured nothing yet" in ask(empty, "rows=1,workers=1").complaint()


def test_predict_campaign_with_components_alone_is_refused(empty: Home) -> None:
    own_campaign(empty, rows_by_workers("[1]", "[1]"), {}, run='components = "alone"')
    assert "measures its components alone" in ask(empty).complaint()


def test_predict_campaign_beyond_memory_failures_meets_no_deadline(
    empty: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configurations by number: rows 100, 200 and 400, each with 1 and 2 workers."""
    monkeypatch.setenv("COLUMNS", "200")
    grid = rows_by_workers("[100, 200, 400]", "[1, 2]")
    died = TrialOutcome(TrialStatus.OOM, "more than 1 GB", wall_seconds=0.5)
    own_campaign(empty, grid, {0: took(1.0), 1: took(0.6), 2: died, 3: took(1.1), 5: took(2.0)})
    found = answers(empty, "rows=100,200,800,workers=1,2", more=("--deadline", "1h"))
    problems = {
        (each["columns"]["rows"], each["columns"]["workers"])  # type: ignore[index]
        for each in found
        if each["memory_problem"]
    }
    assert problems == {(200, 1), (800, 1)}
    assert all(each["meets_deadline"] == (each["memory_problem"] is None) for each in found)
    ended = ask(empty, "rows=800,workers=1,2", more=("--deadline", "1h"))
    assert "ran out of memory at rows=200" in ended.out
    assert "fewest workers that meet 60.0 min: 2," in ended.out
    alone = ask(empty, "rows=800,workers=1", more=("--deadline", "1h"))
    assert alone.code == NO_FEASIBLE_SIZE
    assert "no configuration of the query has the memory to run" in alone.out


def test_predict_campaign_treats_timeouts_as_right_censored(empty: Home) -> None:
    grid = rows_by_workers("[100, 200, 400]", "[1]")
    late = TrialOutcome(TrialStatus.TIMEOUT, "took too long", wall_seconds=60.0)
    own_campaign(empty, grid, {0: took(1.0), 1: took(2.0), 2: late})
    [found] = answers(empty, "rows=400,workers=1")
    assert float(str(found["p50_seconds"])) > 30
    assert "1 trial failed, 1 of them by timeout" in ask(empty, "rows=400,workers=1").out


def test_predict_name_of_campaign_equals_campaign_option(home: Home) -> None:
    asked = ("--at", "rows=3200000,workers=1,2", "--json")
    named = fedperf(home, "predict", "nightly", *asked).json()
    assert named == fedperf(home, "predict", "--campaign", "nightly", *asked).json()
    assert "night does not exist" in fedperf(home, "predict", "night").complaint()


@pytest.mark.parametrize(
    "words",
    [
        ("--campaign", "nightly", "--cores", "4"),
        ("--campaign", "nightly", "--at", "rows=1,workers=1", "--platform", "spark"),
        ("--execution", "05057", "--cheapest"),
        ("--campaign", "nightly", "--execution", "05057"),
        (),
    ],
)
def test_predict_campaign_with_conflicting_options_exits_with_usage_error(
    home: Home, words: tuple[str, ...]
) -> None:
    assert fedperf(home, "predict", *words).code == 2


def test_predict_campaign_shows_progress_bar_only_on_a_terminal(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    assert ask(home, "rows=500000,workers=3").err == ""
    with on_a_terminal():
        assert "weighing predictors" in ask(home, "rows=500000,workers=3").err


@pytest.mark.slow
def test_profile_stores_private_copy_of_the_campaign_file(empty: Home) -> None:
    file = write_campaign(empty.directory.parent, campaign_text(run="repetitions = 1"))
    assert fedperf(empty, "profile", file).code == 0
    kept = journal_path(empty.directory, load_campaign(file)).with_suffix(".toml")
    assert kept.read_bytes() == file.read_bytes()
    assert kept.stat().st_mode & 0o077 == 0
    file.unlink()
    assert ask(empty, "rows=100,workers=2").code == 0
    kept.unlink()
    assert "was not kept in this home" in ask(empty, "rows=100,workers=2").complaint()


def test_predict_campaign_uses_repeat_variance_of_other_campaigns(empty: Home) -> None:
    def width() -> float:
        [found] = answers(empty, "rows=100,workers=1")
        return float(str(found["upper_seconds"])) / float(str(found["lower_seconds"]))

    grid = rows_by_workers("[100, 200]", "[1]")
    own_campaign(empty, grid, {0: took(1.0)})
    alone = width()
    other = write_campaign(
        empty.directory, campaign_text(grid=grid, run="repetitions = 12").replace("nightly", "calm")
    )
    repeats = [(TrialKey(0, WHOLE, n), took(5.0 + 0.01 * (n % 2))) for n in range(12)]
    with_trials(empty, other, repeats)
    assert 1.0 < width() < 0.9 * alone
    found = [each.name for each in other_campaigns(empty.directory, load_campaign(other))]
    assert found == ["nightly"]  # the campaign's own repeats are counted once


def test_predict_campaign_prefers_existing_file_over_campaign_name(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nightly").write_text("no TOML at all")
    assert "nightly is not TOML" in ask(home, "rows=1,workers=1").complaint()
