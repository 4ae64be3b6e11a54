"""Labels for sizes that were not run, from few sizes that were.

Published rule (GGFN paper, section on training data): all workflows run on small inputs and few on
medium and large ones; the label in between is the mean of a polynomial of degree 5 through the
measured points and of a polynomial of degree 3 fitted to them, in seconds over rows. Such
polynomials swing: they give negative run times. The other rules here work on logarithms: the
published one there, and a monotone interpolant (PCHIP), which stays between its neighbours. No rule
extrapolates beyond the measured sizes.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from fedperf_shared.errors import InvalidInputError

Floats = NDArray[np.float64]
Rule = Callable[[Floats, Floats, Floats], Floats]
"""Measured rows [points], ascending. Their seconds [points]. Requested rows -> seconds."""

INTERPOLATED, FITTED = 5, 3
"""Degrees of the two polynomials."""


class OutsideOfMeasuredSizesError(InvalidInputError):
    """Raised when a label is requested for a size outside of the measured sizes."""

    def __init__(self, size: float, rows: Floats) -> None:
        super().__init__(
            f"no label for {size:g} rows: what was run has {rows.min():g} to {rows.max():g} rows"
        )


class TooFewSizesError(InvalidInputError):
    """A rule needs more measured sizes."""

    def __init__(self, needed: int, count: int) -> None:
        super().__init__(f"labels need {needed} measured sizes, there are {count}")


def published(rows: Floats, seconds: Floats, queries: Floats) -> Floats:
    """Mean of a degree-5 interpolation and a degree-3 fit in seconds over rows. May be negative.

    With more than six sizes the degree-5 polynomial is fitted to them as well.

    Raises:
        TooFewSizesError: fewer than 6 sizes.
        OutsideOfMeasuredSizesError: see the module.
    """
    _require(rows, queries, INTERPOLATED + 1)
    through = Polynomial.fit(rows, seconds, INTERPOLATED)
    fitted = Polynomial.fit(rows, seconds, FITTED)
    return np.asarray((through(queries) + fitted(queries)) / 2)


def published_in_logs(rows: Floats, seconds: Floats, queries: Floats) -> Floats:
    """Return the published rule on logarithms of rows and seconds.

    Raises the errors of `published`.
    """
    _require(rows, queries, INTERPOLATED + 1)
    return np.exp(published(np.log(rows), np.log(seconds), np.log(queries)))


def monotone_in_logs(rows: Floats, seconds: Floats, queries: Floats) -> Floats:
    """Return PCHIP through the logarithms of rows and seconds, from 2 sizes on.

    Raises the errors of `published`.
    """
    from scipy.interpolate import PchipInterpolator

    _require(rows, queries, 2)
    return np.exp(PchipInterpolator(np.log(rows), np.log(seconds))(np.log(queries)))


RULES: Mapping[str, Rule] = {
    "published": published,
    "published in logs": published_in_logs,
    "monotone in logs": monotone_in_logs,
}


def _require(rows: Floats, queries: Floats, needed: int) -> None:
    if len(rows) < needed:
        raise TooFewSizesError(needed, len(rows))
    for each in queries:
        if not rows.min() <= each <= rows.max():
            raise OutsideOfMeasuredSizesError(float(each), rows)
