"""Answers of the product about plans, from a start and a home's own executions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedperf_client.prediction.ensemble.learner_catalogue import local_learners, public_learners
from fedperf_client.prediction.ensemble.predictor import fit_personalized_ensemble
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.prediction.learners.base_learners import PUBLIC
from fedperf_client.prediction.prediction import Prediction, PredictLog
from fedperf_client.prediction.query_encoding import History
from fedperf_shared.execution import PlanOnCluster
from fedperf_simulations.experiments.intervals.figures import LEVEL

NOTHING = History((), (), np.zeros(0))
"""Of a home that has just begun."""


def shipped_start() -> PredictLog:
    """The start that ships."""
    return FetchedModels(Path()).starts()[PUBLIC]


def with_start(
    home: History, questions: Sequence[PlanOnCluster], start: PredictLog, *, seed: int = 0
) -> list[Prediction]:
    """Answers of a home that did not join: by the start and, if it has any, own executions."""
    mix = fit_personalized_ensemble(
        home, {PUBLIC: start}, public_learners(), seed=seed, confidence_level=LEVEL
    )
    return mix.predict(questions)


def local_only(
    home: History, questions: Sequence[PlanOnCluster], *, seed: int = 0
) -> list[Prediction]:
    """Answers by own executions alone, with the same code."""
    return fit_personalized_ensemble(
        home, {}, local_learners(), seed=seed, confidence_level=LEVEL
    ).predict(questions)
