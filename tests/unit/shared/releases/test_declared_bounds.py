"""Tests of declared schedules: public bounds apply to every kind of slot."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest

from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DECLARABLE,
    DirectedParameters,
    LinearizedParameters,
    NotDeclarableError,
    Parameters,
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
    TrainingParameters,
    require_declarable,
)

HOUR = timedelta(hours=1)
PERIOD = Period(datetime(2027, 1, 1, tzinfo=UTC))


def declared(parameters: Parameters) -> Schedule:
    at_tangent = isinstance(parameters, LinearizedParameters)
    table = ReleaseCalendar(
        PERIOD,
        (SlotTimes(0 * HOUR, HOUR),),
        (SlotTimes(HOUR, 3 * HOUR),),
        ModelMethod.TANGENT if at_tangent else ModelMethod.UNSPECIFIED,
    )
    is_report = isinstance(parameters, ReportParameters | DirectedParameters)
    kind = ReleaseKind.RESIDUAL_REPORT if is_report else ReleaseKind.MODEL_UPDATE
    return Schedule(table, (Slot(SlotKey(kind, 0, 0), parameters),))


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (ReportParameters(1e-170, 3.0), "noise_multiplier"),
        (ReportParameters(1e200, 3.0), "noise_multiplier"),
        (ReportParameters(1.0, 1e6), "residual_clip"),
        (ReportParameters(1.0, 1e-9), "residual_clip"),
        (DirectedParameters(1e-160, 100.0), "noise_multiplier"),
        (DirectedParameters(1.0, 1e300), "nominal_workloads"),
        (LinearizedParameters(1e200, 100.0), "noise_multiplier"),
        (LinearizedParameters(1.0, 1e-300), "nominal_workloads"),
        (TrainingParameters(1.0, 1e-30, 1, 1.0, 100.0), "sampling_probability"),
        (TrainingParameters(1.0, 0.1, 1, 1e200, 100.0), "clip_norm"),
    ],
)
def test_declared_schedule_with_unusable_numbers_is_refused(
    parameters: Parameters, name: str
) -> None:
    with pytest.raises(NotDeclarableError, match=f"^{name} must be .* to .*, got ") as refused:
        require_declarable(declared(parameters))
    assert repr(refused.value.value) not in refused.value.rule


@pytest.mark.parametrize("end", ["least", "most"])
@pytest.mark.parametrize(
    "kind", [ReportParameters, DirectedParameters, LinearizedParameters, TrainingParameters]
)
def test_declared_schedule_at_both_ends_of_each_bound_is_accepted(
    kind: type[Parameters], end: str
) -> None:
    names = [each.name for each in fields(kind) if each.name != "public_counts"]
    values = {name: getattr(DECLARABLE[name], end) for name in names}
    require_declarable(declared(kind(**values)))
