"""The largest jobs that ran on each platform: up to where advice may trust it.

The hull of all executions holds a small engine at the size of a large one as soon as each was seen
somewhere. A comparison of platforms for one job must not rely on that. So a plan is out of reach
where one of its platforms never ran a tenth of the job's source rows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fedperf_client.prediction.mixture.intervals import Estimate, Hull
from fedperf_client.prediction.mixture.personal import PersonalMix
from fedperf_shared.execution import SizedPlan
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, Platform

TIMES = 10.0
"""Jobs up to so many times larger than any before are within reach."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The most source rows of an own execution that used each platform."""

    rows: Mapping[Platform, float]

    @classmethod
    def of(cls, hull: Hull) -> Self:
        """The reach of own executions, from the hull around them."""
        rows: dict[Platform, float] = {}
        for (_, platform), (_, most) in hull.pairs.items():
            if platform in NAMED_PLATFORMS:
                rows[platform] = max(rows.get(platform, 0.0), math.expm1(most[0]))
        return cls(rows)

    def beyond(self, plan: Plan) -> tuple[Platform, ...]:
        """Platforms of the plan that ran, but only much smaller jobs."""
        asked = plan.workflow.source_rows
        known = sorted(set(plan.platforms) & self.rows.keys())
        return tuple(each for each in known if asked > TIMES * self.rows[each])

    def estimate(self, predictor: PersonalMix, questions: Sequence[SizedPlan]) -> list[Estimate]:
        """The predictor's estimates; those beyond reach count as extrapolating."""
        return [
            found.widened() if self.beyond(question.plan) else found
            for question, found in zip(questions, predictor.estimate(questions), strict=True)
        ]
