import math

import pytest

from fedperf_client.workers.machine import (
    REFERENCE_SECONDS,
    InterferenceMonitor,
    cluster_config,
    host_busy_seconds,
    machine_speed,
)


class Clock:
    """A clock and two CPU meters that tests set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy = 0.0
        self.own = 0.0

    def advance(self, seconds: float, *, own: float, foreign: float) -> None:
        self.now += seconds
        self.own += own
        self.busy += own + foreign

    def watch(self) -> InterferenceMonitor:
        return InterferenceMonitor(
            lambda: self.own, busy_seconds=lambda: self.busy, timer=lambda: self.now
        )


def test_interference_monitor_counts_foreign_cpu_time_only() -> None:
    clock = Clock()
    watch = clock.watch()
    watch.begin()
    clock.advance(2.0, own=2.0, foreign=1.0)
    assert watch.busy_cores_since_begin() == pytest.approx(0.5)


def test_interference_monitor_averages_short_trials_over_a_longer_interval() -> None:
    clock = Clock()
    watch = clock.watch()
    for _ in range(50):
        watch.begin()
        clock.advance(0.01, own=0.01, foreign=0.005)
        busy = watch.busy_cores_since_begin()
    assert busy == pytest.approx(0.5, rel=0.05)


def test_interference_monitor_ignores_one_clock_tick_in_short_first_trial() -> None:
    clock = Clock()
    watch = clock.watch()
    watch.begin()
    clock.advance(0.002, own=0.002, foreign=0.01)
    assert watch.busy_cores_since_begin() < 0.05


def test_interference_monitor_ignores_load_before_a_long_trial() -> None:
    clock = Clock()
    watch = clock.watch()
    watch.begin()
    clock.advance(1.0, own=0.0, foreign=1.0)
    watch.busy_cores_since_begin()
    watch.begin()
    clock.advance(1.0, own=1.0, foreign=0.0)
    assert watch.busy_cores_since_begin() == 0.0


def test_interference_monitor_restart_discards_earlier_readings() -> None:
    clock = Clock()
    watch = clock.watch()
    watch.begin()
    clock.advance(0.2, own=0.0, foreign=0.2)
    watch.restart()
    watch.begin()
    clock.advance(0.1, own=0.1, foreign=0.0)
    assert watch.busy_cores_since_begin() == pytest.approx(0.0, abs=1e-9)


def test_cluster_config_describes_this_machine() -> None:
    cluster = cluster_config(2)
    assert (cluster.nodes, cluster.cores) == (1, 2)
    assert cluster.memory_bytes > 1e8
    assert 0.01 < cluster.machine_speed < 100


def test_machine_speed_is_relative_to_reference_and_uses_fastest_pass() -> None:
    moments = iter([0.0, 1.0, 2.0, 2.0 + REFERENCE_SECONDS / 2] + [3.0, 4.0] * 5)
    assert machine_speed(lambda: next(moments)) == pytest.approx(2.0)


def test_host_busy_seconds_is_positive_and_never_decreases() -> None:
    first = host_busy_seconds()
    assert math.isfinite(first)
    assert host_busy_seconds() >= first > 0
