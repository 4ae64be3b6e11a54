"""How far the reference model is off on own executions, workload by workload.

Private input of the residual report; nothing here leaves.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedperf_client.privacy.report_mechanism import WorkloadResiduals
from fedperf_shared.basis import cell_of
from fedperf_shared.execution import Execution
from fedperf_shared.model.batching import PlanGraph
from fedperf_shared.model.fitting import predict
from fedperf_shared.model.ggfn import GGFN


@dataclass(frozen=True, slots=True)
class LabelledGraph:
    """An execution that ended well, as the model sees it.

    Attributes:
        workload: the unit of privacy that it belongs to.
        graph: its plan's features.
        cell: index of its plan's cell in the public basis.
        log_seconds: natural log of its wall run time.
    """

    workload: str
    graph: PlanGraph
    cell: int
    log_seconds: float


def labelled_graphs(executions: Iterable[Execution]) -> list[LabelledGraph]:
    """Those executions that carry a run time, with their features."""
    return [
        LabelledGraph(
            workload=each.workload,
            graph=PlanGraph.of(each.plan, each.cluster),
            cell=cell_of(each.plan).index,
            log_seconds=float(np.log(each.measurement.runtime_seconds)),
        )
        for each in executions
        if each.is_ok and each.measurement is not None
    ]


def workload_residuals(
    reference: GGFN, labelled: Sequence[LabelledGraph]
) -> tuple[WorkloadResiduals, ...]:
    """One entry per workload, in no meaningful order; empty where nothing ran."""
    if not labelled:
        return ()
    residuals = np.array([each.log_seconds for each in labelled]) - predict(
        reference, [each.graph for each in labelled]
    )
    members: dict[str, list[int]] = defaultdict(list)
    for position, each in enumerate(labelled):
        members[each.workload].append(position)
    cells = np.array([each.cell for each in labelled])
    return tuple(
        WorkloadResiduals(cells[positions], residuals[positions]) for positions in members.values()
    )
