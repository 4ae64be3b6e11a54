"""Reasons for advice: they quote the figures and are omitted where the figures give none."""

from dataclasses import replace

import pytest

from fedperf_client.prediction.ensemble.training_data import TrainingSupport
from fedperf_engines.advice import presentation
from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.presentation import explain, numbers_text, platforms_text
from fedperf_engines.platforms.engine import ENGINES
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.runtime.quantities import duration_text
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind
from tests.unit.client.advice.jobs import (
    ALL,
    DUCKDB,
    FOUR_CORES,
    PANDAS,
    POLARS,
    SKLEARN,
    SPARK,
    advised,
    job,
    learning,
    operator,
)
from tests.unit.client.prediction.synthetic import support_up_to

MIXED = (DUCKDB, DUCKDB, DUCKDB, DUCKDB, SKLEARN, SKLEARN)
WARM = frozenset(ALL)
ANY_SIZE = TrainingSupport({})


def a_second_for_every_operator_elsewhere(question: PlanOnCluster) -> float:
    return 0.5 + sum(a is not b for a, b in zip(question.plan.platforms, MIXED, strict=True))


def test_explain_compares_each_group_with_its_best_alternative_platform() -> None:
    found = advised(
        a_second_for_every_operator_elsewhere,
        PlanConstraints(ALL[:4], warm=WARM),
        what=replace(job(), today=Plan(learning(), MIXED)),
    )
    assert found.choice.plan.platforms == MIXED
    told = explain(found, ANY_SIZE, all_platforms=False)
    assert told[0].startswith("4 operators (#0-3) on duckdb: 500 ms in all instead of 4.5 s with ")
    assert told[1].startswith("#4 ml train, #5 sink on sklearn: 500 ms in all instead of 2.5 s ")
    [row] = [at for at, edge in enumerate(found.job.workflow.edges) if edge == (3, 4)]
    columns = found.costs.platforms.index(DUCKDB), found.costs.platforms.index(SKLEARN)
    seconds = duration_text(float(found.costs.transfer_seconds[row][columns]))
    assert told[2] == (
        f"moving 20.0 MB from duckdb to sklearn costs about {seconds} by the additive "
        "costs, and saves 2 s in all"
    )
    assert len(told) == 3


def test_explain_is_empty_where_alternatives_are_equally_fast() -> None:
    found = advised(lambda _: 1.0, PlanConstraints(ALL[:3], warm=WARM))
    assert explain(found, ANY_SIZE, all_platforms=False) == []


def test_explain_gives_bytes_for_platform_excluded_by_memory() -> None:
    small = replace(FOUR_CORES, memory_bytes=200_000_000)
    found = advised(
        lambda _: 1.0, PlanConstraints((DUCKDB, POLARS, PANDAS), warm=WARM), sizes=[small]
    )
    [told] = explain(found, ANY_SIZE, all_platforms=False)
    assert told == (  # pandas needs ten times the 40 MB read, polars needs 120 MB
        "memory: pandas would need about 400.0 MB of 200.0 MB for #0 file source "
        "(--memory pandas=... if it has more)"
    )


def test_explain_names_startup_longer_than_the_whole_choice() -> None:
    found = advised(
        lambda _: 1.0, PlanConstraints((DUCKDB, PANDAS, SPARK), warm=frozenset({DUCKDB}))
    )
    assert found.choice.plan.platforms == (DUCKDB,) * 6
    told = explain(found, ANY_SIZE, all_platforms=False)
    assert told[-1] == (
        "starting would take longer than the choice in all: spark 14 s "
        "(--warm spark where running already)"
    )
    assert told[0] == "everything on duckdb: 1 s in all instead of 1.35 s with pandas there"


def test_explain_names_uninstalled_platforms_only_if_all_were_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(presentation, "installed_platforms", lambda: (DUCKDB, PANDAS))
    found = advised(lambda _: 1.0, PlanConstraints((DUCKDB, PANDAS, SPARK), warm=WARM))
    left_out = (each.name.lower() for each in ENGINES if each not in (DUCKDB, PANDAS, SPARK))
    assert explain(found, ANY_SIZE, all_platforms=True) == [
        f"{', '.join(left_out)} left out: not installed"
    ]
    assert explain(found, ANY_SIZE, all_platforms=False) == []


def test_platforms_text_names_a_plan_by_its_differences() -> None:
    mixed, chosen = Plan(learning(), MIXED), Plan.on_one_platform(learning(), POLARS)
    assert platforms_text(chosen) == platforms_text(chosen, mixed) == "polars"
    assert platforms_text(mixed) == "duckdb (#0-3), sklearn (#4-5)"
    other = Plan(learning(), (DUCKDB, POLARS, DUCKDB, POLARS, SKLEARN, SKLEARN))
    assert platforms_text(other, mixed) == "but #1, #3 on polars"
    assert numbers_text([7, 1, 2, 4]) == "#1-2, #4, #7"


def test_explain_warns_of_platform_that_only_ran_much_smaller_jobs() -> None:
    found = advised(lambda _: 1.0, PlanConstraints((DUCKDB,), warm=WARM))
    [told] = explain(found, support_up_to({DUCKDB: 1000.0, PANDAS: 1e9}), all_platforms=False)
    assert told == (
        "careful: duckdb ran jobs of up to 1,000 source rows here, this one has 1,100,000; "
        "try it before you rely on it"
    )
    for near in (support_up_to({DUCKDB: 1e6}), support_up_to({PANDAS: 1.0})):
        assert explain(found, near, all_platforms=False) == []


def test_explain_gives_cost_of_the_fastest_size() -> None:
    sizes = [replace(FOUR_CORES, cores=each) for each in (1, 2, 4)]

    def seconds(question: PlanOnCluster) -> float:
        return {1: 2.0, 2: 1.05, 4: 1.0}[question.cluster.cores]

    found = advised(seconds, PlanConstraints((DUCKDB,), warm=WARM), sizes=sizes)
    assert found.best.cluster.cores == 2
    told = explain(found, ANY_SIZE, all_platforms=False)
    assert told == ["4 cores would take 1 s, 5% less, for 1.9 times the core-seconds"]
    assert explain(replace(found, best=found.sizes[2]), ANY_SIZE, all_platforms=False) == []


def test_explain_claims_no_saving_where_several_groups_read_the_moved_data() -> None:
    kinds = OperatorKind
    split = Workflow(
        (operator(kinds.FILE_SOURCE), operator(kinds.FILTER, 0), operator(kinds.FILTER, 0))
    )
    best = (DUCKDB, POLARS, POLARS)

    def seconds(question: PlanOnCluster) -> float:
        return 0.5 + sum(a is not b for a, b in zip(question.plan.platforms, best, strict=True))

    here = replace(job(split), today=Plan(split, best))
    found = advised(seconds, PlanConstraints((DUCKDB, POLARS), warm=WARM), what=here)
    assert found.choice.plan.platforms == best
    [moving] = [told for told in explain(found, ANY_SIZE, all_platforms=False) if "mov" in told]
    assert moving.startswith("moving 40.0 kB from duckdb to polars costs about ")
    assert "saves" not in moving
