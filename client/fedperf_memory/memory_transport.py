"""Messages between a coordinator and its members in one process, as function calls.

The coordinator's own handlers replace gRPC. In model rounds a request is opened as every node
opens it, and a release is serialized as for the coordinator. As in production, a member that
refuses gives its reason, and a member that fails stays silent.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import cast

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.node.updates import RequestRefusedError, open_request
from fedperf_memory.cpu_meter import CpuMeter, Side
from fedperf_server.endpoints.grpc_ports import ExchangeService
from fedperf_server.membership.enrollment import Member
from fedperf_server.rounds.open_round import Reply
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.releases.release import SignedRelease
from fedperf_shared.wire.codec import encode_signed_release
from fedperf_shared.wire.services import EXCHANGE, ExchangeCalls

Answer = Callable[[TrainRequest], "Future[SignedRelease]"]
"""A member's handler of model rounds."""


def memory_calls(service: ExchangeService, caller: Member, meter: CpuMeter) -> ExchangeCalls:
    """A member's calls of the Exchange, answered at once on the coordinator's time."""

    def asking(method: Callable[..., object]) -> Callable[..., object]:
        def ask(*arguments: object) -> object:
            with meter.of(Side.COORDINATOR):
                return method(caller, *arguments)

        return ask

    calls = {method: asking(getattr(service, method)) for method in EXCHANGE}
    return cast("ExchangeCalls", SimpleNamespace(**calls))


@dataclass(slots=True)
class MemoryFleet:
    """The connected members (`rounds.fleet.Fleet`)."""

    answers: dict[bytes, Answer] = field(default_factory=dict)
    admitted: frozenset[bytes] = frozenset()

    def connect(self, organization_id: bytes, answer: Answer) -> None:
        """Ask that member from now on."""
        self.answers[organization_id] = answer

    def set_members(self, keys: Mapping[bytes, ec.EllipticCurvePublicKey]) -> None:
        """As `Fleet`."""
        self.admitted = frozenset(keys)

    def round(self) -> "MemoryRound":
        """As `Fleet`."""
        return MemoryRound(self)


@dataclass(slots=True)
class MemoryRound:
    """The messages of one round (`rounds.fleet.FleetRound`)."""

    fleet: MemoryFleet
    _asked: dict[bytes, Future[SignedRelease]] = field(default_factory=dict)
    _replied: set[bytes] = field(default_factory=set)

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        """As `FleetRound`."""
        answer = self.fleet.answers.get(organization_id)
        is_there = answer is not None and organization_id in self.fleet.admitted
        if answer is None or not is_there or organization_id in self._asked:
            return False
        try:
            self._asked[organization_id] = answer(_opened(body))
        except RequestRefusedError as error:
            refused: Future[SignedRelease] = Future()
            refused.set_exception(error)
            self._asked[organization_id] = refused
        return True

    def replies(self) -> Sequence[Reply]:
        """As `FleetRound`; in the order in which they were asked."""
        found: list[Reply] = []
        for organization_id, answer in self._asked.items():
            if answer.done() and organization_id not in self._replied:
                self._replied.add(organization_id)
                found += _reply(organization_id, answer)
        return found

    def close(self) -> None:
        """As `FleetRound`."""
        self._asked.clear()


@lru_cache(maxsize=1)
def _opened(body: bytes) -> TrainRequest:
    """All members get the same request, so it is opened once."""
    return open_request(body)


def _reply(organization_id: bytes, answer: "Future[SignedRelease]") -> Sequence[Reply]:
    error = answer.exception()
    if error is None:
        signed = answer.result()
        body = encode_signed_release(signed.payload, signed.signature)
        return [Reply(organization_id, body)]
    if isinstance(error, RequestRefusedError):
        return [Reply(organization_id, None, error.refusal)]
    return []
