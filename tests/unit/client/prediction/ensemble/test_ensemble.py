"""Ensembles fitted for the queries at hand: errors, weights and determinism."""

import numpy as np
import pytest

from fedperf_campaigns.tables.learners import Forest, table_learners
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.ensemble.ensemble import EnsembleWeights, query_regimes
from fedperf_client.prediction.ensemble.training_data import TrainingSet
from fedperf_client.prediction.learners.base_learners import (
    Constant,
    Fitted,
    LocalProcess,
    LogRidge,
    NoLearnerError,
)
from fedperf_client.prediction.prediction import Floats, PredictorFailedError, QueryRegime
from fedperf_simulations.baselines.table_mixture import mixed_for
from tests.unit.client.prediction.jobs import grid, law, layout, noisy, places, samples

ALL = samples()
NODES = np.exp(ALL.features[:, 0])
MEGABYTES = np.exp(ALL.features[:, 2])


def known(rows: np.ndarray, seed: int = 0) -> TrainingSet:
    kept = ALL.take(np.flatnonzero(rows))
    return TrainingSet(kept, noisy(seed)[rows], places(kept), np.arange(len(kept)))


def mixed(rows: np.ndarray) -> tuple[EnsembleWeights, Floats]:
    """Return the ensemble for the rows outside of the training set, and its errors there."""
    asked = ALL.take(np.flatnonzero(~rows))
    own = known(rows)
    [kind] = set(query_regimes(own.places, places(asked)))
    weights, fitted = mixed_for(kind, places(asked), own, table_learners(layout()))
    return weights, np.abs(fitted(asked) - law(grid())[~rows])


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (~np.isin(NODES.round(), (4, 8)), QueryRegime.BETWEEN_SCALES),
        (NODES < 9, QueryRegime.BEYOND_SCALES),
        (MEGABYTES < 2500, QueryRegime.BEYOND_SIZES),
    ],
)
def test_ensemble_has_low_error_in_each_query_regime(rows: np.ndarray, kind: QueryRegime) -> None:
    ensemble, errors = mixed(rows)
    assert ensemble.regime is kind
    assert errors.mean() < 0.08
    assert sum(member.weight for member in ensemble.members) == pytest.approx(1.0)


def test_ensemble_beyond_sizes_gives_low_weight_to_local_forest() -> None:
    ensemble, _ = mixed(MEGABYTES < 2500)
    weights = {member.name: member.weight for member in ensemble.members}
    assert weights["local forest"] < 0.05
    errors = {member.name: member.error for member in ensemble.members}
    assert errors["local GP"] < 0.3 * errors["local forest"]


def test_ensemble_weights_contain_fold_errors_with_groups() -> None:
    ensemble, _ = mixed(~np.isin(NODES.round(), (4, 8)))
    assert ensemble.folds == 2
    assert len(ensemble.errors) == len(ensemble.groups) == 20
    assert np.abs(ensemble.errors).mean() < 0.2


@pytest.mark.slow
def test_ensemble_without_matched_folds_leaves_groups_out() -> None:
    rows = np.arange(60) % 5 != 0
    own = known(rows)
    ensemble, _ = mixed_for(QueryRegime.SEEN, own.places, own, table_learners(layout()))
    assert ensemble.folds == 10
    assert sorted(ensemble.groups.tolist()) == list(range(len(own.groups)))


def test_ensemble_without_executions_uses_first_learner_that_needs_none() -> None:
    nothing = known(np.zeros(60, bool))
    with pytest.raises(NoLearnerError, match="0 own executions"):
        mixed_for(QueryRegime.SEEN, nothing.places, nothing, [LogRidge(), LocalProcess()])
    ensemble, _ = mixed_for(QueryRegime.SEEN, nothing.places, nothing, [Constant(), LogRidge()])
    assert [(each.name, each.weight) for each in ensemble.members] == [("local constant", 1.0)]


def test_ensemble_fitted_twice_on_same_data_predicts_identically() -> None:
    rows = NODES < 9
    np.testing.assert_array_equal(mixed(rows)[1], mixed(rows)[1])


def test_learner_predicting_nan_is_refused_by_name() -> None:
    class Broken(Forest):
        def fit(self, samples: EncodedQueries, log_seconds: Floats) -> Fitted:
            return lambda asked: np.full(len(asked), np.nan)

    own = known(NODES < 9)
    with pytest.raises(PredictorFailedError, match="'local forest'"):
        mixed_for(QueryRegime.BEYOND_SCALES, own.places, own, [Broken()])
