"""Streams by platform and operator class: drifts, their sentences, and lags of executions."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from fedperf_client.prediction.ensemble.changes import (
    DriftKind,
    DriftObservations,
    LevelChange,
    StreamDrift,
    find_streams,
    recent_drift,
)
from fedperf_shared.releases.basis import ALL_CELLS
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform
from tests.fakes.plans import diamond
from tests.unit.client.prediction.changes.drift_observations import BEGIN, MINUTE, observed


def together(*parts: DriftObservations) -> DriftObservations:
    return DriftObservations(
        np.concatenate([each.cells for each in parts]),
        np.concatenate([each.jobs for each in parts]),
        np.concatenate([each.residuals for each in parts]),
        np.concatenate([each.inputs for each in parts]),
        [moment for each in parts for moment in each.finished_at],
    )


def drift(**changes: object) -> StreamDrift:
    values = {
        "platform": Platform.DUCKDB,
        "operator_class": OperatorClass.RELATIONAL,
        "change": LevelChange(0, 1),
        "since": BEGIN,
        "noticed_at": BEGIN + timedelta(days=2),
        "log_shift": 0.4,
        "kinds": (DriftKind.CONCEPT,),
    }
    return StreamDrift(**{**values, **changes})  # type: ignore[arg-type]


def test_drift_in_a_stream_has_date_shift_and_kind() -> None:
    [stream] = find_streams(observed(shift=0.4))
    [found] = stream.drifts
    assert found.kinds == (DriftKind.CONCEPT,)
    assert found.log_shift == pytest.approx(0.4, abs=0.06)
    assert abs(found.since - (BEGIN + 150 * MINUTE)) <= 5 * MINUTE
    assert found.sentence == "1.5x slower since 2026-03-01"
    assert found.stream_name == stream.name == "relational work on duckdb"


def test_find_streams_separates_platforms_and_classes_but_not_sizes() -> None:
    calm, drifting = observed(cell=0), observed(cell=len(ALL_CELLS) // 2, shift=0.5)
    larger = observed(cell=1)
    streams = find_streams(together(drifting, calm, larger))
    assert [(len(each.rows), len(each.drifts)) for each in streams] == [(600, 0), (300, 1)]
    assert [each.platform for each in streams] == [Platform.DUCKDB, Platform.SKLEARN]
    assert streams[1].rows.tolist() == list(range(300))


def test_find_streams_depends_on_timestamps_and_not_on_row_order() -> None:
    here = observed(shift=0.5)
    rows = np.random.default_rng(3).permutation(300)
    [ordered], [shuffled] = find_streams(here), find_streams(here.take(rows))
    assert shuffled.drifts == ordered.drifts
    assert rows[shuffled.rows].tolist() == list(range(300))
    one_moment = replace(here, finished_at=[BEGIN] * 300)
    assert find_streams(one_moment)[0].drifts == ()


def test_lags_sum_all_later_concept_drifts() -> None:
    twice = observed(600, shift=0.5, at=200)
    twice = replace(twice, residuals=twice.residuals + 0.3 * (np.arange(600) >= 400))
    [stream] = find_streams(twice)
    first, second = (each.change.start for each in stream.drifts)
    lags = stream.lags()
    np.testing.assert_allclose(lags[[0, first, second]], [0.8, 0.3, 0.0], atol=0.1)
    assert np.count_nonzero(np.diff(lags)) == 2


def test_levels_are_relative_to_the_first_executions() -> None:
    [stream] = find_streams(observed(shift=0.5))
    assert np.median(stream.levels()[:150]) == pytest.approx(0.0, abs=0.1)
    assert np.median(stream.levels()[160:]) == pytest.approx(0.5, abs=0.1)


def test_level_of_a_job_first_run_after_a_drift_is_that_of_its_stream() -> None:
    here = observed(shift=0.5, spread=0.0)
    new = (np.arange(300) >= 200) & (np.arange(300) % 2 == 0)
    [stream] = find_streams(replace(here, jobs=np.where(new, 99, here.jobs)))
    assert len(stream.drifts) == 1
    assert np.median(stream.levels()[new][10:]) == pytest.approx(0.5, abs=0.2)


def test_larger_inputs_are_covariate_drift_without_lag() -> None:
    """Jobs run once and become larger halfway. The model's error depends on the size."""
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 2, 300) + (np.arange(300) >= 150)
    here = observed(jobs=300)
    here = replace(here, jobs=np.arange(300), inputs=size[:, None])
    here = replace(here, residuals=0.6 * size + 0.1 * rng.standard_normal(300))
    [stream] = find_streams(here)
    [found] = stream.drifts
    assert found.kinds == (DriftKind.COVARIATE,)
    assert found.sentence.startswith("other inputs since")
    assert not stream.lags().any()
    both = replace(here, residuals=here.residuals + 0.6 * (np.arange(300) >= 150))
    assert find_streams(both)[0].drifts[0].kinds == (DriftKind.CONCEPT, DriftKind.COVARIATE)


@pytest.mark.parametrize(
    ("shift", "says"),
    [
        (0.4, "1.5x slower since 2026-03-01"),
        (-0.7, "2x faster since 2026-03-01"),
        (0.04, "changed for a while from 2026-03-01 on"),
    ],
)
def test_drift_sentence_gives_factor_and_date(shift: float, says: str) -> None:
    assert drift(log_shift=shift).sentence == says


def test_recent_drift_returns_latest_concept_drift_of_the_last_month() -> None:
    plan, soon = diamond(), BEGIN + timedelta(days=32)
    older, newer = drift(log_shift=0.9), drift()
    elsewhere = drift(platform=Platform.SPARK)
    drifts = (older, newer, drift(kinds=(DriftKind.COVARIATE,)), drift(log_shift=0.01), elsewhere)
    assert recent_drift(drifts, plan, now=soon) is newer
    assert recent_drift(drifts, plan, now=soon + MINUTE) is None
    assert recent_drift((elsewhere,), plan, now=soon) is None


def test_find_streams_of_no_executions_is_empty() -> None:
    assert find_streams(observed(0)) == ()
