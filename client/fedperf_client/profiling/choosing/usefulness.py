"""The usefulness of a configuration: what running it would teach about all the others.

For each candidate it is the expected fall of the squared error over a grid, were it run next. That
is the squares of its posterior covariances with the grid's rows, divided by its own variance with
noise. A candidate that is unsure but alone, at an edge, teaches little about the rest.

The covariances are those of a Gaussian process with the hyperparameters that the measured
configurations make most plausible. The process believes itself equally everywhere. So rows near
which it was wrong about a configuration left out count for more. The gain is weighed against the
run time, by less than in proportion. In proportion, only short configurations would be run, and the
long ones have the large errors.

Source: Cohn 1996, "Neural network exploration using optimal experiment design", and Seo et al. 2000
for Gaussian processes (the criterion); Liu et al. 2018, "A survey of adaptive sampling for global
metamodeling", section 3.3 (errors of configurations left out).
"""

import numpy as np

from fedperf_client.prediction.prediction import Floats
from fedperf_client.profiling.choosing.grid_points import Rows

TEMPER = 0.3
"""Power of the predicted seconds that a gain is divided by: 0 would not look at them, 1 at
nothing but gain per second."""


def most_useful(
    features: Floats, log_seconds: Floats, *, taken: Rows, free: Rows, judged: Rows
) -> int:
    """The row of `free` that teaches most for its time.

    Args:
        features: of the grid, [rows, columns].
        log_seconds: of the rows that were taken, [taken].
        taken: rows that were measured, at least one.
        free: rows to choose from, at least one.
        judged: rows whose errors are to fall.
    """
    from fedperf_client.prediction.learners.gaussian_process import fit_process  # imports scipy

    process = fit_process(features[taken], log_seconds)
    asked, offered = features[judged], features[free]
    variances = process.sd(asked) ** 2
    wrong = process.error_nearby(asked) ** 2 / (variances + np.median(variances))
    shared = process.covariance(asked, offered)
    gains = (1.0 + wrong) @ (shared**2 / process.sd(offered) ** 2)
    worth = gains / np.exp(TEMPER * process.mean(offered))
    return int(free[np.argmax(worth)])
