"""Two-sided: local drift is detected soon, with few false alarms, and detection pays off."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_client.prediction.ensemble import changes
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_simulations.data import tokio
from fedperf_simulations.experiments.drift.home_detection import (
    Detection,
    judge,
    made_up,
    probes,
    targets,
)
from tests.public_data import public_data
from tests.unit.client.prediction.drifting_jobs import QUICK, STARTS, error_of, history, without

pytestmark = pytest.mark.statistical


def judged(found: list[Detection]) -> list[bool]:
    rows = [each.as_row() for each in found]
    promised = targets(rows)
    print(*rows, *promised, sep="\n")
    return [each.holds for each in promised]


def test_drift_detector_on_synthetic_streams_meets_its_targets() -> None:
    found = [judge(each, shuffled=5) for each in made_up(8)]
    assert judged(found) == [True, True]
    assert max(each.size_error for each in found) < 0.1


def test_drift_detector_on_a_year_of_io_probes_meets_its_targets() -> None:
    found = [judge(each) for each in probes(public_data(tokio.FOLDER))]
    assert judged(found) == [True, True]
    assert sum(each.drifts for each in found) >= 10
    assert max(each.size_error for each in found) < 0.1


def test_drift_detector_with_jobs_not_separated_misses_its_detection_target() -> None:
    """This is why residuals are centered on the usual residual of their own job."""
    mixed = [replace(each, jobs=np.arange(len(each))) for each in made_up(8)]
    assert judged([judge(each, shuffled=1) for each in mixed])[1] is False


@pytest.mark.parametrize(("delta", "holds"), [(0.9, [False, True]), (1e-12, [True, False])])
def test_drift_detector_with_extreme_delta_misses_one_of_its_targets(
    delta: float, holds: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "DELTA", delta)
    assert judged([judge(each, shuffled=5) for each in made_up(8)]) == holds


@pytest.mark.slow
def test_predictions_recover_from_drift_with_measured_residuals() -> None:
    """Residuals are those of the I/O probes on six platforms, each centered on its job."""
    ratios, left = [], []
    for seed, platform in enumerate(probes(public_data(tokio.FOLDER))):
        jobs = np.unique(platform.jobs, return_inverse=True)[1]
        usual = np.bincount(jobs, platform.log_seconds) / np.bincount(jobs)
        noise = platform.log_seconds - usual[jobs]
        soon = history(1100, seed=seed, since=900, noise=noise)
        recovered, lagging = (
            error_of(fit_personalized_ensemble(each, STARTS, QUICK))
            for each in (soon, without(soon))
        )
        ratios.append(recovered / lagging)
        left.append(recovered)
    print(np.round(ratios, 2), np.round(left, 3))
    assert np.mean(left) < 0.11
    assert np.mean(ratios) < 0.95
    assert max(ratios) <= 1.01
