"""Regressions that anybody would fit to run times: baselines to compare with the product."""

from collections.abc import Sequence

import numpy as np

from fedperf_client.prediction.prediction import Floats

MACHINES, SIZE, OTHER = (-0.7, 0.35), (0.9, 0.3), (0.0, 0.3)
"""Mean and deviation of slopes. Other slopes are per standard deviation of the column."""

LEVEL_SD, NOISE = 100.0, 0.1
"""Prior deviations in log seconds: of the level, and of configurations from the line."""

_LEAST_SECONDS = 1e-6


def regressions_without(groups: Sequence[object], across: Floats, log_seconds: Floats) -> Floats:
    """Return log seconds by least squares on one column, [cases].

    The line that predicts a group is fitted without it, so no case predicts itself.

    Args:
        groups: that of each case, at least two different ones.
        across: the column, [cases].
        log_seconds: what was measured, [cases].
    """
    labels = np.array([str(each) for each in groups])
    predictions = np.zeros(len(labels))
    for label in np.unique(labels):
        held = labels == label
        terms = np.column_stack([np.ones(len(across)), across])
        line = np.linalg.lstsq(terms[~held], log_seconds[~held], rcond=None)[0]
        predictions[held] = terms[held] @ line
    return predictions


def slope_prior(training: Floats, logs: Floats, queries: Floats) -> Floats:
    """Log seconds by a line in logs of machines and size with a prior on its slopes, [queries].

    Run time falls with machines by an exponent of 0.7 +- 0.35 and rises with the size by 0.9 +-
    0.3; on other columns the prior is centred at 0. One measured configuration gives the level,
    more move the slopes (Bayesian linear regression; Bishop 2006, section 3.3).

    Args:
        training: log machines, log size and any other columns around 0, [rows, columns].
        logs: log seconds, [rows].
        queries: as `training`.
    """
    others = training.shape[1] - 2
    means, deviations = np.array([MACHINES, SIZE, *[OTHER] * others]).T
    middle, level = training.mean(axis=0), logs.mean()
    terms = np.column_stack([np.ones(len(training)), training - middle])
    prior = np.diag(1 / np.concatenate([[LEVEL_SD], deviations]) ** 2)
    left = logs - level - (training - middle) @ means
    shift = np.linalg.solve(terms.T @ terms / NOISE**2 + prior, terms.T @ left / NOISE**2)
    return np.asarray(level + shift[0] + (queries - middle) @ (means + shift[1:]))


def ernest_parts(training: Floats, logs: Floats, queries: Floats) -> Floats:
    """Return log seconds by Ernest with at most one term per configuration, [queries].

    So it predicts from one configuration on. The shared term comes first, then the fixed, the
    gathered and the per-machine term. With fewer configurations than terms a fit of all four is not
    unique, and more machines may be predicted to take longer. Venkataraman et al., NSDI 2016,
    section 3.1; by relative errors, as the client's.

    Args:
        training: log machines and log size, [rows, 2].
        logs: log seconds, [rows], at least one.
        queries: as `training`.
    """
    from scipy.optimize import nnls

    count, middle = len(np.unique(training, axis=0)), float(np.median(training[:, 1]))
    terms = _terms(training, middle)[:, :count]
    weights, _ = nnls(terms / np.exp(logs)[:, None], np.ones(len(logs)))
    seconds = _terms(queries, middle)[:, :count] @ weights
    return np.asarray(np.log(np.maximum(seconds, _LEAST_SECONDS)))


def _terms(rows: Floats, middle: float) -> Floats:
    """Return Ernest's terms in the order in which a fit adds them, [rows, 4]."""
    machines, size = np.exp(rows[:, 0]), np.exp(rows[:, 1] - middle)
    return np.column_stack([size / machines, np.ones(len(rows)), rows[:, 0], machines])
