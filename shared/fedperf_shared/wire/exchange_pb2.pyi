from fedperf_shared.wire import release_pb2 as _release_pb2
from fedperf_shared.wire import workflow_pb2 as _workflow_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODEL_METHOD_UNSPECIFIED: _ClassVar[ModelMethod]
    MODEL_METHOD_TANGENT: _ClassVar[ModelMethod]
MODEL_METHOD_UNSPECIFIED: ModelMethod
MODEL_METHOD_TANGENT: ModelMethod

class JoinRequest(_message.Message):
    __slots__ = ("token", "certificate_request")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    certificate_request: bytes
    def __init__(self, token: _Optional[bytes] = ..., certificate_request: _Optional[bytes] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("organization_id", "certificate", "ca_certificate", "coordinator_public_key", "exchange_address", "fleet_address")
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CA_CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FLEET_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    organization_id: bytes
    certificate: bytes
    ca_certificate: bytes
    coordinator_public_key: bytes
    exchange_address: str
    fleet_address: str
    def __init__(self, organization_id: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., ca_certificate: _Optional[bytes] = ..., coordinator_public_key: _Optional[bytes] = ..., exchange_address: _Optional[str] = ..., fleet_address: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("now_unix_ms", "model_version", "feature_schema_version", "basis_version", "reference_version", "epoch_starts_unix_ms", "correction_published_unix_ms")
    NOW_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURE_SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASIS_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_STARTS_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    CORRECTION_PUBLISHED_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    now_unix_ms: int
    model_version: int
    feature_schema_version: int
    basis_version: int
    reference_version: int
    epoch_starts_unix_ms: _containers.RepeatedScalarFieldContainer[int]
    correction_published_unix_ms: int
    def __init__(self, now_unix_ms: _Optional[int] = ..., model_version: _Optional[int] = ..., feature_schema_version: _Optional[int] = ..., basis_version: _Optional[int] = ..., reference_version: _Optional[int] = ..., epoch_starts_unix_ms: _Optional[_Iterable[int]] = ..., correction_published_unix_ms: _Optional[int] = ...) -> None: ...

class GetTimetableRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SlotTimes(_message.Message):
    __slots__ = ("opens_after_ms", "replies_after_ms")
    OPENS_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    REPLIES_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    opens_after_ms: int
    replies_after_ms: int
    def __init__(self, opens_after_ms: _Optional[int] = ..., replies_after_ms: _Optional[int] = ...) -> None: ...

class Timetable(_message.Message):
    __slots__ = ("period_start_unix_ms", "window_ms", "windows", "report_slots", "model_slots", "model_method", "extra_slots", "extra_windows", "first_slots")
    PERIOD_START_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    REPORT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_METHOD_FIELD_NUMBER: _ClassVar[int]
    EXTRA_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOTS_FIELD_NUMBER: _ClassVar[int]
    period_start_unix_ms: int
    window_ms: int
    windows: int
    report_slots: _containers.RepeatedCompositeFieldContainer[SlotTimes]
    model_slots: _containers.RepeatedCompositeFieldContainer[SlotTimes]
    model_method: ModelMethod
    extra_slots: _containers.RepeatedCompositeFieldContainer[SlotTimes]
    extra_windows: int
    first_slots: _containers.RepeatedCompositeFieldContainer[SlotTimes]
    def __init__(self, period_start_unix_ms: _Optional[int] = ..., window_ms: _Optional[int] = ..., windows: _Optional[int] = ..., report_slots: _Optional[_Iterable[_Union[SlotTimes, _Mapping]]] = ..., model_slots: _Optional[_Iterable[_Union[SlotTimes, _Mapping]]] = ..., model_method: _Optional[_Union[ModelMethod, str]] = ..., extra_slots: _Optional[_Iterable[_Union[SlotTimes, _Mapping]]] = ..., extra_windows: _Optional[int] = ..., first_slots: _Optional[_Iterable[_Union[SlotTimes, _Mapping]]] = ...) -> None: ...

class ReportParameters(_message.Message):
    __slots__ = ("noise_multiplier", "residual_clip", "public_counts")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_CLIP_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_COUNTS_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    residual_clip: float
    public_counts: bool
    def __init__(self, noise_multiplier: _Optional[float] = ..., residual_clip: _Optional[float] = ..., public_counts: _Optional[bool] = ...) -> None: ...

class DirectedParameters(_message.Message):
    __slots__ = ("noise_multiplier", "nominal_workloads")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    NOMINAL_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    nominal_workloads: float
    def __init__(self, noise_multiplier: _Optional[float] = ..., nominal_workloads: _Optional[float] = ...) -> None: ...

class TrainingParameters(_message.Message):
    __slots__ = ("noise_multiplier", "sampling_probability", "steps", "clip_norm", "nominal_workloads")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    NOMINAL_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    sampling_probability: float
    steps: int
    clip_norm: float
    nominal_workloads: float
    def __init__(self, noise_multiplier: _Optional[float] = ..., sampling_probability: _Optional[float] = ..., steps: _Optional[int] = ..., clip_norm: _Optional[float] = ..., nominal_workloads: _Optional[float] = ...) -> None: ...

class TangentParameters(_message.Message):
    __slots__ = ("noise_multiplier", "nominal_workloads")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    NOMINAL_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    nominal_workloads: float
    def __init__(self, noise_multiplier: _Optional[float] = ..., nominal_workloads: _Optional[float] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("key", "report", "training", "directed", "tangent")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    DIRECTED_FIELD_NUMBER: _ClassVar[int]
    TANGENT_FIELD_NUMBER: _ClassVar[int]
    key: _release_pb2.SlotKey
    report: ReportParameters
    training: TrainingParameters
    directed: DirectedParameters
    tangent: TangentParameters
    def __init__(self, key: _Optional[_Union[_release_pb2.SlotKey, _Mapping]] = ..., report: _Optional[_Union[ReportParameters, _Mapping]] = ..., training: _Optional[_Union[TrainingParameters, _Mapping]] = ..., directed: _Optional[_Union[DirectedParameters, _Mapping]] = ..., tangent: _Optional[_Union[TangentParameters, _Mapping]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("timetable", "slots")
    TIMETABLE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    timetable: Timetable
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    def __init__(self, timetable: _Optional[_Union[Timetable, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ...) -> None: ...

class DeclareScheduleReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetReceiptsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Receipts(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[_release_pb2.SignedReceipt]
    def __init__(self, receipts: _Optional[_Iterable[_Union[_release_pb2.SignedReceipt, _Mapping]]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("version", "checkpoint")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    version: int
    checkpoint: bytes
    def __init__(self, version: _Optional[int] = ..., checkpoint: _Optional[bytes] = ...) -> None: ...

class GetCorrectionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Correction(_message.Message):
    __slots__ = ("basis_version", "reference_version", "mean", "covariance")
    BASIS_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    COVARIANCE_FIELD_NUMBER: _ClassVar[int]
    basis_version: int
    reference_version: int
    mean: _containers.RepeatedScalarFieldContainer[float]
    covariance: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, basis_version: _Optional[int] = ..., reference_version: _Optional[int] = ..., mean: _Optional[_Iterable[float]] = ..., covariance: _Optional[_Iterable[float]] = ...) -> None: ...

class GetSyntheticRowsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SyntheticRow(_message.Message):
    __slots__ = ("plan", "cluster", "log_runtime_seconds", "segment")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    LOG_RUNTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    plan: _workflow_pb2.Plan
    cluster: _workflow_pb2.ClusterConfig
    log_runtime_seconds: float
    segment: int
    def __init__(self, plan: _Optional[_Union[_workflow_pb2.Plan, _Mapping]] = ..., cluster: _Optional[_Union[_workflow_pb2.ClusterConfig, _Mapping]] = ..., log_runtime_seconds: _Optional[float] = ..., segment: _Optional[int] = ...) -> None: ...

class SyntheticBatch(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[SyntheticRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[SyntheticRow, _Mapping]]] = ...) -> None: ...

class GetQuestionRequest(_message.Message):
    __slots__ = ("slot",)
    SLOT_FIELD_NUMBER: _ClassVar[int]
    slot: _release_pb2.SlotKey
    def __init__(self, slot: _Optional[_Union[_release_pb2.SlotKey, _Mapping]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("slot", "version", "basis_version", "reference_version", "center", "clips", "directions")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASIS_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    CENTER_FIELD_NUMBER: _ClassVar[int]
    CLIPS_FIELD_NUMBER: _ClassVar[int]
    DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    slot: _release_pb2.SlotKey
    version: int
    basis_version: int
    reference_version: int
    center: _containers.RepeatedScalarFieldContainer[float]
    clips: _containers.RepeatedScalarFieldContainer[float]
    directions: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, slot: _Optional[_Union[_release_pb2.SlotKey, _Mapping]] = ..., version: _Optional[int] = ..., basis_version: _Optional[int] = ..., reference_version: _Optional[int] = ..., center: _Optional[_Iterable[float]] = ..., clips: _Optional[_Iterable[float]] = ..., directions: _Optional[_Iterable[float]] = ...) -> None: ...

class TangentQuestion(_message.Message):
    __slots__ = ("clip", "coefficients")
    CLIP_FIELD_NUMBER: _ClassVar[int]
    COEFFICIENTS_FIELD_NUMBER: _ClassVar[int]
    clip: float
    coefficients: _release_pb2.FloatArray
    def __init__(self, clip: _Optional[float] = ..., coefficients: _Optional[_Union[_release_pb2.FloatArray, _Mapping]] = ...) -> None: ...

class TrainRequest(_message.Message):
    __slots__ = ("slot", "architecture", "base_version", "arrays", "question")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    slot: _release_pb2.SlotKey
    architecture: int
    base_version: int
    arrays: _containers.RepeatedCompositeFieldContainer[_release_pb2.FloatArray]
    question: TangentQuestion
    def __init__(self, slot: _Optional[_Union[_release_pb2.SlotKey, _Mapping]] = ..., architecture: _Optional[int] = ..., base_version: _Optional[int] = ..., arrays: _Optional[_Iterable[_Union[_release_pb2.FloatArray, _Mapping]]] = ..., question: _Optional[_Union[TangentQuestion, _Mapping]] = ...) -> None: ...
