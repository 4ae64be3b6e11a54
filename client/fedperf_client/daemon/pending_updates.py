"""Model updates that the coordinator requested, until each is sent at its slot's time.

An update is drawn beside (`BackgroundRunner`) and its answer is a future that is done at the slot's
fixed time: with the release, or with what was wrong. What is not drawn by then stays here for good.
"""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from fedperf_client.federation.request import RequestRefusedError
from fedperf_shared.errors import FedperfError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal
from fedperf_shared.releases.release import Schedule, SignedRelease, SlotKey


class TooLateError(PrivacyRefusedError):
    """A release was not ready at its slot's time; it stays here."""

    def __init__(self, key: SlotKey) -> None:
        super().__init__(
            f"{key.kind.name.lower()} of window {key.window} was not ready at its fixed time and "
            "stays here; give the daemon more cores, or its schedule fewer steps"
        )
        self.key = key


@dataclass(frozen=True, slots=True)
class _AskedUpdate:
    """One of them.

    Attributes:
        asked_at: when.
        drawing: done when it is sealed, or what was wrong with the request.
        answer: what is handed out for it.
    """

    asked_at: datetime
    drawing: Future[None]
    answer: Future[SignedRelease] = field(default_factory=Future)


class PendingUpdates:
    """The requested updates of one schedule, requested in one thread and sent in another.

    `let_out` gives a drawn release at its time; `withhold` keeps a slot's release here for good
    and raises.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        let_out: Callable[[SlotKey, datetime], SignedRelease],
        withhold: Callable[[SlotKey, datetime], None],
    ) -> None:
        self._schedule = schedule
        self._let_out = let_out
        self._withhold = withhold
        self._asked: dict[SlotKey, _AskedUpdate] = {}

    def answer(
        self, key: SlotKey, begin: Callable[[], Future[None]], *, now: datetime
    ) -> Future[SignedRelease]:
        """The slot's answer; `begin` draws it, unless that is under way."""
        if key not in self._asked or self._asked[key].answer.done():
            drawing = begin()
            self._asked[key] = asked = _AskedUpdate(now, drawing)
            drawing.add_done_callback(partial(_pass_on_failure, asked.answer))
        return self._asked[key].answer

    def dispatch(self, now: datetime) -> None:
        """Send the replies that are due."""
        for key, asked in list(self._asked.items()):
            replies_at = self._schedule.replies_at(key)
            is_drawn = asked.drawing.done()
            if (
                asked.answer.done()
                or now < replies_at
                or not (is_drawn or asked.asked_at < replies_at)
            ):
                continue
            try:
                if not is_drawn:
                    self._withhold(key, now)
                asked.answer.set_result(self._let_out(key, now))
            except (FedperfError, OSError) as error:
                _fail(asked.answer, error)

    def leave(self) -> None:
        """Give up what is not handed out yet."""
        for asked in list(self._asked.values()):
            _fail(
                asked.answer,
                RequestRefusedError("this node is going offline", Refusal.GOING_OFFLINE),
            )


def _pass_on_failure(answer: Future[SignedRelease], drawing: Future[None]) -> None:
    error = drawing.exception()
    if error is not None:
        _fail(answer, error)


def _fail(answer: Future[SignedRelease], error: BaseException) -> None:
    with suppress(InvalidStateError):  # it failed already, in another thread
        answer.set_exception(error)
