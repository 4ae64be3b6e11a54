"""Tests of rehearsal methods: stored rows of a segment, and rows of later training steps."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedperf_simulations.data.public_table import Columns
from fedperf_simulations.experiments.drift.rehearsal_methods import (
    ROWS,
    Buffer,
    ClosedSegment,
    FullReplay,
    Naive,
    Records,
    RehearsalMethod,
    RowSource,
    TeacherLabelledInputs,
    release,
)

COLUMNS = Columns((4,), 1)
SIZES = (300, 100, 50)
TAUGHT = 77.0
METHODS: list[RehearsalMethod] = [
    Naive(),
    FullReplay(is_even=False),
    FullReplay(is_even=True),
    Buffer(60),
    Buffer(60, is_dark=True),
    TeacherLabelledInputs(COLUMNS, 1.0),
    TeacherLabelledInputs(COLUMNS, None),
]


def segment(place: int) -> ClosedSegment:
    """Return rows of one category whose targets encode segment and row."""
    count = SIZES[place]
    numbers = np.random.default_rng(place).uniform(-1, 1, (count, 1))
    table = COLUMNS.of_cells(np.full(count, place), numbers)
    targets = 1_000 * place + np.arange(count)
    records = Records(COLUMNS.encoded(table).astype(np.float32), targets.astype(np.float32))
    return ClosedSegment(
        table, records, lambda inputs: np.full(len(inputs), -1.0, dtype=np.float32), rng(place)
    )


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def teacher(inputs: np.ndarray) -> np.ndarray:
    return np.full(len(inputs), TAUGHT, dtype=np.float32)


def sources(method: RehearsalMethod) -> Sequence[RowSource]:
    kept = [method.keep(segment(place)) for place in (0, 1)]
    return method.sources(kept, segment(2).records, teacher)


def drawn(method: RehearsalMethod, steps: int = 200) -> Records:
    parts = [each.draw(steps, rng(9)) for each in sources(method)]
    return Records(
        np.concatenate([each.inputs for each in parts]),
        np.concatenate([each.targets for each in parts]),
    )


def shares(records: Records) -> list[float]:
    """Return the share of each segment's rows, identified by their category."""
    return [float(each) for each in records.inputs[:, :3].mean(axis=0)]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_rehearsal_method_fills_a_training_step_with_constant_row_count(
    method: RehearsalMethod,
) -> None:
    assert sum(each.rows for each in sources(method)) == ROWS


def test_naive_method_uses_the_current_segment_only() -> None:
    assert shares(drawn(Naive())) == [0, 0, 1]


def test_full_replay_weights_rows_or_segments_evenly() -> None:
    by_row, by_segment = drawn(FullReplay(is_even=False)), drawn(FullReplay(is_even=True))
    assert shares(by_row) == pytest.approx(np.array(SIZES) / sum(SIZES), abs=0.02)
    assert shares(by_segment) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert len(np.unique(by_row.targets)) == sum(SIZES)


def test_rehearsal_buffer_has_equal_quota_per_segment_within_its_capacity() -> None:
    _, replay = sources(Buffer(60))
    assert [len(each) for each in replay.strata] == [30, 30]
    assert shares(drawn(Buffer(60))) == pytest.approx([0.25, 0.25, 0.5], abs=0.02)


def test_dark_experience_replay_mixes_targets_and_stored_predictions() -> None:
    current, with_targets, with_answers = sources(Buffer(60, is_dark=True))
    assert (current.rows, with_targets.rows, with_answers.rows) == (ROWS // 2, ROWS // 4, ROWS // 4)
    assert {float(each) for part in with_answers.strata for each in part.targets} == {-1.0}
    assert min(float(part.targets.min()) for part in with_targets.strata) >= 0


@pytest.mark.parametrize("epsilon", [1.0, None])
def test_teacher_labelled_inputs_contain_teacher_labels_only(
    epsilon: float | None,
) -> None:
    _, replay = sources(TeacherLabelledInputs(COLUMNS, epsilon))
    for part in replay.strata:
        assert set(part.targets.tolist()) == {TAUGHT}


def test_private_rehearsal_inputs_resemble_the_segment_but_contain_no_row_of_it() -> None:
    raw = segment(0)
    (kept,) = TeacherLabelledInputs(COLUMNS, 2.0).keep(raw)
    assert len(kept) == pytest.approx(SIZES[0], abs=40)
    assert kept.inputs[:, 0].mean() > 0.9
    assert not set(kept.inputs[:, -1].tolist()) & set(raw.records.inputs[:, -1].tolist())


def test_private_rehearsal_inputs_equal_the_release_at_their_epsilon() -> None:
    raw, again = segment(0), rng(0)
    (kept,) = TeacherLabelledInputs(COLUMNS, 0.3).keep(raw)
    rows = release(raw.table, COLUMNS, epsilon=0.3, rng=again).rows(again)
    np.testing.assert_array_equal(kept.inputs, COLUMNS.encoded(rows).astype(np.float32))


def test_random_rehearsal_inputs_are_independent_of_the_segment() -> None:
    method = TeacherLabelledInputs(COLUMNS, None)
    one, other = (
        ClosedSegment(segment(each).table, segment(each).records, teacher, rng(1))
        for each in (0, 1)
    )
    (first,), (second,) = method.keep(one), method.keep(other)
    np.testing.assert_array_equal(first.inputs, second.inputs)


def test_rehearsal_without_released_rows_uses_the_current_segment_only() -> None:
    (only,) = TeacherLabelledInputs(COLUMNS, 1.0).sources(
        [[Records(np.zeros((0, 5), np.float32), np.zeros(0, np.float32))]],
        segment(2).records,
        teacher,
    )
    assert only.rows == ROWS
