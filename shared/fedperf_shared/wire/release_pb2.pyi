from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReleaseKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RELEASE_KIND_UNSPECIFIED: _ClassVar[ReleaseKind]
    RELEASE_KIND_RESIDUAL_REPORT: _ClassVar[ReleaseKind]
    RELEASE_KIND_MODEL_UPDATE: _ClassVar[ReleaseKind]
RELEASE_KIND_UNSPECIFIED: ReleaseKind
RELEASE_KIND_RESIDUAL_REPORT: ReleaseKind
RELEASE_KIND_MODEL_UPDATE: ReleaseKind

class SlotKey(_message.Message):
    __slots__ = ("kind", "window", "index")
    KIND_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    kind: ReleaseKind
    window: int
    index: int
    def __init__(self, kind: _Optional[_Union[ReleaseKind, str]] = ..., window: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class ResidualReport(_message.Message):
    __slots__ = ("slot", "basis_version", "reference_version", "grid_exponent", "values")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BASIS_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRID_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    slot: SlotKey
    basis_version: int
    reference_version: int
    grid_exponent: int
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[_Union[SlotKey, _Mapping]] = ..., basis_version: _Optional[int] = ..., reference_version: _Optional[int] = ..., grid_exponent: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...

class DirectedReport(_message.Message):
    __slots__ = ("slot", "design_version", "grid_exponent", "values")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DESIGN_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRID_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    slot: SlotKey
    design_version: int
    grid_exponent: int
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[_Union[SlotKey, _Mapping]] = ..., design_version: _Optional[int] = ..., grid_exponent: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...

class FloatArray(_message.Message):
    __slots__ = ("shape", "float32_little_endian")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_LITTLE_ENDIAN_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    float32_little_endian: bytes
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., float32_little_endian: _Optional[bytes] = ...) -> None: ...

class ModelUpdate(_message.Message):
    __slots__ = ("slot", "architecture", "base_version", "arrays")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    slot: SlotKey
    architecture: int
    base_version: int
    arrays: _containers.RepeatedCompositeFieldContainer[FloatArray]
    def __init__(self, slot: _Optional[_Union[SlotKey, _Mapping]] = ..., architecture: _Optional[int] = ..., base_version: _Optional[int] = ..., arrays: _Optional[_Iterable[_Union[FloatArray, _Mapping]]] = ...) -> None: ...

class TangentUpdate(_message.Message):
    __slots__ = ("slot", "base_version", "grid_exponent", "values")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    BASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRID_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    slot: SlotKey
    base_version: int
    grid_exponent: int
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[_Union[SlotKey, _Mapping]] = ..., base_version: _Optional[int] = ..., grid_exponent: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("residual_report", "model_update", "directed_report", "tangent_update")
    RESIDUAL_REPORT_FIELD_NUMBER: _ClassVar[int]
    MODEL_UPDATE_FIELD_NUMBER: _ClassVar[int]
    DIRECTED_REPORT_FIELD_NUMBER: _ClassVar[int]
    TANGENT_UPDATE_FIELD_NUMBER: _ClassVar[int]
    residual_report: ResidualReport
    model_update: ModelUpdate
    directed_report: DirectedReport
    tangent_update: TangentUpdate
    def __init__(self, residual_report: _Optional[_Union[ResidualReport, _Mapping]] = ..., model_update: _Optional[_Union[ModelUpdate, _Mapping]] = ..., directed_report: _Optional[_Union[DirectedReport, _Mapping]] = ..., tangent_update: _Optional[_Union[TangentUpdate, _Mapping]] = ...) -> None: ...

class SignedRelease(_message.Message):
    __slots__ = ("payload", "signature")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: bytes
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("release_id", "payload_sha256", "sequence", "received_at_unix_ms", "organization_id")
    RELEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SHA256_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    ORGANIZATION_ID_FIELD_NUMBER: _ClassVar[int]
    release_id: bytes
    payload_sha256: bytes
    sequence: int
    received_at_unix_ms: int
    organization_id: bytes
    def __init__(self, release_id: _Optional[bytes] = ..., payload_sha256: _Optional[bytes] = ..., sequence: _Optional[int] = ..., received_at_unix_ms: _Optional[int] = ..., organization_id: _Optional[bytes] = ...) -> None: ...

class SignedReceipt(_message.Message):
    __slots__ = ("payload", "signature")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: bytes
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...
