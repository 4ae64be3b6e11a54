"""The information given about a plan: actual or estimated cardinalities.

Papers give models the rows between operators as a run counted them. Before a run only estimates
exist. The earlier queries of the session are available before a run as well.
"""

from collections.abc import Sequence

from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.workflow.cardinality import plan_with_estimated_cardinalities, workflow_before
from fedperf_shared.workflow.graph import Workflow
from fedperf_simulations.harness.cells import Value

ACTUAL, ESTIMATED = "actual cardinalities", "estimated cardinalities"
BOTH = (ACTUAL, ESTIMATED)


def workflow_with(workflow: Workflow, information: Value) -> Workflow:
    """Return the workflow with actual or with estimated cardinalities."""
    return workflow if information == ACTUAL else workflow_before(workflow)


def queries_with(queries: Sequence[PlanOnCluster], information: Value) -> list[PlanOnCluster]:
    """Return the queries with actual or with estimated cardinalities."""
    if information == ACTUAL:
        return list(queries)
    return [
        PlanOnCluster(plan_with_estimated_cardinalities(each.plan), each.cluster)
        for each in queries
    ]
