"""How large the jobs were that ran on each platform: what advice may trust it with.

The hull of all executions holds a small engine at the size of a large one as soon as each
was seen somewhere. Whoever compares platforms for one job must not: a plan is out of reach
where one of its platforms never ran a tenth of the job's source rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedperf_client.prediction.mixture.intervals import Estimate
from fedperf_client.prediction.mixture.mixture import Known
from fedperf_client.prediction.mixture.personal import Personalized
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
    def of(cls, known: Known) -> Self:
        """The reach of own executions, from their flat features."""
        if len(known) == 0:
            return cls({})
        used = known.samples.platforms()
        rows = np.expm1(known.places.size)
        return cls(
            {
                platform: float(rows[used[:, platform]].max())
                for platform in NAMED_PLATFORMS
                if used[:, platform].any()
            }
        )

    def beyond(self, plan: Plan) -> tuple[Platform, ...]:
        """Platforms of the plan that ran, but only much smaller jobs."""
        asked = plan.workflow.source_rows
        known = sorted(set(plan.platforms) & self.rows.keys())
        return tuple(each for each in known if asked > TIMES * self.rows[each])

    def estimate(self, predictor: Personalized, questions: Sequence[SizedPlan]) -> list[Estimate]:
        """What the predictor says; beyond reach as extrapolating."""
        return [
            found.widened() if self.beyond(question.plan) else found
            for question, found in zip(questions, predictor.estimate(questions), strict=True)
        ]
