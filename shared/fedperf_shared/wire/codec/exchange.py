"""Messages of the Exchange and the fleet, without releases, to bytes and back (exchange.proto)."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import lru_cache

import numpy as np

from fedperf_shared.exchange import (
    Correction,
    JoinReply,
    SharedModel,
    Status,
    SyntheticRow,
    TrainRequest,
)
from fedperf_shared.releases.period import from_unix_ms, to_unix_ms
from fedperf_shared.releases.questions import TangentQuestion
from fedperf_shared.wire import exchange_pb2
from fedperf_shared.wire.codec.decoder import decoded, encoded, guarded, received
from fedperf_shared.wire.codec.plans import (
    cluster_from_message,
    cluster_to_message,
    plan_from_message,
    plan_to_message,
)
from fedperf_shared.wire.codec.releases import (
    array_from_message,
    array_to_message,
    key_from_message,
    key_to_message,
)
from fedperf_shared.workflow.vocabulary import Platform


def encode_train_request(request: TrainRequest) -> bytes:
    """The body of the message that asks a node for a model update."""
    question = request.question
    return encoded(
        exchange_pb2.TrainRequest(
            slot=key_to_message(request.slot),
            architecture=request.architecture,
            base_version=request.base_version,
            arrays=map(array_to_message, request.arrays),
            question=None if question is None else _question_to_message(question),
            rehearsal=map(_row_to_message, request.rehearsal),
        )
    )


def decode_train_request(body: bytes) -> TrainRequest:
    """The request that `encode_train_request` wrote; whether it is due is not yet judged.

    Raises:
        InvalidInputError: not a request.
    """
    return received("train request", exchange_pb2.TrainRequest, body, _request_from_message)


def encode_tangent_question(question: TangentQuestion) -> bytes:
    """A question as the bytes that a coordinator keeps."""
    return encoded(_question_to_message(question))


def decode_tangent_question(payload: bytes) -> TangentQuestion:
    """The question that `encode_tangent_question` wrote.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    kind = exchange_pb2.TangentQuestion
    return decoded("question at a tangent", kind, payload, _question_from_message)


def encode_correction(correction: Correction) -> bytes:
    """A correction as the bytes that are published."""
    return encoded(correction_to_message(correction))


@lru_cache(maxsize=2)
def decode_correction(payload: bytes) -> Correction | None:
    """The correction that `encode_correction` wrote, decoded once; None for no bytes.

    Raises:
        InvalidInputError: not a correction.
    """
    return decoded("correction", exchange_pb2.Correction, payload, correction_from_message)


def encode_synthetic_rows(rows: Iterable[SyntheticRow]) -> bytes:
    """Synthetic rows as the bytes that are published."""
    return encoded(synthetic_rows_to_message(rows))


def decode_synthetic_rows(payload: bytes) -> tuple[SyntheticRow, ...]:
    """The rows that `encode_synthetic_rows` wrote; none for no bytes.

    Raises:
        InvalidInputError: a row is not well formed.
    """
    return decoded(
        "synthetic batch", exchange_pb2.SyntheticBatch, payload, synthetic_rows_from_message
    )


def correction_to_message(correction: Correction | None) -> exchange_pb2.Correction:
    """Domain to message; the empty one where there is none yet."""
    if correction is None:
        return exchange_pb2.Correction()
    return exchange_pb2.Correction(
        basis_version=correction.basis_version,
        reference_version=correction.reference_version,
        mean=correction.mean.tolist(),
        covariance=correction.covariance.reshape(-1).tolist(),
    )


def synthetic_rows_to_message(rows: Iterable[SyntheticRow]) -> exchange_pb2.SyntheticBatch:
    """Domain to message."""
    return exchange_pb2.SyntheticBatch(rows=map(_row_to_message, rows))


def correction_from_message(message: exchange_pb2.Correction) -> Correction | None:
    """Message to domain; None for the empty message, which says that there is none yet.

    Raises:
        InvalidInputError: not a correction.
    """
    if not message.mean:
        return None
    mean = np.array(message.mean, dtype=np.float64)
    covariance = np.array(message.covariance, dtype=np.float64)

    def decode() -> Correction:
        square = covariance.reshape(mean.size, mean.size)
        return Correction(message.basis_version, message.reference_version, mean, square)

    return guarded("correction", decode)


def synthetic_rows_from_message(message: exchange_pb2.SyntheticBatch) -> tuple[SyntheticRow, ...]:
    """Message to domain.

    Raises:
        InvalidInputError: a row is not well formed.
    """
    return guarded("synthetic batch", lambda: tuple(map(_row_from_message, message.rows)))


def status_to_message(status: Status) -> exchange_pb2.Status:
    """Domain to message."""
    return exchange_pb2.Status(
        now_unix_ms=to_unix_ms(status.now),
        model_version=status.model_version,
        feature_schema_version=status.feature_schema_version,
        basis_version=status.basis_version,
        reference_version=status.reference_version,
        epoch_starts_unix_ms=[to_unix_ms(each) for each in status.epoch_starts],
        correction_published_unix_ms=(
            0 if status.correction_published is None else to_unix_ms(status.correction_published)
        ),
    )


def status_from_message(message: exchange_pb2.Status) -> Status:
    """Message to domain.

    Raises:
        InvalidInputError: its time is none.
    """
    return guarded(
        "status",
        lambda: Status(
            from_unix_ms(message.now_unix_ms),
            message.model_version,
            message.feature_schema_version,
            message.basis_version,
            message.reference_version,
            tuple(from_unix_ms(each) for each in message.epoch_starts_unix_ms),
            from_unix_ms(message.correction_published_unix_ms)
            if message.correction_published_unix_ms
            else None,
        ),
    )


def model_to_message(model: SharedModel) -> exchange_pb2.Model:
    """Domain to message."""
    return exchange_pb2.Model(version=model.version, checkpoint=model.checkpoint)


def model_from_message(message: exchange_pb2.Model) -> SharedModel:
    """Message to domain; the checkpoint is not yet judged."""
    return SharedModel(message.version, message.checkpoint)


def join_reply_to_message(reply: JoinReply) -> exchange_pb2.JoinReply:
    """Domain to message."""
    return exchange_pb2.JoinReply(**asdict(reply))


def join_reply_from_message(message: exchange_pb2.JoinReply) -> JoinReply:
    """Message to domain; keys and certificates are not yet judged."""
    return JoinReply(*(getattr(message, each.name) for each in fields(JoinReply)))


def _request_from_message(message: exchange_pb2.TrainRequest) -> TrainRequest:
    return TrainRequest(
        key_from_message(message.slot),
        message.architecture,
        message.base_version,
        tuple(map(array_from_message, message.arrays)),
        _question_from_message(message.question) if message.HasField("question") else None,
        tuple(map(_row_from_message, message.rehearsal)),
    )


def _question_to_message(question: TangentQuestion) -> exchange_pb2.TangentQuestion:
    return exchange_pb2.TangentQuestion(
        clip=question.clip, coefficients=array_to_message(question.coefficients)
    )


def _question_from_message(message: exchange_pb2.TangentQuestion) -> TangentQuestion:
    return TangentQuestion(message.clip, array_from_message(message.coefficients))


def _row_to_message(row: SyntheticRow) -> exchange_pb2.SyntheticRow:
    return exchange_pb2.SyntheticRow(
        plan=plan_to_message(row.plan),
        cluster=cluster_to_message(row.cluster),
        log_runtime_seconds=row.log_seconds,
        segment=int(row.segment),
    )


def _row_from_message(message: exchange_pb2.SyntheticRow) -> SyntheticRow:
    return SyntheticRow(
        plan_from_message(message.plan),
        cluster_from_message(message.cluster),
        message.log_runtime_seconds,
        Platform(message.segment),
    )
