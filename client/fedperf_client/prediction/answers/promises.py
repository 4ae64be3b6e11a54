"""Where no deadline is promised: so far beyond all that was measured that a chance is a guess.

An interval says how far an answer may be off if run time goes on as it did. Far beyond the most
cores or rows that anybody measured it need not: speed-ups fade, memory ends, disks fill.
"""

import math
from collections.abc import Callable

from fedperf_client.prediction.mixture.intervals import CORES, ROWS, Ends, Hull
from fedperf_client.prediction.mixture.matched_folds import LEVEL_STEP
from fedperf_shared.execution import SizedPlan
from fedperf_shared.model.start_widths import StartWidth, shipped_widths
from fedperf_shared.workflow.vocabulary import Platform

MOST_TIMES_CORES = 8.0
"""Times the most cores that were measured: farther a speed-up is a guess."""

MOST_TIMES_ROWS = 100.0
"""Times the most rows: own executions say nothing that far (`STRANGE_ROWS`)."""


def no_promise(question: SizedPlan, hull: Hull, *, ran_on: int = 0) -> str | None:
    """Why no deadline is promised, for people; None where one may be.

    Args:
        question: that is asked.
        hull: around own executions.
        ran_on: cores that own runs of the very job had; 0 where there are none.
    """
    platforms = sorted(set(question.plan.platforms))
    asked = (
        (float(question.cluster.cores), "cores", MOST_TIMES_CORES, _cores, float(ran_on)),
        (question.plan.workflow.source_rows, "rows", MOST_TIMES_ROWS, _rows, 0.0),
    )
    for value, unit, times, measured, own in asked:
        for platform in platforms:
            most = max(own, _most(platform, hull, measured))
            if most == 0:
                if ran_on > 0:
                    continue
                return f"nothing was ever measured on {platform.name.lower()}"
            if value > times * most * (1 + _ROUNDING):
                where = platform.name.lower()
                return (
                    f"{value:,.0f} {unit} are {value / most:,.3g} times the {most:,.0f} that were "
                    f"measured on {where}"
                )
    return None


def is_beyond_its_platforms(question: SizedPlan, hull: Hull) -> bool:
    """Whether a platform of the plan never ran on so many, or so few, cores here.

    The hull of all own executions holds a small engine at the cores of a large one.
    """
    cores = math.log(question.cluster.cores)
    for platform in set(question.plan.platforms):
        seen = _seen(platform, hull)
        least = min((low[CORES] for low, _ in seen), default=cores)
        most = max((high[CORES] for _, high in seen), default=cores)
        if not least - LEVEL_STEP <= cores <= most + LEVEL_STEP:
            return True
    return False


_ROUNDING = 1e-9
_Measured = Callable[[StartWidth, Ends | None], float]


def _most(platform: Platform, hull: Hull, measured: _Measured) -> float:
    """The most that own executions on a platform, or those of the start, had; 0 without any."""
    width = shipped_widths()[platform]
    own = (measured(width, ends) for ends in _seen(platform, hull))
    return max(0.0, measured(width, None), *own)


def _seen(platform: Platform, hull: Hull) -> list[Ends]:
    """The ends of every kind of operator that ran on a platform."""
    return [ends for (_, where), ends in hull.pairs.items() if where is platform]


def _cores(width: StartWidth, ends: Ends | None) -> float:
    return _finite(width.most_cores) if ends is None else math.exp(ends[1][CORES])


def _rows(width: StartWidth, ends: Ends | None) -> float:
    return _finite(width.most_rows) if ends is None else math.expm1(ends[1][ROWS])


def _finite(value: float) -> float:
    """0 for what was never measured."""
    return value if value < math.inf else 0.0
