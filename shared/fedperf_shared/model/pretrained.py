"""The pretrained model that ships with fedperf, and how accurate its predictions are.

`fedperf-sim train-base` trains the model on plans that the project measured. It is version 1 of
the shared model of every federation, and organizations predict with it before they join. The
environment variable `FEDPERF_BASE_MODEL` names another checkpoint.

The half widths are those of 90 % intervals, by platform, for jobs of shapes that the model was
not trained on. `fedperf-sim calibrate-intervals` measures them on one machine, by leaving out
shapes, input sizes and cores. A platform that was never measured has a factor of 16 each way.
"""

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.checkpoint import Checkpoint, load_checkpoint
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, Platform

PRETRAINED_PATH = Path(__file__).with_name("public_start.safetensors")
PRETRAINED_VERSION = 1
PRETRAINED_VARIABLE = "FEDPERF_BASE_MODEL"
OLD_VARIABLE = "FEDPERF_PUBLIC_START"

WIDTHS_PATH = Path(__file__).with_name("start_widths.json")

UNMEASURED_MACHINE = math.log(3.0)
"""Half width for machines of unmeasured speed, log seconds.

An assumption, because everything was measured on one machine. At 90 %, it is a factor of 1.7 for
each of four causes: ten years of CPUs by core, storage and network, versions and settings of
engines, the coordination of several nodes. Their squares add up to that of a factor of about 3.
"""

# Half width for jobs of unknown input size: from milliseconds to hours, log seconds.
UNKNOWN_SIZE = math.log(1000.0)

# Added half width, log seconds, for plans that another engine than Spark's own executes, such as
# Photon or one on a GPU, and that are predicted as if it were Spark's.
OTHER_ENGINE = math.log(10.0)


def pretrained_model_path() -> Path:
    """Return the path of the pretrained model."""
    if path := os.environ.get(PRETRAINED_VARIABLE):
        return Path(path)
    if path := os.environ.get(OLD_VARIABLE):
        _warn_of_old_variable()
    return Path(path or PRETRAINED_PATH)


@cache
def _warn_of_old_variable() -> None:
    print(f"warning: {OLD_VARIABLE} is now {PRETRAINED_VARIABLE}", file=sys.stderr)


def load_pretrained_model() -> Checkpoint:
    """Load the pretrained model; errors as `load_checkpoint`."""
    return load_checkpoint(pretrained_model_path())


@dataclass(frozen=True, slots=True)
class PretrainedWidth:
    """Half widths of the pretrained model's 90 % intervals on a platform, log seconds."""

    half_width: float = math.log(16.0)  # at rows and cores within the training data
    # Added for each factor of ten beyond these; squares add, as those of independent errors do.
    per_decade: float = 0.0
    most_rows: float = math.inf  # largest number of source rows of a plan in the training data
    most_cores: float = math.inf  # largest number of cores over all nodes in the training data
    # Added where rows of a relational plan are estimates, as before a run; squares add. 0 where it
    # was not measured.
    of_estimates: float = 0.0
    of_other_estimates: float = 0.0  # the same for plans with text, graphs or machine learning

    def __post_init__(self) -> None:
        positive = (self.half_width, self.most_rows, self.most_cores)
        added = (self.per_decade, self.of_estimates, self.of_other_estimates)
        is_positive = all(value > 0 for value in positive)
        if not (is_positive and all(0 <= value < math.inf for value in added)):
            raise InvalidInputError(f"a width holds positive numbers, got {self}")

    def decades_beyond(self, query: PlanOnCluster) -> float:
        """Return the Euclidean distance beyond the training data, in factors of ten."""
        rows = math.log10(max(1.0, query.plan.workflow.source_rows / self.most_rows))
        return math.hypot(rows, math.log10(max(1.0, query.cluster.cores / self.most_cores)))

    def at(self, query: PlanOnCluster) -> float:
        """Return the half width of the prediction interval of a query."""
        return math.hypot(self.half_width, self.per_decade * self.decades_beyond(query))


def is_relational(workflow: Workflow) -> bool:
    """Return whether all operators are relational, so that rows determine most of their work."""
    return all(each.operator_class is OperatorClass.RELATIONAL for each in workflow.operators)


@lru_cache(maxsize=1)
def shipped_widths() -> Mapping[Platform, PretrainedWidth]:
    """Return the width of every platform; an edited file fails as `json.loads` does."""
    stored = json.loads(WIDTHS_PATH.read_bytes()) if WIDTHS_PATH.exists() else {}
    measured = {Platform[name]: PretrainedWidth(**width) for name, width in stored.items()}
    return MappingProxyType({each: measured.get(each, PretrainedWidth()) for each in Platform})


def pretrained_half_width(query: PlanOnCluster) -> float:
    """Return the half width of a query's interval: the largest of its platforms.

    It is wider by `UNMEASURED_MACHINE` where the machine's speed is 1, as in logs of others, and
    where rows are estimates.
    """
    widths = shipped_widths()
    measured = max(widths[each].at(query) for each in set(query.plan.platforms))
    is_measured = query.cluster.machine_speed != 1.0
    machine = 0.0 if is_measured else UNMEASURED_MACHINE
    return math.hypot(measured, machine, estimates_half_width(query))


def estimates_half_width(query: PlanOnCluster) -> float:
    """Return the half width that estimated rows add, the largest of the plan's platforms.

    It is 0 for actual cardinalities. If the run gives its source rows within a factor, it is this
    factor. The errors of stored executions do not contain it, because their rows are actual.
    """
    plan, estimated = query.plan, 0.0
    if plan.workflow.rows_are_estimates:
        widths = [shipped_widths()[each] for each in set(plan.platforms)]
        of_relational = is_relational(plan.workflow)
        estimated = max(w.of_estimates if of_relational else w.of_other_estimates for w in widths)
    within = 1.0 if query.job is None else query.job.rows_within
    return math.hypot(estimated, math.log(within))


def other_engine_half_width(query: PlanOnCluster) -> float:
    """Return the half width that another engine than Spark's own adds; 0 for other plans."""
    return OTHER_ENGINE if query.job is not None and query.job.is_accelerated else 0.0


def write_widths(widths: Mapping[Platform, PretrainedWidth], path: Path = WIDTHS_PATH) -> None:
    """Write the widths to the file that ships."""
    widths_by_name = {platform.name: asdict(width) for platform, width in widths.items()}
    path.write_text(json.dumps(widths_by_name, indent=1) + "\n", encoding="utf-8")
    shipped_widths.cache_clear()
