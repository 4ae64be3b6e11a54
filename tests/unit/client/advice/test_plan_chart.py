"""Charts of advice: every operator is drawn, and named if there is room."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_engines.advice.constraints import PlanConstraints
from fedperf_engines.advice.presentation import draw_advice
from fedperf_shared.errors import StorageError
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import OperatorKind
from tests.unit.client.advice.jobs import DUCKDB, FOUR_CORES, POLARS, advised, job, operator

WISHES = PlanConstraints((DUCKDB, POLARS))


def chain(length: int) -> Workflow:
    filters = (operator(OperatorKind.FILTER, before) for before in range(length - 1))
    return Workflow((operator(OperatorKind.FILE_SOURCE), *filters))


def drawn(path: Path, length: int) -> str:
    sizes = [replace(FOUR_CORES, cores=each) for each in (1, 4)]
    draw_advice(path, advised(lambda _: 1.0, WISHES, sizes=sizes, what=job(chain(length))))
    return path.read_text()


def test_plan_chart_names_operators_plans_and_sizes(tmp_path: Path) -> None:
    text = drawn(tmp_path / "advice.html", 4)
    for words in ("#0 file source", "#3 filter", "chosen", "1 core, chosen", "4 cores", "polars"):
        assert words in text
    assert "<script" not in text


@pytest.mark.slow
def test_plan_chart_with_many_operators_draws_unnamed_dots(tmp_path: Path) -> None:
    few, many = (drawn(tmp_path / f"{length}.html", length) for length in (62, 90))
    assert "#0 file source" not in few + many
    assert many.count("<use") > few.count("<use")


def test_plan_chart_that_cannot_be_written_raises_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write the chart"):
        drawn(tmp_path / "nowhere" / "advice.html", 2)
