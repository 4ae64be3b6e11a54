"""Tests of a small year of many organizations: its rows, and the sides charged with CPU time."""

from pathlib import Path

import pytest

from fedperf_memory.memory_federation import CpuMeter, Side
from fedperf_simulations.experiments import scale
from fedperf_simulations.harness.cells import number
from fedperf_simulations.harness.experiment import Row, Settings


def test_cpu_meter_charges_time_to_the_innermost_side() -> None:
    meter = CpuMeter(iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0]).__next__)
    with meter.of(Side.COORDINATOR), meter.of(Side.MEMBERS), meter.of(Side.COORDINATOR):
        pass
    with meter.of(Side.MEMBERS):
        pass
    assert meter.seconds == {Side.IDLE: 65.0, Side.COORDINATOR: 42.0, Side.MEMBERS: 148.0}


def test_scale_targets_require_a_thousand_organizations() -> None:
    def row(organizations: int, per_organization: float) -> Row:
        return {
            "organizations": organizations,
            scale.PER_ORGANIZATION: per_organization,
            "minutes": 61.0,
            "peak GB": 5.9,
        }

    assert scale._targets([row(10, 1.0)]) == []
    minutes, memory, growth = scale._targets([row(100, 2.0), row(1000, 2.2)])
    assert (minutes.holds, memory.holds, growth.holds) == (False, True, True)
    assert growth.value == pytest.approx(1.1)


def test_scale_projection_extrapolates_a_line_and_checks_it_at_a_measured_size() -> None:
    def row(organizations: int) -> Row:
        return {
            "organizations": organizations,
            scale.BYTES: 5.0,
            scale.COORDINATOR: 30.0 + 2.0 * organizations,
            scale.PEAK: 1.0 + 0.01 * organizations,
            scale.DATABASE: 0.5 * organizations,
        }

    assert scale._projections([row(10), row(100)]) == []
    bent = {**row(1000), scale.COORDINATOR: 4000.0}
    check, more, most = scale._projections([row(10), row(100), bent])
    assert (check["organizations"], check["figures"]) == (1000, "projected from 10, 100")
    assert check[scale.COORDINATOR] == pytest.approx(2030.0)
    assert (more["organizations"], most["organizations"]) == scale.PROJECTED
    found = scale._projections([row(10), row(100), row(1000)])[1:]
    assert [each[scale.COORDINATOR] for each in found] == pytest.approx([20_030.0, 200_030.0])
    assert [each[scale.PER_ORGANIZATION] for each in found] == pytest.approx([2.003, 2.0003])
    assert [each[scale.PEAK] for each in found] == pytest.approx([101.0, 1001.0])
    assert more[scale.BYTES] == 5.0
    assert number(most[scale.COORDINATOR]) > 1.25 * 200_030.0  # the fit includes the larger point


@pytest.mark.slow
def test_scale_year_of_three_organizations_releases_as_scheduled(tmp_path: Path) -> None:
    found = scale._year(Settings(seed=1, out=tmp_path, quick=True), 3)
    assert (found["organizations"], found["windows"]) == (3, scale.QUICK_WINDOWS)
    assert found["reports"] == 3 * scale.QUICK_WINDOWS
    assert found["updates"] == pytest.approx(scale.QUICK_ROUNDS * scale.QUICK_WINDOWS / 3)
    assert found["most epsilon"] == pytest.approx(1.0, abs=0.01)
    for side in ("coordinator", "members"):
        seconds = found[f"{side}, CPU s per organization"]
        assert isinstance(seconds, float)
        assert seconds > 0
