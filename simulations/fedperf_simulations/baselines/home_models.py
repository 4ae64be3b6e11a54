"""Plain models that anybody could make at home in an afternoon: ridge, and a Gaussian process.

Both learn the logarithm of what was measured from standardised features; the process has a sane
prior. They stand beside the client's own predictors, so that joining is compared with competent
opponents.
"""

import warnings
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedperf_client.prediction.learners.ridge import varying_columns

Floats = NDArray[np.float64]
Regressor = Callable[[Floats, Floats, Floats], Floats]
"""Log answers to what is asked [asked, features], from known [rows, features] and logs [rows]."""

RIDGE, PROCESS = "local-only, plain ridge", "local-only, plain Gaussian process"

ALPHAS = np.logspace(-2, 2, 9)
"""Ridge weighs one of these by leaving one out."""

AMPLITUDE, AMPLITUDES = 1.0, (0.1, 4.0)
SCALES = (0.5, 5.0)
NOISE, NOISES = 0.01, (1e-3, 0.1)
"""Variances of log seconds, and lengths per square root of the number of features: where the
likelihood may go."""

FEWEST = 2


def ridge(known: Floats, logs: Floats, asked: Floats) -> Floats:
    """Linear in the features; the mean where there is one row."""
    from sklearn.linear_model import RidgeCV

    if len(known) < FEWEST:
        return np.asarray(logs + np.zeros(len(asked)), np.float64)
    known, asked = _standardised(known, asked)
    return np.asarray(RidgeCV(ALPHAS).fit(known, logs).predict(asked), float)


def process(known: Floats, logs: Floats, asked: Floats) -> Floats:
    """Matern 5/2 around the mean, with the likeliest amplitude, lengths and noise within bounds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    known, asked = _standardised(known, asked)
    width = np.sqrt(known.shape[1])
    kernel = ConstantKernel(AMPLITUDE, AMPLITUDES) * Matern(
        width, (SCALES[0] * width, SCALES[1] * width), nu=2.5
    ) + WhiteKernel(NOISE, NOISES)
    model = GaussianProcessRegressor(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # says that a bound was reached
        model.fit(known, logs - logs.mean())
    return np.asarray(model.predict(asked), float) + float(logs.mean())


HOME_MODELS: Mapping[str, Regressor] = {RIDGE: ridge, PROCESS: process}


def _standardised(known: Floats, asked: Floats) -> tuple[Floats, Floats]:
    """By mean and deviation of what is known; features that do not vary stay out."""
    varies = varying_columns(known)
    if not len(varies):
        return np.zeros((len(known), 1)), np.zeros((len(asked), 1))
    middle, scale = known[:, varies].mean(axis=0), known[:, varies].std(axis=0)
    return (known[:, varies] - middle) / scale, (asked[:, varies] - middle) / scale
