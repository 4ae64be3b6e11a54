"""Plans and clusters to bytes and back (workflow.proto)."""

from collections.abc import Iterable

from fedperf_shared.execution import ClusterConfig, MeasuredPlan
from fedperf_shared.wire import workflow_pb2
from fedperf_shared.wire.codec.decoder import decoded, encoded
from fedperf_shared.workflow.graph import Operator, Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind, Platform


def encode_plan(plan: Plan) -> bytes:
    """A plan as bytes, equal for equal plans."""
    return encoded(plan_to_message(plan))


def decode_plan(payload: bytes) -> Plan:
    """The plan that `encode_plan` wrote.

    Raises:
        InvalidInputError: not a plan, or one that is not well formed.
    """
    return decoded("plan", workflow_pb2.Plan, payload, plan_from_message)


def encode_measured_plans(plans: Iterable[MeasuredPlan]) -> bytes:
    """Measured plans as bytes, in their order."""
    return encoded(workflow_pb2.MeasuredPlans(plans=map(_measured_to_message, plans)))


def decode_measured_plans(payload: bytes) -> tuple[MeasuredPlan, ...]:
    """The measured plans that `encode_measured_plans` wrote.

    Raises:
        InvalidInputError: not measured plans, or one of them is not well formed.
    """
    return decoded(
        "list of measured plans",
        workflow_pb2.MeasuredPlans,
        payload,
        lambda message: tuple(map(_measured_from_message, message.plans)),
    )


def plan_to_message(plan: Plan) -> workflow_pb2.Plan:
    """Domain to message."""
    return workflow_pb2.Plan(
        workflow=workflow_pb2.Workflow(
            operators=[_operator_to_message(each) for each in plan.workflow.operators],
            sources=workflow_pb2.SourceStatistics(
                columns=plan.workflow.sources.columns,
                top_key_share=plan.workflow.sources.top_key_share,
                distinct_ratio=plan.workflow.sources.distinct_ratio,
                null_ratio=plan.workflow.sources.null_ratio,
            ),
        ),
        platforms=[int(platform) for platform in plan.platforms],
    )


def plan_from_message(message: workflow_pb2.Plan) -> Plan:
    """Message to domain; raises ValueError or FedperfError on nonsense."""
    sources = message.workflow.sources
    workflow = Workflow(
        tuple(_operator_from_message(each) for each in message.workflow.operators),
        SourceStatistics(
            sources.columns, sources.top_key_share, sources.distinct_ratio, sources.null_ratio
        ),
    )
    return Plan(workflow, tuple(Platform(number) for number in message.platforms))


def cluster_to_message(cluster: ClusterConfig) -> workflow_pb2.ClusterConfig:
    """Domain to message."""
    return workflow_pb2.ClusterConfig(
        nodes=cluster.nodes,
        cores=cluster.cores,
        memory_bytes=cluster.memory_bytes,
        machine_speed=cluster.machine_speed,
        queries_before=cluster.queries_before,
    )


def cluster_from_message(message: workflow_pb2.ClusterConfig) -> ClusterConfig:
    """Message to domain."""
    return ClusterConfig(
        message.nodes,
        message.cores,
        message.memory_bytes,
        message.machine_speed,
        message.queries_before,
    )


def _operator_to_message(operator: Operator) -> workflow_pb2.Operator:
    return workflow_pb2.Operator(
        kind=operator.kind,
        operator_class=operator.operator_class,
        inputs=operator.inputs,
        output_rows=operator.output_rows,
        row_bytes=operator.row_bytes,
        complexity=operator.complexity,
        code_steps=operator.code_steps,
        iterations=operator.iterations,
        key_distinct_ratio=operator.key_distinct_ratio,
        partitions=operator.partitions,
    )


def _operator_from_message(message: workflow_pb2.Operator) -> Operator:
    return Operator(
        kind=OperatorKind(message.kind),
        operator_class=OperatorClass(message.operator_class),
        inputs=tuple(message.inputs),
        output_rows=message.output_rows,
        row_bytes=message.row_bytes,
        complexity=Complexity(message.complexity),
        code_steps=message.code_steps,
        iterations=message.iterations,
        key_distinct_ratio=message.key_distinct_ratio,
        partitions=message.partitions,
    )


def _measured_to_message(measured: MeasuredPlan) -> workflow_pb2.MeasuredPlan:
    return workflow_pb2.MeasuredPlan(
        plan=plan_to_message(measured.plan),
        cluster=cluster_to_message(measured.cluster),
        log_runtime_seconds=measured.log_seconds,
    )


def _measured_from_message(message: workflow_pb2.MeasuredPlan) -> MeasuredPlan:
    return MeasuredPlan(
        plan_from_message(message.plan),
        cluster_from_message(message.cluster),
        message.log_runtime_seconds,
    )
