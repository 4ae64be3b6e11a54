"""Explanation of a prediction: the weights in its mixes, and whether two plans are alike work."""

import math

from fedperf_client.prediction.mixture.intervals import HULL_MARGIN
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.personal import PersonalMix
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.template import fingerprint


def rows_of(predictor: PersonalMix, *, readable: bool) -> list[dict[str, object]]:
    """One row for each member of each mix made so far, of most weight first.

    Args:
        predictor: the mixes.
        readable: figures as texts; members without weight are left out.
    """
    rows: list[dict[str, object]] = []
    for outcome in predictor.outcomes.values():
        for member in sorted(outcome.members, key=lambda each: -each.weight):
            if readable and member.weight == 0:
                continue
            error = math.exp(member.error) if math.isfinite(member.error) else None
            rows.append(
                {
                    "question": "inside" if outcome.kind is Asks.SEEN else outcome.kind.value,
                    "levels_held_out": outcome.cut or None,
                    "folds": outcome.folds,
                    "held_out": len(outcome.errors),
                    "member": member.name,
                    "weight": f"{member.weight:.2f}" if readable else member.weight,
                    "error": f"{error:.3f}" if readable and error is not None else error,
                }
            )
    return rows


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans have one shape and platforms, and sizes within a factor of two."""
    sizes = [math.log1p(plan.workflow.source_rows) for plan in (one, other)]
    return (
        abs(sizes[0] - sizes[1]) <= HULL_MARGIN
        and sorted(one.platforms) == sorted(other.platforms)
        and fingerprint(one.workflow) == fingerprint(other.workflow)
    )
