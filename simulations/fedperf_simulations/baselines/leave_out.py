"""Lines through the run times of other groups, as anybody would fit them to a pile of logs.

The line that answers for a group was fitted without it, so that no case predicts itself.
"""

from collections.abc import Sequence

import numpy as np

from fedperf_client.prediction.prediction import Floats


def regressions_without(groups: Sequence[object], across: Floats, log_seconds: Floats) -> Floats:
    """Log seconds by least squares on one column, [cases].

    Args:
        groups: that of each case, at least two different ones.
        across: the column, [cases].
        log_seconds: what was measured, [cases].
    """
    labels = np.array([str(each) for each in groups])
    answers = np.zeros(len(labels))
    for label in np.unique(labels):
        held = labels == label
        terms = np.column_stack([np.ones(len(across)), across])
        line = np.linalg.lstsq(terms[~held], log_seconds[~held], rcond=None)[0]
        answers[held] = terms[held] @ line
    return answers
