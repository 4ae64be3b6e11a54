"""The accuracy that is claimed of the shipped start: half widths of 90 % intervals, by platform.

They hold for jobs whose shapes the start was not trained on. `fedperf-sim calibrate-intervals`
measures them by leaving out shapes, and sizes and cores, of what the project itself
measured, on one machine. For a
platform that was never measured, a factor of 16 each way is claimed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

WIDTHS_PATH = Path(__file__).with_name("start_widths.json")

UNMEASURED_MACHINE = math.log(3.0)
"""Half width for machines of unmeasured speed, log seconds.

An assumption, as all was measured on one machine. At 90 %, a factor of 1.7 for each of four
causes: CPUs of ten years by core, storage and network, engines' versions and settings, the
coordination of several nodes. Their squares add up to that of a factor of about 3.
"""

UNKNOWN_SIZE = math.log(1000.0)
"""Half width for jobs of unknown size: from milliseconds to hours, log seconds."""

OTHER_ENGINE = math.log(10.0)
"""Half width that is added to that of a plan that another engine than Spark's own executes, such
as Photon or one on a GPU, and that is asked about as if it were Spark's; log seconds."""


@dataclass(frozen=True, slots=True)
class StartWidth:
    """Half widths of 90 % intervals around the start's answers on a platform, log seconds.

    Attributes:
        half_width: at rows and cores that it was trained on.
        per_decade: added for each factor of ten beyond these; squares add, as those of
            independent errors do.
        most_rows: of all sources of a plan, that it was trained on.
        most_cores: over all nodes.
        of_estimates: added where rows of a relational plan are estimates; squares add. What plans
            need that are asked about before they ran; 0 where that was not measured.
        of_other_estimates: the same for plans of text, graphs or machine learning as well.
    """

    half_width: float = math.log(16.0)
    per_decade: float = 0.0
    most_rows: float = math.inf
    most_cores: float = math.inf
    of_estimates: float = 0.0
    of_other_estimates: float = 0.0

    def __post_init__(self) -> None:
        known = (self.half_width, self.most_rows, self.most_cores)
        added = (self.per_decade, self.of_estimates, self.of_other_estimates)
        is_known = all(each > 0 for each in known)
        if not (is_known and all(0 <= each < math.inf for each in added)):
            raise InvalidInputError(f"a width holds positive numbers, got {self}")

    def decades_beyond(self, question: PlanOnCluster) -> float:
        """Distance beyond the trained rows and cores, in factors of ten (Euclidean)."""
        rows = math.log10(max(1.0, question.plan.workflow.source_rows / self.most_rows))
        return math.hypot(rows, math.log10(max(1.0, question.cluster.cores / self.most_cores)))

    def estimates_about(self, workflow: Workflow) -> float:
        """The half width that estimates of rows add; 0 where a run counted them."""
        if not workflow.rows_are_estimates:
            return 0.0
        return self.of_estimates if is_relational(workflow) else self.of_other_estimates

    def about(self, question: PlanOnCluster) -> float:
        """Return the half width of the prediction interval of a query."""
        return math.hypot(self.half_width, self.per_decade * self.decades_beyond(question))


def is_relational(workflow: Workflow) -> bool:
    """Whether all of its operators are, so that rows tell most of their work."""
    return all(each.operator_class is OperatorClass.RELATIONAL for each in workflow.operators)


@lru_cache(maxsize=1)
def shipped_widths() -> Mapping[Platform, StartWidth]:
    """The width of every platform; an edited file fails as `json.loads` or `StartWidth` does."""
    written = json.loads(WIDTHS_PATH.read_bytes()) if WIDTHS_PATH.exists() else {}
    measured = {Platform[name]: StartWidth(**width) for name, width in written.items()}
    return MappingProxyType({each: measured.get(each, StartWidth()) for each in Platform})


def half_width_about(question: PlanOnCluster) -> float:
    """The half width claimed for a plan on its resources: the largest of its platforms.

    It is wider by `UNMEASURED_MACHINE` where the machine's speed is 1, as logs of others have it,
    and where rows are estimates.
    """
    widths = shipped_widths()
    measured = max(widths[each].about(question) for each in set(question.plan.platforms))
    is_known = question.cluster.machine_speed != 1.0
    machine = 0.0 if is_known else UNMEASURED_MACHINE
    return math.hypot(measured, machine, estimates_half_width(question))


def estimates_half_width(question: PlanOnCluster) -> float:
    """The half width that estimates of rows add, the largest of the plan's platforms.

    0 where a run counted the rows; where it knows those of its sources within a factor, this
    factor. Own executions were counted as well: their errors do not tell it.
    """
    widths, plan = shipped_widths(), question.plan
    estimated = max(widths[each].estimates_about(plan.workflow) for each in set(plan.platforms))
    within = 1.0 if question.job is None else question.job.rows_within
    return math.hypot(estimated, math.log(within))


def other_engine_half_width(question: PlanOnCluster) -> float:
    """Return what is added to half widths of plans on another engine; 0 for other plans."""
    return OTHER_ENGINE if question.job is not None and question.job.is_accelerated else 0.0


def write_widths(widths: Mapping[Platform, StartWidth], path: Path = WIDTHS_PATH) -> None:
    """Write the widths to the file that ships."""
    widths_by_name = {platform.name: asdict(width) for platform, width in widths.items()}
    path.write_text(json.dumps(widths_by_name, indent=1) + "\n", encoding="utf-8")
    shipped_widths.cache_clear()
