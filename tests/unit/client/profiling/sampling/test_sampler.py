"""The sampler of a campaign's next configuration, and its stopping rule."""

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedperf_campaigns.campaign import sampling as sampler
from fedperf_campaigns.campaign.definition import CHOOSING, Strategy
from fedperf_campaigns.campaign.sampling import (
    LEAST_MEASURED,
    START,
    Rows,
    SamplingGrid,
    most_useful,
)
from fedperf_campaigns.tables.layout import InvalidTableError, Table
from fedperf_client.prediction.prediction import Floats
from fedperf_shared.errors import InvalidInputError
from tests.unit.client.profiling.grids import (
    NODE_TYPES,
    NONE_FAILED,
    campaign,
    corner_rows,
    grid,
    made,
    seconds,
)

STRATEGIES = [each.value for each in CHOOSING]
SPREAD = [Strategy.SPACE_FILLING.value, Strategy.ACTIVE.value]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sampler_of_resumed_campaign_continues_the_same_sequence(strategy: str) -> None:
    table = grid()
    whole = list(campaign(made(table, strategy, target=0.01), table, most=START + 2).items())
    for count in (0, 3, 6, START + 1):
        afresh = made(table, strategy, target=0.01)
        assert afresh.next(dict(whole[:count]), NONE_FAILED) == whole[count][0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sampler_never_proposes_measured_or_failed_configurations(strategy: str) -> None:
    table = grid()
    choosing = made(table, strategy)
    measured: dict[int, float] = {}
    failed: set[int] = set()
    for turn in range(18):
        row = choosing.next(measured, frozenset(failed))
        assert row is not None
        assert row not in measured
        assert row not in failed
        if turn % 3 == 1:
            failed.add(row)
        else:
            measured[row] = seconds(table, row)


@pytest.mark.parametrize("strategy", SPREAD)
def test_sampler_proposes_corners_of_size_and_parallelism_first(strategy: str) -> None:
    table = grid()
    first = list(campaign(made(table, strategy), table, most=4))
    assert all(len(corner & set(first)) == 1 for corner in corner_rows(table))


def test_sampler_skips_corner_at_which_all_configurations_failed() -> None:
    table = grid()
    gone = frozenset(corner_rows(table)[0])
    choosing = made(table, "space_filling")
    measured: dict[int, float] = {}
    for _ in range(4):
        row = choosing.next(measured, gone)
        assert row is not None
        measured[row] = seconds(table, row)
    assert all(len(corner & set(measured)) == 1 for corner in corner_rows(table)[1:])


@pytest.mark.parametrize("count", [3, 6, 12, 30])
def test_space_filling_sampler_balances_categories(count: int) -> None:
    table = grid()
    measured = campaign(made(table, "space_filling"), table, most=count)
    had = Counter(table["type"][row] for row in measured)
    assert set(had) == set(NODE_TYPES)
    # There are three categories for four corners, so a corner may reuse a category.
    assert max(had.values()) - min(had.values()) <= 1


def test_random_sampler_depends_on_seed_and_not_on_run_times() -> None:
    table = grid()
    orders = [list(campaign(made(table, "random", seed=seed), table)) for seed in (0, 1)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(72))
    assert orders[0] != orders[1]
    odd = {orders[0][0]: 1e6}
    assert made(table, "random").next(odd, NONE_FAILED) == orders[0][1]


def tell_errors(monkeypatch: pytest.MonkeyPatch, errors: Mapping[int, float]) -> None:
    def told(_: SamplingGrid, measured: Mapping[int, float]) -> float:
        return errors.get(len(measured), 1.0)

    monkeypatch.setattr(SamplingGrid, "left_out_error", told)


def test_sampler_stops_after_error_was_below_target_for_patience_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = grid()
    tell_errors(monkeypatch, {10: 0.04, 11: 0.04, 12: 0.06, 13: 0.05, 14: 0.04, 15: 0.03})
    choosing = made(table, "space_filling", target=0.05, patience=3)
    assert len(campaign(choosing, table)) == 15
    assert "3.0%" in choosing.reason
    assert "3 times in a row" in choosing.reason
    patient = made(table, "space_filling", target=0.05, patience=4, most=20)
    assert len(campaign(patient, table)) == 20
    assert "20 configurations" in patient.reason


@pytest.mark.slow
def test_sampler_never_stops_on_overconfident_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fedperf_client.prediction.learners.gaussian_process import GaussianProcess

    def sure(_: GaussianProcess, asked: np.ndarray) -> np.ndarray:
        return np.full(len(asked), 1e-3)

    monkeypatch.setattr(GaussianProcess, "sd", sure)
    table = grid()
    noise = np.random.default_rng(0).lognormal(0, 1.0, 72)
    choosing = made(table, "active", target=0.05, patience=1, most=12)
    measured: dict[int, float] = {}
    while (row := choosing.next(measured, NONE_FAILED)) is not None:
        measured[row] = float(noise[row])
    assert len(measured) == 12


@pytest.mark.slow
def test_left_out_error_is_small_for_lawful_and_large_for_random_times() -> None:
    table = grid()
    rows = list(campaign(made(table, "random"), table, most=30))
    whole = SamplingGrid.of(table, scale="machines", size="size")
    lawful = {row: seconds(table, row) for row in rows}
    chance = np.random.default_rng(1).lognormal(3, 0.8, 72)
    lawless = {row: float(chance[row]) for row in rows}
    assert whole.left_out_error(lawful) < 0.05
    # Log-normal times with sd 0.8: no prediction of an unmeasured row can be more accurate.
    assert whole.left_out_error(lawless) > 0.4
    assert whole.left_out_error(dict(list(lawful.items())[: LEAST_MEASURED - 1])) == math.inf


@pytest.mark.slow
def test_active_sampler_stops_early_for_lawful_job() -> None:
    table = grid()
    choosing = made(table, "active", target=0.05)
    measured = campaign(choosing, table)
    assert LEAST_MEASURED + 2 <= len(measured) < 36
    assert "left out" in choosing.reason


def test_sampler_reason_is_empty_until_it_stops() -> None:
    table = grid()
    choosing = made(table, "active", most=1)
    assert choosing.next({}, NONE_FAILED) is not None
    assert choosing.reason == ""
    assert choosing.next({3: 1.0}, NONE_FAILED) is None
    assert choosing.reason == "1 configurations were measured, as many as allowed"


DEGENERATE: dict[str, Table] = {
    "one row": {"machines": [2.0], "size": [5.0]},
    "two rows": {"machines": [2.0, 4.0], "size": [5.0, 5.0]},
    "one column varies": {"machines": [4.0] * 12, "size": [float(n) for n in range(1, 13)]},
    "only words vary": {"machines": [4.0] * 12, "size": [5.0] * 12, "word": list("abcdefghijkl")},
    "nothing varies": {"machines": [4.0] * 12, "size": [5.0] * 12},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", list(DEGENERATE))
def test_sampler_measures_every_configuration_of_degenerate_grid(strategy: str, name: str) -> None:
    table = DEGENERATE[name]
    count = len(table["size"])
    choosing = made(table, strategy)
    measured: dict[int, float] = {}
    while (row := choosing.next(measured, NONE_FAILED)) is not None:
        measured[row] = 7.0
    assert sorted(measured) == list(range(count))
    assert choosing.reason == f"no configuration is left; {count} were measured"


def test_sampler_with_equal_run_times_stops_at_minimum() -> None:
    table = grid()
    choosing = made(table, "active", target=0.05)
    measured: dict[int, float] = {}
    while (row := choosing.next(measured, NONE_FAILED)) is not None:
        measured[row] = 7.0
    assert len(measured) == LEAST_MEASURED + 2 < START


numbers = st.floats(0.1, 1e6).map(lambda value: float(f"{value:.2g}"))
words = st.sampled_from(["a", "b", "c"])


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.tuples(numbers, numbers, words, st.floats(-5, 5)), min_size=1, max_size=14),
    took=st.lists(st.floats(1e-3, 1e5), min_size=14, max_size=14),
    failing=st.sets(st.integers(0, 13)),
    strategy=st.sampled_from(STRATEGIES),
    target=st.none() | st.floats(0.001, 1.0),
)
def test_sampler_on_any_grid_terminates_and_proposes_valid_rows(
    rows: list[tuple[float, float, str, float]],
    took: list[float],
    failing: set[int],
    strategy: str,
    target: float | None,
) -> None:
    columns = zip(*rows, strict=True)
    table: Table = dict(zip(("machines", "size", "word", "other"), columns, strict=True))
    choosing = made(table, strategy, target=target, patience=2)
    measured: dict[int, float] = {}
    failed: set[int] = set()
    for _ in range(len(rows)):
        row = choosing.next(measured, frozenset(failed))
        if row is None:
            break
        assert 0 <= row < len(rows)
        assert row not in measured
        assert row not in failed
        if row in failing:
            failed.add(row)
        else:
            measured[row] = took[row]
    else:
        assert choosing.next(measured, frozenset(failed)) is None
    assert choosing.reason


def test_active_sampler_with_limited_targets_proposes_an_unmeasured_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = grid()
    before = campaign(made(table, "active"), table, most=START)
    monkeypatch.setattr(sampler, "MOST_TARGETS", 20)
    judged: list[Rows] = []

    def watched(*known: Floats, taken: Rows, free: Rows, target_rows: Rows) -> int:
        judged.append(target_rows)
        return most_useful(*known, taken=taken, free=free, target_rows=target_rows)

    monkeypatch.setattr(sampler, "most_useful", watched)
    row, again = (made(table, "active").next(before, NONE_FAILED) for _ in range(2))
    assert row is not None
    assert row == again
    assert row not in before
    np.testing.assert_array_equal(judged[0], judged[1])
    assert len(np.unique(judged[0])) == 20


def test_active_sampler_on_large_grid_considers_a_deterministic_subset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = grid()
    before = campaign(made(table, "active"), table, most=START)
    monkeypatch.setattr(sampler, "MOST_OFFERED", 3)
    offered: list[list[int]] = []

    def first(*_: object, free: Rows, **__: object) -> int:
        offered.append(free.tolist())
        return int(free[0])

    monkeypatch.setattr(sampler, "most_useful", first)
    one, again = (made(table, "active").next(before, NONE_FAILED) for _ in range(2))
    assert one == again == offered[0][0]
    assert offered[0] == offered[1] == sorted(set(offered[0]) - set(before))
    assert len(offered[0]) == 3


def test_sampler_with_empty_or_incomplete_grid_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one configuration"):
        made({"machines": [], "size": []}, "active")
    with pytest.raises(InvalidTableError, match="machines"):
        made({"size": [1.0]}, "active")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_sampler_with_invalid_run_time_is_refused(strategy: str, wrong: float) -> None:
    with pytest.raises(InvalidInputError, match="seconds"):
        made(grid(), strategy).next({3: wrong}, NONE_FAILED)
