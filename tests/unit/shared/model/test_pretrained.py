"""What is claimed of the start that ships: by platform, wider where it was never trained."""

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


def test_every_platform_has_a_width_between_a_tenth_and_a_factor_of_a_hundred() -> None:
    assert set(shipped_widths()) == set(Platform)
    for width in shipped_widths().values():
        assert math.log(1.1) < width.half_width < math.log(100)


def test_a_plan_on_several_platforms_has_the_widest_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths = {platform: PretrainedWidth(1.0 + platform / 10) for platform in Platform}
    monkeypatch.setattr(pretrained, "shipped_widths", lambda: widths)
    workflow = QUESTION.plan.workflow
    platforms = [Platform.DUCKDB] * (len(workflow.operators) - 1) + [Platform.SPARK]
    mixed = replace(QUESTION, plan=Plan(workflow, tuple(platforms)))
    assert pretrained_half_width(mixed) == widths[Platform.SPARK].half_width


def test_errors_beyond_what_was_seen_add_as_squares_and_inside_nothing_is_added() -> None:
    inside = PretrainedWidth(3.0, 2.0, most_rows=ROWS, most_cores=1)
    assert inside.at(QUESTION) == 3.0
    assert replace(inside, most_rows=ROWS / 100).at(QUESTION) == 5.0
    more_cores = replace(QUESTION, cluster=replace(MEASURED, cores=100))
    assert inside.at(more_cores) == 5.0


def test_a_machine_that_nobody_measured_may_be_faster_or_slower_by_a_factor_of_three() -> None:
    unknown = pretrained_half_width(replace(QUESTION, cluster=ONE_CORE))
    assert unknown**2 - pretrained_half_width(QUESTION) ** 2 == pytest.approx(math.log(3) ** 2)
    assert math.exp(UNMEASURED_MACHINE) == pytest.approx(3)


def test_estimates_add_what_was_measured_of_them_and_counted_rows_nothing(
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
def test_what_is_no_width_is_refused(number: float) -> None:
    with pytest.raises(InvalidInputError):
        PretrainedWidth(per_decade=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(of_estimates=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(of_other_estimates=number)
    with pytest.raises(InvalidInputError):
        PretrainedWidth(most_rows=-abs(number))


def test_what_was_written_is_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "widths.json"
    monkeypatch.setattr(pretrained, "WIDTHS_PATH", path)
    width = PretrainedWidth(1.5, 0.25, 3e7, 2.0, of_estimates=0.75, of_other_estimates=1.5)
    try:
        write_widths({Platform.SPARK: width}, path)
        assert shipped_widths()[Platform.SPARK] == width
        assert shipped_widths()[Platform.PANDAS] == PretrainedWidth()
    finally:
        shipped_widths.cache_clear()
