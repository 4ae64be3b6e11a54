"""Ernest: run time as a sum of parts that are fixed, shared out, gathered, and per machine.

seconds = a + b size / scale + c log scale + d scale, none of them negative, fitted to the
least *relative* error, so that long executions do not decide alone. It reads two columns
and keeps sense far outside of what was seen: more work takes longer.

Source: Venkataraman et al., NSDI 2016, section 3.1 (absolute errors there).
"""

from collections.abc import Callable

import numpy as np

from fedperf_client.prediction.prediction import Floats

_LEAST_SECONDS = 1e-6


def fit_ernest(log_scale: Floats, log_size: Floats, log_seconds: Floats) -> "Answer":
    """(log scale, log size) -> log seconds.

    Args:
        log_scale: log machines or cores, [rows].
        log_size: log of the input size, any unit, [rows].
        log_seconds: [rows], at least one.
    """
    from scipy.optimize import nnls

    middle = float(np.median(log_size))
    terms = _terms(log_scale, log_size - middle)
    weights, _ = nnls(terms / np.exp(log_seconds)[:, None], np.ones(len(log_seconds)))

    def answer(scale: Floats, size: Floats) -> Floats:
        seconds = _terms(scale, size - middle) @ weights
        return np.asarray(np.log(np.maximum(seconds, _LEAST_SECONDS)))

    return answer


Answer = Callable[[Floats, Floats], Floats]


def _terms(log_scale: Floats, log_size: Floats) -> Floats:
    scale = np.exp(log_scale)
    return np.column_stack([np.ones(len(scale)), np.exp(log_size) / scale, log_scale, scale])
