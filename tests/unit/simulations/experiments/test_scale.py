"""A year of many organizations in small: what a row says, and whose time is whose."""

from pathlib import Path

import pytest

from fedperf_simulations.experiments import scale
from fedperf_simulations.federation.cpu_meter import CpuMeter, Side
from fedperf_simulations.harness.experiment import Row, Settings


def test_time_is_charged_to_the_side_that_computes() -> None:
    meter = CpuMeter(iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0]).__next__)
    with meter.of(Side.COORDINATOR), meter.of(Side.MEMBERS), meter.of(Side.COORDINATOR):
        pass
    with meter.of(Side.MEMBERS):
        pass
    assert meter.seconds == {Side.NOBODY: 65.0, Side.COORDINATOR: 42.0, Side.MEMBERS: 148.0}


def test_targets_are_about_a_thousand_organizations() -> None:
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


@pytest.mark.slow
def test_a_small_year_releases_what_its_schedules_say(tmp_path: Path) -> None:
    found = scale._year(Settings(seed=1, out=tmp_path, quick=True), 3)
    assert (found["organizations"], found["windows"]) == (3, scale.QUICK_WINDOWS)
    assert found["reports"] == 3 * scale.QUICK_WINDOWS
    assert found["updates"] == pytest.approx(3 * scale.QUICK_WINDOWS / 3)
    assert found["most epsilon"] == pytest.approx(1.0, abs=0.01)
    for side in ("coordinator", "members"):
        seconds = found[f"{side}, CPU s per organization"]
        assert isinstance(seconds, float)
        assert seconds > 0
