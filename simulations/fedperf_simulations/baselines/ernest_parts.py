"""Ernest with at most as many terms as known configurations, so that it answers from one on.

What machines share comes first, then what is fixed, gathered, and per machine. With fewer
configurations than parts a fit of all four is one of many, and may as well say that more
machines take longer.

Source: Venkataraman et al., NSDI 2016, section 3.1; by relative errors, as the client's.
"""

import numpy as np

from fedperf_client.prediction.prediction import Floats

_LEAST_SECONDS = 1e-6


def ernest_parts(known: Floats, logs: Floats, asked: Floats) -> Floats:
    """Log seconds of what is asked about, [asked].

    Args:
        known: log machines and log size, [rows, 2].
        logs: log seconds, [rows], at least one.
        asked: as `known`.
    """
    from scipy.optimize import nnls

    count, middle = len(np.unique(known, axis=0)), float(np.median(known[:, 1]))
    terms = _terms(known, middle)[:, :count]
    weights, _ = nnls(terms / np.exp(logs)[:, None], np.ones(len(logs)))
    seconds = _terms(asked, middle)[:, :count] @ weights
    return np.asarray(np.log(np.maximum(seconds, _LEAST_SECONDS)))


def _terms(rows: Floats, middle: float) -> Floats:
    """In the order in which they are trusted, [rows, 4]."""
    machines, size = np.exp(rows[:, 0]), np.exp(rows[:, 1] - middle)
    return np.column_stack([size / machines, np.ones(len(rows)), rows[:, 0], machines])
