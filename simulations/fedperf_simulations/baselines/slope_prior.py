"""A baseline with a prior on slopes alone: a line in logs of run time, machines and size.

Run time falls with machines by an exponent of 0.7 +- 0.35 and rises with the size by 0.9 +- 0.3;
on other columns the prior says only that they matter little. One known configuration gives the
level, more move the slopes (Bayesian linear regression; Bishop 2006, section 3.3).
"""

import numpy as np

from fedperf_client.prediction.prediction import Floats

MACHINES, SIZE, OTHER = (-0.7, 0.35), (0.9, 0.3), (0.0, 0.3)
"""Mean and deviation of slopes; of others per standard deviation of the column."""

LEVEL_SD, NOISE = 100.0, 0.1
"""Log seconds: nothing is known of the level; by so much configurations leave the line."""


def slope_prior(known: Floats, logs: Floats, asked: Floats) -> Floats:
    """Log seconds of what is asked about, [asked].

    Args:
        known: log machines, log size and any other columns around 0, [rows, columns].
        logs: log seconds, [rows].
        asked: as `known`.
    """
    others = known.shape[1] - 2
    means, deviations = np.array([MACHINES, SIZE, *[OTHER] * others]).T
    middle, level = known.mean(axis=0), logs.mean()
    terms = np.column_stack([np.ones(len(known)), known - middle])
    prior = np.diag(1 / np.concatenate([[LEVEL_SD], deviations]) ** 2)
    left = logs - level - (known - middle) @ means
    moved = np.linalg.solve(terms.T @ terms / NOISE**2 + prior, terms.T @ left / NOISE**2)
    return np.asarray(level + moved[0] + (asked - middle) @ (means + moved[1:]))
