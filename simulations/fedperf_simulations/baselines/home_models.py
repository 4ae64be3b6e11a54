"""Plain models that anybody could make at home in an afternoon: ridge, and a Gaussian process.

Both learn the logarithm of what was measured from standardised features; the process has a sane
prior. They are evaluated alongside the client's own predictors, so that joining is compared with
competent baselines.
"""

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.ridge import varying_columns

Floats = NDArray[np.float64]
Regressor = Callable[[Floats, Floats, Floats], Floats]
"""Log predictions for queries [queries, features], from training [rows, features] and logs [rows].
"""

RIDGE, PROCESS = "local-only, plain ridge", "local-only, plain Gaussian process"

ALPHAS = np.logspace(-2, 2, 9)
"""Ridge weighs one of these by leaving one out."""

AMPLITUDE, AMPLITUDES = 1.0, (0.1, 4.0)
SCALES = (0.5, 5.0)
NOISE, NOISES = 0.01, (1e-3, 0.1)
"""Variances of log seconds, and lengths per square root of the number of features: where the
likelihood may go."""

FEWEST = 2


def ridge(training: Floats, logs: Floats, queries: Floats) -> Floats:
    """Linear in the features. The mean where there is one row."""
    from sklearn.linear_model import RidgeCV

    if len(training) < FEWEST:
        return np.asarray(logs + np.zeros(len(queries)), np.float64)
    training, queries = _standardised(training, queries)
    return np.asarray(RidgeCV(ALPHAS).fit(training, logs).predict(queries), float)


def process(training: Floats, logs: Floats, queries: Floats) -> Floats:
    """Matern 5/2 around the mean, with the likeliest amplitude, lengths and noise within bounds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    training, queries = _standardised(training, queries)
    width = np.sqrt(training.shape[1])
    kernel = ConstantKernel(AMPLITUDE, AMPLITUDES) * Matern(
        width, (SCALES[0] * width, SCALES[1] * width), nu=2.5
    ) + WhiteKernel(NOISE, NOISES)
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # reports that a bound was reached
        model.fit(training, logs - logs.mean())
    return np.asarray(model.predict(queries), float) + float(logs.mean())


HOME_MODELS: Mapping[str, Regressor] = {RIDGE: ridge, PROCESS: process}


def _standardised(training: Floats, queries: Floats) -> tuple[Floats, Floats]:
    """Standardize by mean and deviation of the training rows. Constant features are dropped."""
    varies = varying_columns(training)
    if not len(varies):
        return np.zeros((len(training), 1)), np.zeros((len(queries), 1))
    middle, scale = training[:, varies].mean(axis=0), training[:, varies].std(axis=0)
    return (training[:, varies] - middle) / scale, (queries[:, varies] - middle) / scale
