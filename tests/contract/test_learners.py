"""Contract of every learner with the ensemble: finite, deterministic predictions for any data.

Learners are refitted often and without supervision, on executions of any number and kind. So a
learner must predict after any training data and must keep no state between fits.
"""

import numpy as np
import pytest

from fedperf_campaigns.tables.learners import (
    Ernest,
    Forest,
    ResidualProcess,
    WithShare,
    table_learners,
)
from fedperf_campaigns.tables.prior_slopes import PriorSlopes, ScalingColumns, SlopePrior
from fedperf_client.prediction.encoding import EncodedQueries
from fedperf_client.prediction.learners.base_learners import (
    Boosting,
    CellCorrectedModel,
    CellCorrection,
    Constant,
    Learner,
    LocalProcess,
    LogRidge,
    Nearest,
    ResidualBoosting,
    ResidualRidge,
    ShrunkenBias,
    UncorrectedModel,
    joined_learners,
    public_learners,
)
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.workflow.features import FLAT_FEATURES
from fedperf_simulations.baselines.table_mixture import PretrainedWithPosterior
from tests.unit.client.prediction.jobs import layout
from tests.unit.client.prediction.synthetic import draw_samples

LEARNERS: tuple[Learner, ...] = (
    UncorrectedModel(),
    ShrunkenBias(),
    CellCorrectedModel(CellCorrection.uninformative()),
    ResidualRidge(),
    ResidualBoosting(),
    Constant(),
    Nearest(),
    LogRidge(),
    Boosting(),
    Forest(),
    LocalProcess(),
    ResidualProcess(UncorrectedModel()),
    LogRidge("local ridge 2", degree=2),
    Boosting("local linear boosting", linear_leaves=True),
    Ernest(FLAT_FEATURES - 1, FLAT_FEATURES - 2),
    ResidualProcess(Ernest(FLAT_FEATURES - 1, FLAT_FEATURES - 2)),
    WithShare(FLAT_FEATURES - 1, FLAT_FEATURES - 2),
    PretrainedWithPosterior(0.1 * np.eye(CELLS)),
    PriorSlopes(
        (SlopePrior(0.5, 0.5, 1.0),) * FLAT_FEATURES,
        ScalingColumns(FLAT_FEATURES - 1, FLAT_FEATURES - 2),
    ),
)
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda each: each.name)


def test_learner_catalogues_contain_only_types_covered_by_the_contract() -> None:
    mixed = (*joined_learners(), *public_learners(), *table_learners(layout()))
    assert {type(each) for each in mixed} <= {type(each) for each in LEARNERS}


def test_learner_names_are_unique_in_each_catalogue() -> None:
    for catalogue in (joined_learners(), public_learners(), table_learners(layout())):
        assert len({each.name for each in catalogue}) == len(catalogue)


@every_learner
def test_learner_fit_changes_neither_training_data_nor_learner(learner: Learner) -> None:
    samples, log_seconds = draw_samples(60)
    kept = samples.features.copy(), samples.cells.copy(), log_seconds.copy()
    asked, _ = draw_samples(9, seed=1)
    before = learner.fit(samples, log_seconds)(asked)
    learner.fit(*draw_samples(30, seed=2))(asked)
    np.testing.assert_array_equal(learner.fit(samples, log_seconds)(asked), before)
    for now, then in zip((samples.features, samples.cells, log_seconds), kept, strict=True):
        np.testing.assert_array_equal(now, then)


@every_learner
@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_learner_fitted_on_any_number_of_executions_predicts_finite_values(
    learner: Learner, count: int
) -> None:
    samples, log_seconds = draw_samples(max(count, learner.fewest - 1))
    asked, _ = draw_samples(9, seed=1)
    answers = learner.fit(samples, log_seconds)(asked)
    assert answers.shape == (9,)
    assert np.isfinite(answers).all()


@every_learner
def test_learner_fitted_on_identical_executions_predicts_finite_values(learner: Learner) -> None:
    samples, log_seconds = draw_samples(1)
    same = np.zeros(40, np.int64)
    asked, _ = draw_samples(5, seed=1)
    answers = learner.fit(samples.take(same), log_seconds[same])(asked)
    assert np.isfinite(answers).all()


@every_learner
def test_learner_fitted_twice_on_same_data_predicts_identical_bits(learner: Learner) -> None:
    samples, log_seconds = draw_samples(60)
    asked, _ = draw_samples(20, seed=1)
    one, other = learner.fit(samples, log_seconds)(asked), learner.fit(samples, log_seconds)(asked)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "learner", [each for each in LEARNERS if each.base_model is None], ids=lambda each: each.name
)
def test_local_learner_predicts_the_same_without_pretrained_model(learner: Learner) -> None:
    samples, log_seconds = draw_samples(60)
    bare = EncodedQueries(samples.features, samples.cells, {})
    np.testing.assert_array_equal(
        learner.fit(bare, log_seconds)(bare), learner.fit(samples, log_seconds)(samples)
    )
