"""Questions of directed slots: fetched once the slot has opened, kept for good.

When a question is fetched depends on the calendar and on what the coordinator has, never
on data, nor on whether the slot's release leaves. A question that may not be answered
is refused: its slot lapses, uncharged, as if this node had been offline, and it is not
asked for again. What may be answered is said by `CellQuery`, which checks itself.
"""

from collections.abc import Callable
from pathlib import Path

from fedperf_client.home.config import write_private
from fedperf_client.release.schedule import slot_name
from fedperf_shared.errors import InvalidInputError, PrivacyRefusedError
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import decode_question, encode_question

FetchQuestion = Callable[[SlotKey], CellQuery | None]
"""Asks the coordinator; None while there is no question, InvalidInputError for a bad one."""


class QueryRejectedError(PrivacyRefusedError):
    """A question is not answered; its slot lapses and is not charged."""

    def __init__(self, key: SlotKey, reason: str) -> None:
        super().__init__(f"the question of {slot_name(key)} is not answered: {reason}")
        self.key = key


class QueryStore:
    """The questions of one period."""

    def __init__(self, directory: Path, period: Period, ask: FetchQuestion) -> None:
        """Keep in `directory` what `ask` gives."""
        self._directory = directory
        self._period = period
        self._ask = ask
        self._refused: set[SlotKey] = set()

    def fetch(self, key: SlotKey) -> None:
        """Ask for the question of the slot, unless it is here or was refused.

        Raises:
            RefusedQuestionError: it may not be answered; said once.
            FedperfError: the coordinator does not answer, or does not know this node.
            OSError: the question cannot be written.
        """
        if key in self._refused or self.kept(key) is not None:
            return
        try:
            question = self._ask(key)
        except InvalidInputError as error:
            raise self._refusal(key, str(error)) from error
        if question is None:
            return
        if question.slot != key:
            raise self._refusal(key, f"it is the one of {slot_name(question.slot)}")
        write_private(self._path(key), encode_question(question))

    def kept(self, key: SlotKey) -> CellQuery | None:
        """The question that was fetched; None where there is none, or its file is damaged."""
        try:
            return decode_question(self._path(key).read_bytes())
        except (FileNotFoundError, InvalidInputError):
            return None

    def answerable(self, key: SlotKey, *, reference_version: int) -> CellQuery | None:
        """The kept question, if it is about the reference model that is here.

        Raises:
            RefusedQuestionError: it is about another one; said once, and looked at again.
        """
        question = self.kept(key)
        if question is None or question.reference_version == reference_version:
            return question
        if key in self._refused:
            return None
        raise self._refusal(
            key,
            f"it is about model version {question.reference_version}, here is {reference_version}",
        )

    def _refusal(self, key: SlotKey, reason: str) -> QueryRejectedError:
        self._refused.add(key)
        return QueryRejectedError(key, reason)

    def _path(self, key: SlotKey) -> Path:
        return self._directory / f"{key.release_id(self._period).hex()}.question"
