"""Executions of the synthetic prediction data, as a store holds them."""

import numpy as np

from fedperf_shared.execution import Execution, ExecutionStatus, Measurement
from tests.unit.client.executions import START
from tests.unit.client.prediction.synthetic import draw_history


def executions_of_world(seed: int, count: int, prefix: str) -> list[Execution]:
    history = draw_history(np.random.default_rng([seed, count]), count)
    return [
        Execution(
            execution_id=f"{prefix}-{number}",
            workload=f"{prefix}-{workload}",
            plan=question.plan,
            cluster=question.cluster,
            status=ExecutionStatus.OK,
            measurement=Measurement(float(np.exp(log_seconds)), 0.0, 1, 0, 0),
            finished_at=START,
        )
        for number, (question, workload, log_seconds) in enumerate(
            zip(history.queries, history.workloads, history.log_seconds, strict=True)
        )
    ]
