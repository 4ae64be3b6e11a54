"""What ran before exactly so draws the answer about it, as far as repeats agree."""

import numpy as np
import pytest

from fedperf_client.prediction.evidence import Samples
from fedperf_client.prediction.mixture.exact_match import REPEAT_SD, Repeats

ERROR_VARIANCE = 0.25


def samples(*features: float, cell: int = 3) -> Samples:
    rows = np.array(features, dtype=np.float64)[:, None].repeat(4, axis=1)
    return Samples(rows, np.full(len(features), cell), {})


def drawn(repeats: Repeats, asked: Samples, answer: float = 2.0) -> list[float]:
    count = len(asked)
    variances = np.full(count, ERROR_VARIANCE)
    found: list[float] = repeats.drawn(asked, np.full(count, answer), variances).tolist()
    return found


def test_what_never_ran_so_is_answered_as_before() -> None:
    repeats = Repeats.of(samples(0.1, 0.1), np.array([1.0, 1.0]))
    assert drawn(repeats, samples(0.2)) == [2.0]
    assert drawn(repeats, samples(0.1, cell=4)) == [2.0]
    assert drawn(Repeats.of(samples(), np.zeros(0)), samples(0.1)) == [2.0]


def test_one_repeat_counts_by_its_precision_and_many_settle_it() -> None:
    once = Repeats.of(samples(0.1), np.array([1.0]))
    share = ERROR_VARIANCE / (ERROR_VARIANCE + REPEAT_SD**2)
    assert drawn(once, samples(0.1, 0.2)) == pytest.approx([2 - share, 2.0])
    often = Repeats.of(samples(*[0.1] * 30), np.linspace(0.9, 1.1, 30))
    assert drawn(often, samples(0.1)) == pytest.approx([1.0], abs=0.01)


def test_repeats_that_differ_a_lot_are_trusted_less() -> None:
    def answer(spread: float) -> float:
        times = np.array([1.0 - spread, 1.0 + spread] * 10)
        [found] = drawn(Repeats.of(samples(*[0.1] * 20), times), samples(0.1))
        return found

    assert 1.0 < answer(0.0) < answer(1.0) < 2.0


def test_a_mix_that_errs_little_is_hardly_drawn() -> None:
    once = Repeats.of(samples(0.1), np.array([1.0]))
    [found] = once.drawn(samples(0.1), np.array([2.0]), np.array([1e-6])).tolist()
    assert found == pytest.approx(2.0, abs=1e-3)
