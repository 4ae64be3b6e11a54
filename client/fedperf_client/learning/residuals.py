"""Own executions as a model sees them, and how far the reference is off, workload by workload.

Private input of reports and updates; nothing here leaves.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from fedperf_client.privacy.report_mechanism import WorkloadResiduals
from fedperf_shared.execution import Execution
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.workflow.features import Features, featurize


@dataclass(frozen=True, slots=True)
class LabelledGraph:
    """An execution that ended well, as the model sees it.

    Attributes:
        workload: the unit of privacy that it belongs to.
        graph: its plan's features.
        cell: index of its plan's cell in the public basis.
        log_seconds: natural log of its wall run time.
        epoch: in which it finished; 0 is the first.
    """

    workload: str
    graph: Features
    cell: int
    log_seconds: float
    epoch: int = 0


def labelled_graphs(
    executions: Iterable[Execution], epoch_starts: Sequence[datetime] = ()
) -> list[LabelledGraph]:
    """Those executions that carry a run time, with their features.

    Args:
        executions: own ones.
        epoch_starts: when each epoch after the first one began, oldest first; public.
    """
    return [
        LabelledGraph(
            workload=each.workload,
            graph=featurize(each.plan, each.cluster),
            cell=cell_of(each.plan).index,
            log_seconds=float(np.log(each.measurement.runtime_seconds)),
            epoch=bisect_right(epoch_starts, each.finished_at),
        )
        for each in executions
        if each.is_ok and each.measurement is not None
    ]


def epoch_shares(members: Sequence[LabelledGraph]) -> NDArray[np.float64]:
    """Return each execution's weight: regimes count the same, float64, and they sum to 1.

    So what a workload was like before a drift is rehearsed beside what it is like now, however
    many executions there are of either.
    """
    counts = Counter(each.epoch for each in members)
    return np.array([1 / (len(counts) * counts[each.epoch]) for each in members])


def workload_residuals(
    reference: GgfnArrays, labelled: Sequence[LabelledGraph]
) -> tuple[WorkloadResiduals, ...]:
    """One entry per workload, in no meaningful order; empty where nothing ran.

    Plans are answered one at a time: in a batch, rounding would depend on which others there
    are, and a crafted reference can make rounding as large as a clip. So a workload's entry has
    the same bits whatever else is stored, whatever finite model the reference is.
    """
    if not labelled:
        return ()
    predicted = [float(reference.log_seconds([each.graph])[0]) for each in labelled]
    residuals = np.array([each.log_seconds for each in labelled]) - predicted
    members: dict[str, list[int]] = defaultdict(list)
    for position, each in enumerate(labelled):
        members[each.workload].append(position)
    cells = np.array([each.cell for each in labelled])
    return tuple(
        WorkloadResiduals(cells[positions], residuals[positions]) for positions in members.values()
    )
