"""Texts and tables about advice and about its measured runs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedperf_client.formatting.facts import texts_of, without_empty
from fedperf_engines.advice.advice import Advice, MeasuredChoice, runnable_alternatives
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.job import Job
from fedperf_engines.advice.presentation import (
    advice_facts,
    deadline_sentence,
    evidence_sentence,
    headline,
    legend,
    measured_rows,
    no_difference,
    outcome,
    plan_rows,
    size_rows,
)
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from tests.unit.client.advice.jobs import (
    DUCKDB,
    FOUR_CORES,
    PANDAS,
    POLARS,
    SPARK,
    advised,
    job,
    learning,
)

COLD = PlanConstraints((DUCKDB, POLARS))
SECONDS = {DUCKDB: 1.0, POLARS: 2.0, SPARK: 4.0}


def size_lines(found: Advice) -> list[dict[str, object]]:
    return [texts_of(each) for each in without_empty(size_rows(found))]


def seconds(question: PlanOnCluster) -> float:
    used = set(question.plan.platforms)
    return SECONDS[next(iter(used))] if len(used) == 1 else 3.0


def test_headline_gives_platform_time_interval_and_startup() -> None:
    told = headline(advised(seconds, COLD))
    assert told.startswith("recommended: duckdb with 4 cores: 1.1 s, 90% interval ")
    assert told.endswith("; 100 ms of it to start")
    warm = headline(advised(seconds, replace(COLD, warm=frozenset({DUCKDB}))))
    assert warm.startswith("recommended: duckdb with 4 cores: 1 s, ")
    assert "to start" not in warm


def mixed_by(share: float) -> Callable[[PlanOnCluster], float]:
    """Return a predictor for a job that takes 1 s on Polars, its current platform.

    DuckDB saves `share` of it. A mixed plan takes 3 s.
    """

    def taking(question: PlanOnCluster) -> float:
        platforms = question.plan.platforms
        whole = 1.0 if set(platforms) == {POLARS} else 3.0
        return 1.0 - share if platforms == (DUCKDB,) * len(platforms) else whole

    return taking


@pytest.mark.parametrize(("share", "is_open"), [(0.01, True), (0.5, False)])
def test_indistinguishable_current_plan_is_recommended_over_the_fastest(
    share: float, is_open: bool
) -> None:
    wishes = replace(COLD, warm=frozenset({DUCKDB, POLARS}))
    found = advised(mixed_by(share), wishes, what=job(today=POLARS))
    assert set(found.choice.plan.platforms) == {DUCKDB}
    told, facts = no_difference(found), advice_facts(found, [])["compared"]
    assert isinstance(facts, dict)
    assert facts["platforms"] == ["polars"] * 6
    assert facts["no_difference"] is is_open
    assert (facts["chance_choice_is_faster"] < 0.75) is is_open
    if is_open:
        assert str(told).startswith(
            "not distinguishable: the current plan takes 1 s, 90% interval 827 ms to 1"
        )
        assert str(told).endswith("so take the current one")
        assert headline(found).startswith(
            "recommended: keep the current platforms; fastest by prediction: duck"
        )
    else:
        assert told is None


@pytest.mark.parametrize(("mixed", "is_open"), [(0.99, True), (0.5, False)])
def test_indistinguishable_simpler_plan_is_recommended_over_the_mixed_one(
    mixed: float, is_open: bool
) -> None:
    def taking(question: PlanOnCluster) -> float:
        used = set(question.plan.platforms)
        return mixed if len(used) > 1 else 1.0 if used == {POLARS} else 5.0

    found = advised(taking, replace(COLD, warm=frozenset({DUCKDB, POLARS})))
    assert len(set(found.choice.plan.platforms)) == 2
    told = str(no_difference(found))
    assert told.endswith("so take the simpler one") is is_open
    begins = "recommended: polars, which is simpler; fastest by prediction: duckdb ("
    assert headline(found).startswith(begins if is_open else "recommended: duckdb (")
    assert (found.advised is not found.choice) is is_open
    assert found.advised in runnable_alternatives(found, all_of_them=False) or not is_open
    both = [MeasuredChoice(2.0, plan=found.choice), MeasuredChoice(1.0, plan=found.advised)]
    lines = [texts_of(each) for each in (*plan_rows(found), *measured_rows(both, found))]
    chosen = {str(each["plan"]) for each in lines if "chosen" in str(each["plan"])}
    assert chosen == {"polars (chosen)" if is_open else "chosen"}
    if is_open:
        assert outcome(both, found) == (
            "the advised plan was the fastest; the next took 2.00 times as long"
        )


def test_current_plan_on_excluded_platform_is_not_recommended() -> None:
    nearly = {DUCKDB: 0.99, PANDAS: 5.0}

    def taking(question: PlanOnCluster) -> float:
        platforms = set(question.plan.platforms)
        return nearly.get(platforms.pop(), 1.0) if len(platforms) == 1 else 9.0

    without_polars = replace(COLD, platforms=(DUCKDB, PANDAS), warm=frozenset({DUCKDB, PANDAS}))
    found = advised(taking, without_polars, what=job(today=POLARS))
    assert found.rivalry is not None
    assert set(found.rivalry.plan.plan.platforms) == {PANDAS}
    assert no_difference(found) is None
    nearly[PANDAS] = 1.0
    told = str(no_difference(advised(taking, without_polars, what=job(today=POLARS))))
    assert told.endswith("so take either")


def test_choice_equal_to_current_plan_has_no_rival() -> None:
    found = advised(seconds, COLD, what=job(today=DUCKDB))
    assert found.rivalry is None
    assert no_difference(found) is None
    assert advice_facts(found, [])["compared"] is None


def test_advice_facts_include_evidence_of_the_prediction() -> None:
    found = advised(seconds, COLD)
    assert evidence_sentence(found) == "evidence: own jobs of its kind"
    assert advice_facts(found, [])["evidence"] == "own jobs of its kind"


@pytest.mark.parametrize(
    ("deadline", "says"),
    [
        (60.0, "meets 60 s at the fewest core-seconds, with a probability of 9"),
        (
            0.5,
            "no size of the query meets 500 ms with a probability of 90%; the most ",
        ),
    ],
)
def test_deadline_sentence_gives_probability_for_met_and_missed_deadline(
    deadline: float, says: str
) -> None:
    assert str(deadline_sentence(advised(seconds, COLD, deadline_seconds=deadline))).startswith(
        says
    )
    assert deadline_sentence(advised(seconds, COLD)) is None


def test_plan_rows_show_slowdown_of_each_rival_and_mark_the_current_plan() -> None:
    found = advised(seconds, PlanConstraints((DUCKDB, SPARK)), what=job(today=SPARK))
    lines = [texts_of(each) for each in plan_rows(found)]
    assert [lines[0]["plan"], lines[0]["slower"]] == ["chosen", "1.00x"]
    [today] = [line for line in lines if line["remarks"] == "runs today"]
    assert (today["plan"], today["time"], today["start"]) == ("spark", "18 s", "14 s")
    assert today["slower"] == f"{18 / 1.1:.2f}x"


def test_size_rows_mark_the_choice_and_show_nodes_only_where_they_differ() -> None:
    sizes = [replace(FOUR_CORES, cores=each) for each in (1, 4)]
    lines = size_lines(advised(seconds, COLD, sizes=sizes, deadline_seconds=60.0))
    assert [line[""] for line in lines] == ["->", " "]
    assert [line["core s"] for line in lines] == ["1.1", "4.4"]
    assert str(lines[0]["deadline"]).startswith("on time, ")
    assert "nodes" not in lines[0]
    several = [*sizes, replace(FOUR_CORES, nodes=2)]
    assert [line["nodes"] for line in size_lines(advised(seconds, COLD, sizes=several))] == [
        1,
        1,
        2,
    ]


def test_size_rows_mark_sizes_with_fixed_partitions() -> None:
    operators = tuple(replace(each, partitions=200) for each in learning().operators)
    what = Job(Plan.on_one_platform(Workflow(operators), DUCKDB), FOUR_CORES)
    found = advised(seconds, COLD, sizes=[replace(FOUR_CORES, cores=2), FOUR_CORES], what=what)
    lines = size_lines(found)
    assert [line["remarks"] for line in lines] == ["with its partitions", ""]
    assert [line["fixed_partitions"] for line in advice_facts(found, [])["sizes"]] == [True, False]  # type: ignore[attr-defined]
    assert "remarks" not in size_lines(advised(seconds, COLD))[0]


def test_extrapolating_prediction_is_marked_and_explained_in_legend() -> None:
    sure, unsure = advised(seconds, COLD), advised(seconds, COLD, inside=False)
    assert legend(sure) is None
    assert str(legend(unsure)).startswith("* extrapolating")
    assert headline(unsure).endswith(" *; 100 ms of it to start")
    assert advice_facts(unsure, [])["choice"]["extrapolating"]  # type: ignore[index]


def runs(*measured: float | None) -> tuple[str, list[dict[str, object]]]:
    """Return outcome text and rows for the choice (DuckDB) and its rivals.

    `measured` holds their seconds, None for a failed run.
    """
    found = advised(
        seconds, PlanConstraints((DUCKDB, POLARS, PANDAS), warm=frozenset({DUCKDB, POLARS}))
    )
    plans = [found.choice, *(each for each in found.rivals if each is not found.choice)]
    ran = [
        MeasuredChoice(took, "" if took else "out of memory", plan=plan)
        for plan, took in zip(plans, measured, strict=False)
    ]
    return outcome(ran, found), [texts_of(each) for each in measured_rows(ran, found)]


SECONDS |= {PANDAS: 9.0}


@pytest.mark.parametrize(
    ("measured", "says", "texts"),
    [
        (
            (1.0, 1.5, 3.0),
            "the advised plan was the fastest; the next took 1.50 times as long",
            [("1 s", True), ("1.5 s", False), ("3 s", True)],
        ),
        (
            (3.0, 2.0, 4.0),
            "polars was the fastest, 2 s; the advised plan took 1.50 times as long",
            [("3 s", False), ("2 s", True), ("4 s", False)],
        ),
        (
            (1.0, None),
            "only the advised plan ended well",
            [("1 s", True), ("out of memory", None)],
        ),
        ((1.0,), "the advised plan ran alone", [("1 s", True)]),
        (
            (None, 1.0),
            "the advised plan did not end well: out of memory",
            [("out of memory", None), ("1 s", False)],
        ),
        ((None, None), "no plan ended well", [("out of memory", None)] * 2),
    ],
)
def test_outcome_names_fastest_measured_plan_and_its_ratio(
    measured: tuple[float | None], says: str, texts: list[tuple[str, bool | None]]
) -> None:
    told, lines = runs(*measured)
    assert told == says
    assert [line["plan"] for line in lines][:2] == ["chosen", "polars"][: len(lines)]
    assert [(line["measured"], line["in the interval"]) for line in lines] == texts
