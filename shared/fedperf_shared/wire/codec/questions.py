"""Questions of directed slots to bytes and back (exchange.proto).

What is decoded is a `CellQuestion`, which checks sizes, bounds and the norm rule itself.
"""

from functools import lru_cache

import numpy as np

from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.directions import public_design
from fedperf_shared.releases.questions import CellQuestion
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire import exchange_pb2
from fedperf_shared.wire.codec.decoder import decoded, encoded, guarded
from fedperf_shared.wire.codec.releases import key_from_message, key_to_message


def encode_question(question: CellQuestion) -> bytes:
    """A question as the bytes that are stored and sent."""
    return encoded(question_to_message(question))


@lru_cache(maxsize=64)
def decode_question(payload: bytes) -> CellQuestion:
    """The question that `encode_question` wrote; decoded once, for everybody asks for it.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    return decoded("question", exchange_pb2.Question, payload, _from_message)


def question_to_message(question: CellQuestion | None) -> exchange_pb2.Question:
    """Domain to message; the empty one where there is none yet."""
    if question is None:
        return exchange_pb2.Question()
    return exchange_pb2.Question(
        slot=key_to_message(question.slot),
        version=question.version,
        basis_version=question.basis_version,
        reference_version=question.reference_version,
        center=question.center.tolist(),
        clips=question.design.clips.tolist(),
        directions=question.design.directions.reshape(-1).tolist(),
    )


def question_from_message(message: exchange_pb2.Question) -> CellQuestion | None:
    """Message to domain; None for the empty message, which says that there is none yet.

    Raises:
        InvalidInputError: not a question, or none that may be answered.
    """
    if message.ByteSize() == 0:
        return None
    return guarded("question", lambda: _from_message(message))


def asked_slot(message: exchange_pb2.GetQuestionRequest) -> SlotKey:
    """The slot whose question is asked for.

    Raises:
        InvalidInputError: no slot.
    """
    return guarded("slot", lambda: key_from_message(message.slot))


def _from_message(message: exchange_pb2.Question) -> CellQuestion:
    directions = np.array(message.directions, dtype=np.float64).reshape(-1, CELLS)
    return CellQuestion(
        slot=key_from_message(message.slot),
        version=message.version,
        basis_version=message.basis_version,
        reference_version=message.reference_version,
        center=np.array(message.center, dtype=np.float64),
        design=public_design(directions, np.array(message.clips, dtype=np.float64)),
    )
