"""Domain objects to bytes and back; no message class passes this door.

Decoding never trusts: bytes that are no message, numbers outside of the vocabulary
and objects that refuse themselves all end in one `InvalidInputError`.
"""

from fedperf_shared.wire.codec.exchange import (
    decode_correction,
    decode_synthetic_rows,
    decode_tangent_question,
    decode_train_request,
    encode_correction,
    encode_synthetic_rows,
    encode_tangent_question,
    encode_train_request,
)
from fedperf_shared.wire.codec.plans import (
    decode_measured_plans,
    decode_plan,
    encode_measured_plans,
    encode_plan,
)
from fedperf_shared.wire.codec.questions import decode_question, encode_question
from fedperf_shared.wire.codec.releases import (
    decode_receipt,
    decode_release,
    decode_signed_receipt,
    decode_signed_release,
    encode_receipt,
    encode_release,
    encode_signed_receipt,
    encode_signed_release,
)
from fedperf_shared.wire.codec.schedules import decode_schedule, encode_schedule

__all__ = [
    "decode_correction",
    "decode_measured_plans",
    "decode_plan",
    "decode_question",
    "decode_receipt",
    "decode_release",
    "decode_schedule",
    "decode_signed_receipt",
    "decode_signed_release",
    "decode_synthetic_rows",
    "decode_tangent_question",
    "decode_train_request",
    "encode_correction",
    "encode_measured_plans",
    "encode_plan",
    "encode_question",
    "encode_receipt",
    "encode_release",
    "encode_schedule",
    "encode_signed_receipt",
    "encode_signed_release",
    "encode_synthetic_rows",
    "encode_tangent_question",
    "encode_train_request",
]
