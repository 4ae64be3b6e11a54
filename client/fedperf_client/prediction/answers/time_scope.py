"""The scope of a predicted time: what it holds, and what comes before it.

Run times are those of plans on engines that run already, as their logs and profiles have them. To
keep a deadline, add what comes before: waiting for resources and the start of the application. For
an own execution that was its application's first, the log tells how long that was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fedperf_client.text.durations import duration_text
from fedperf_shared.execution import Execution
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import Platform

_IN_PROCESS = "calls in a running process"
_SCOPES: Mapping[Platform, str] = MappingProxyType(
    {
        Platform.SPARK: "a query in a running application",
        Platform.FLINK: "a job on a running cluster",
        Platform.DUCKDB: "a query in an open connection",
        Platform.POLARS: _IN_PROCESS,
        Platform.PANDAS: _IN_PROCESS,
        Platform.SKLEARN: _IN_PROCESS,
    }
)
_ELSEWHERE = "a job from its own start on"
_SEVERAL = "a plan on engines that run already"


@dataclass(frozen=True, slots=True)
class TimeScope:
    """The scope of a time.

    Attributes:
        times_of: what it is the time of, for people.
        startup_seconds: from the submission of its application to its start, where an own
            execution tells it; not in the time.
    """

    times_of: str
    startup_seconds: float | None

    @property
    def sentence(self) -> str:
        """The same in a sentence."""
        said = f"times are of {self.times_of}; waiting and start-up come on top"
        if self.startup_seconds is None:
            return said
        return f"{said}, {duration_text(self.startup_seconds)} when it ran"


def time_scope(plan: Plan, own: Execution | None) -> TimeScope:
    """The scope of answers about `plan`; `own` is the execution asked about, if any."""
    platforms = set(plan.platforms)
    scope = _SEVERAL if len(platforms) > 1 else _SCOPES.get(platforms.pop(), _ELSEWHERE)
    startup = 0.0
    if own is not None and own.measurement is not None:
        startup = own.measurement.startup_seconds
    return TimeScope(scope, startup or None)
