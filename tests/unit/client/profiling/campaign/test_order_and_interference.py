"""Order of configurations, and detection of trials under interference."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedperf_campaigns.campaign import trial_runner
from fedperf_campaigns.campaign.campaign import AllAtOnce, Blocks, Sampler, make_sampler
from fedperf_campaigns.campaign.definition import Strategy
from fedperf_campaigns.campaign.sampling import GridSampler, SamplingGrid
from fedperf_campaigns.campaign.trial_runner import HostMonitor, is_far, noise_reason
from fedperf_client.workers import machine
from tests.unit.client.profiling.campaign.campaigns import BUSY, QUIET, make_campaign


def rows_of(sampler: Sampler, unavailable: frozenset[int] = frozenset()) -> list[int]:
    found = []
    while (row := sampler.next({}, unavailable)) is not None:
        found.append(row)
    return found


def test_blocks_sampler_orders_each_repetition_differently() -> None:
    rows = rows_of(Blocks(20, repetitions=3, seed=1))
    blocks = [rows[start : start + 20] for start in (0, 20, 40)]
    assert all(sorted(block) == list(range(20)) for block in blocks)
    assert len({tuple(block) for block in blocks}) == 3
    assert blocks[0] != sorted(blocks[0])


def test_blocks_sampler_order_is_determined_by_seed() -> None:
    first, again, other = (rows_of(Blocks(9, repetitions=2, seed=seed)) for seed in (4, 4, 5))
    assert first == again != other


def test_blocks_sampler_skips_unavailable_configurations() -> None:
    assert 3 not in rows_of(Blocks(5, repetitions=2, seed=0), frozenset({3}))


class Chooses:
    """A sampler that returns rows 5, 6 and 7 and records its inputs."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[int, float], frozenset[int]]] = []
        self.reason = "enough"

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        self.asked.append((dict(measured), unavailable))
        return {1: 5, 2: 6, 3: 7}.get(len(self.asked))


def test_all_at_once_sampler_repeats_chosen_row_unless_unavailable() -> None:
    chooses = Chooses()
    sampler = AllAtOnce(chooses, repetitions=2)
    assert [sampler.next({}, frozenset()) for _ in range(3)] == [5, 5, 6]
    assert sampler.next({}, frozenset({6})) == 7  # no repetition of a final failure
    assert Counter(len(unavailable) for _, unavailable in chooses.asked) == {0: 2, 1: 1}
    assert sampler.reason == "enough"


def test_noise_reason_flags_interference_and_stolen_cpu_time() -> None:
    assert noise_reason(QUIET, 1.0, []) == ""
    assert "1.50 of 4 cores" in noise_reason(BUSY, 1.0, [])
    assert "host took" in noise_reason(replace(QUIET, stolen_cores=0.2), 1.0, [])
    assert noise_reason(replace(BUSY, cores=64), 1.0, []) == ""
    assert noise_reason(replace(QUIET, foreign_cores=float("nan")), 1.0, [])


@pytest.mark.parametrize(
    ("seconds", "repeats", "expected"),
    [
        (2.0, [1.0, 1.0, 1.01], True),
        (1.2, [1.0, 1.0, 1.0], False),
        (0.5, [1.0, 1.0, 1.01], True),
        (2.0, [1.0, 1.0], False),
        (2.0, [1.0, 2.0, 0.5, 1.5], False),
        (0.0, [1.0, 1.0, 1.0], False),
    ],
)
def test_is_far_flags_times_far_from_their_repeats(
    seconds: float, repeats: list[float], expected: bool
) -> None:
    assert is_far(seconds, repeats) is expected


def test_host_monitor_reads_non_negative_load_and_positive_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads, stolen, busy = iter([1.5, 2.5]), iter([10.0, 10.5]), iter([100.0, 101.0])
    monkeypatch.setattr(os, "getloadavg", lambda: (next(loads), 9.0, 9.0))
    monkeypatch.setattr(trial_runner, "_stolen_seconds", lambda: next(stolen))
    monkeypatch.setattr(machine, "host_busy_seconds", lambda: next(busy))
    host = HostMonitor()
    host.begin()
    reading = host.end()
    assert (reading.load_before, reading.load_after) == (1.5, 2.5)
    assert 0 < reading.stolen_cores <= 0.5 / 0.25  # at least over a quarter of a second
    assert 0 < reading.foreign_cores <= 1 / 0.25
    assert reading.cores == os.cpu_count()


def test_make_sampler_follows_grid_sampler_and_repeats_each_row(
    tmp_path: Path,
) -> None:
    more = '[sampling]\nstrategy = "space_filling"\nmax_configurations = 3\npatience = 9'
    chosen = make_sampler(make_campaign(tmp_path, run="seed = 4\nrepetitions = 2", more=more))
    table = {"rows": [100.0, 100.0, 200.0, 200.0], "workers": [1.0, 2.0, 1.0, 2.0]}
    direct = GridSampler(
        SamplingGrid.of(table, scale="workers", size="rows"),
        Strategy.SPACE_FILLING,
        target_mape=0.05,
        patience=9,
        max_configurations=3,
        seed=4,
    )
    measured: dict[int, float] = {}
    while (row := direct.next(measured, frozenset())) is not None:
        assert [chosen.next(measured, frozenset()) for _ in range(2)] == [row, row]
        measured[row] = 1.0
    assert chosen.next(measured, frozenset()) is None
    assert len(measured) == 3
    assert chosen.reason == direct.reason
