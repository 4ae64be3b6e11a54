"""Tests of pretrained intervals: their width by platform, wider outside the training data."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model import pretrained
from fedperf_shared.model.pretrained import (
    UNMEASURED_MACHINE,
    PretrainedWidth,
    estimates_half_width,
    pretrained_half_width,
    shipped_widths,
    write_widths,
)
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform
from tests.fakes.plans import ONE_CORE, diamond

MEASURED = replace(ONE_CORE, machine_speed=0.9)
QUESTION = PlanOnCluster(diamond(), MEASURED)
ROWS = QUESTION.plan.workflow.source_rows


def test_shipped_interval_widths_cover_every_platform_and_are_within_bounds() -> None:
    assert set(shipped_widths()) == set(Platform)
    for width in shipped_widths().values():
        assert math.log(1.1) < width.half_width < math.log(100)


def test_pretrained_half_width_of_multi_platform_plan_is_the_widest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = {platform: PretrainedWidth(1.0 + platform / 10) for platform in Platform}
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: widths)
    workflow = QUESTION.plan.workflow
    platforms = [Platform.DUCKDB] * (len(workflow.operators) - 1) + [Platform.SPARK]
    mixed = replace(QUESTION, plan=Plan(workflow, tuple(platforms)))
    assert pretrained_half_width(mixed) == widths[Platform.SPARK].half_width


def test_pretrained_half_width_adds_extrapolation_error_in_quadrature() -> None:
    inside = PretrainedWidth(3.0, 2.0, most_rows=ROWS, most_cores=1)
    assert inside.at(QUESTION) == 3.0
    assert replace(inside, most_rows=ROWS / 100).at(QUESTION) == 5.0
    more_cores = replace(QUESTION, cluster=replace(MEASURED, cores=100))
    assert inside.at(more_cores) == 5.0


def test_pretrained_half_width_of_unmeasured_machine_adds_factor_of_three() -> None:
    unknown = pretrained_half_width(replace(QUESTION, cluster=ONE_CORE))
    assert unknown**2 - pretrained_half_width(QUESTION) ** 2 == pytest.approx(math.log(3) ** 2)
    assert math.exp(UNMEASURED_MACHINE) == pytest.approx(3)


def test_pretrained_half_width_adds_error_of_estimated_cardinalities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = dict.fromkeys(Platform, PretrainedWidth(3.0, of_estimates=4.0, of_other_estimates=7.0))
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: widths)
    before = replace(QUESTION, plan=plan_with_estimated_cardinalities(QUESTION.plan))
    assert (estimates_half_width(before), pretrained_half_width(before)) == (4.0, 5.0)
    assert (estimates_half_width(QUESTION), pretrained_half_width(QUESTION)) == (0.0, 3.0)
    *operators, sink = before.plan.workflow.operators
    of_text = replace(sink, operator_class=OperatorClass.TEXT)
    workflow = replace(before.plan.workflow, operators=(*operators, of_text))
    text = Plan(workflow, before.plan.platforms)
    assert estimates_half_width(replace(before, plan=text)) == 7.0


@pytest.mark.parametrize("number", [math.nan, -1.0, math.inf])
def test_pretrained_width_with_invalid_numbers_is_refused(number: float) -> None:
    with pytest.raises(InvalidInputError):
        PretrainedWidth(per_decade=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(of_estimates=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(of_other_estimates=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(most_rows=-abs(number))


def test_pretrained_widths_written_to_file_load_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "widths.json"
    monkeypatch.setattr(pretrained, "WIDTHS_PATH", path)
    width = PretrainedWidth(1.5, 0.25, 3e7, 2.0, of_estimates=0.75, of_other_estimates=1.5)
    try:
        write_widths({Platform.SPARK: width}, path)
        assert shipped_widths()[Platform.SPARK] == width
        assert shipped_widths()[Platform.PANDAS] == PretrainedWidth()
    finally:
        shipped_widths.cache_clear()
