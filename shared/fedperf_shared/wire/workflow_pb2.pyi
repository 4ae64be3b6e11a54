from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Operator(_message.Message):
    __slots__ = ("kind", "operator_class", "inputs", "output_rows", "row_bytes", "complexity", "code_steps", "iterations", "key_distinct_ratio", "partitions")
    KIND_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_CLASS_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPLEXITY_FIELD_NUMBER: _ClassVar[int]
    CODE_STEPS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    KEY_DISTINCT_RATIO_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    kind: int
    operator_class: int
    inputs: _containers.RepeatedScalarFieldContainer[int]
    output_rows: float
    row_bytes: float
    complexity: int
    code_steps: int
    iterations: int
    key_distinct_ratio: float
    partitions: int
    def __init__(self, kind: _Optional[int] = ..., operator_class: _Optional[int] = ..., inputs: _Optional[_Iterable[int]] = ..., output_rows: _Optional[float] = ..., row_bytes: _Optional[float] = ..., complexity: _Optional[int] = ..., code_steps: _Optional[int] = ..., iterations: _Optional[int] = ..., key_distinct_ratio: _Optional[float] = ..., partitions: _Optional[int] = ...) -> None: ...

class SourceStatistics(_message.Message):
    __slots__ = ("columns", "top_key_share", "distinct_ratio", "null_ratio")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TOP_KEY_SHARE_FIELD_NUMBER: _ClassVar[int]
    DISTINCT_RATIO_FIELD_NUMBER: _ClassVar[int]
    NULL_RATIO_FIELD_NUMBER: _ClassVar[int]
    columns: int
    top_key_share: float
    distinct_ratio: float
    null_ratio: float
    def __init__(self, columns: _Optional[int] = ..., top_key_share: _Optional[float] = ..., distinct_ratio: _Optional[float] = ..., null_ratio: _Optional[float] = ...) -> None: ...

class Workflow(_message.Message):
    __slots__ = ("operators", "sources")
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    operators: _containers.RepeatedCompositeFieldContainer[Operator]
    sources: SourceStatistics
    def __init__(self, operators: _Optional[_Iterable[_Union[Operator, _Mapping]]] = ..., sources: _Optional[_Union[SourceStatistics, _Mapping]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("workflow", "platforms")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    PLATFORMS_FIELD_NUMBER: _ClassVar[int]
    workflow: Workflow
    platforms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, workflow: _Optional[_Union[Workflow, _Mapping]] = ..., platforms: _Optional[_Iterable[int]] = ...) -> None: ...

class ClusterConfig(_message.Message):
    __slots__ = ("nodes", "cores", "memory_bytes", "machine_speed", "queries_before")
    NODES_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MACHINE_SPEED_FIELD_NUMBER: _ClassVar[int]
    QUERIES_BEFORE_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    cores: int
    memory_bytes: int
    machine_speed: float
    queries_before: int
    def __init__(self, nodes: _Optional[int] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., machine_speed: _Optional[float] = ..., queries_before: _Optional[int] = ...) -> None: ...

class MeasuredPlan(_message.Message):
    __slots__ = ("plan", "cluster", "log_runtime_seconds")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOG_RUNTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    cluster: ClusterConfig
    log_runtime_seconds: float
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ..., cluster: _Optional[_Union[ClusterConfig, _Mapping]] = ..., log_runtime_seconds: _Optional[float] = ...) -> None: ...

class MeasuredPlans(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[MeasuredPlan]
    def __init__(self, plans: _Optional[_Iterable[_Union[MeasuredPlan, _Mapping]]] = ...) -> None: ...
