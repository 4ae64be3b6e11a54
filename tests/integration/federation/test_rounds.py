"""Model rounds with real nodes: accepted, refused, counted and stored updates."""

import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedperf_server.state import releases, round_calendar
from fedperf_server.state.database import ModelRound, RoundOutcome
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_shared.exchange import TrainRequest
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases.release import ReleaseKind, SignedRelease, SlotKey
from fedperf_shared.wire import codec
from tests.fakes.audit_log import verify_events
from tests.fakes.rounds import newest_version, sum_of_weights
from tests.integration.federation.small_federation import (
    SHAPES,
    Answer,
    Organization,
    SmallFormat,
    World,
    admit,
    calendar,
    constant,
    full_schedule,
    new_server,
    node,
    world,
)

FIRST = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)


def next_round(server: World, seconds: float = 15.0) -> ModelRound:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        for result in server.tick():
            return result
        time.sleep(0.05)
    raise TimeoutError("no round was held")


def arrays(*, fill: float) -> list[NDArray[np.float32]]:
    return [np.full(shape, fill, dtype=np.float32) for shape in SHAPES]


def second_opinion() -> TrainRequest:
    return TrainRequest(FIRST, SmallFormat().architecture, 1, ())


def wrong_size(organization: Organization, request: TrainRequest) -> SignedRelease:
    content = sum_of_weights(request.slot, request.base_version, arrays(fill=0.0))
    return organization.sign(codec.encode_release(replace(content, values=content.values[1:])))


def wrong_signature(organization: Organization, request: TrainRequest) -> SignedRelease:
    right = organization.update(request, arrays(fill=0.0))
    stranger = new_private_key()
    return replace(right, signature=sign(stranger, b"x"))


def wrong_slot(organization: Organization, request: TrainRequest) -> SignedRelease:
    slot = SlotKey(ReleaseKind.MODEL_UPDATE, 1, 0)
    later = TrainRequest(slot, request.architecture, request.base_version, request.arrays)
    return organization.update(later, arrays(fill=0.0))


def wrong_base(organization: Organization, request: TrainRequest) -> SignedRelease:
    other = TrainRequest(request.slot, request.architecture, 99, request.arrays)
    return organization.update(other, arrays(fill=0.0))


def not_a_release(organization: Organization, request: TrainRequest) -> SignedRelease:
    return organization.sign(b"\xff" * 100)


MEMBERS: dict[str, tuple[Answer, str]] = {
    "good": (constant(0.5), "accepted"),
    "better": (constant(1.0), "accepted"),
    "short": (wrong_size, "size"),
    "large": (constant(1e9), "range"),
    "forger": (wrong_signature, "signature"),
    "eager": (wrong_slot, "wrong_slot"),
    "stale": (wrong_base, "base_version"),
    "junk": (not_a_release, "malformed"),
}


@pytest.mark.slow
def test_model_round_drops_and_counts_bad_replies_and_completes(tmp_path: Path) -> None:
    table = calendar(replies=20.0)
    config = new_server(tmp_path / "server", table)
    with world(config) as server, ExitStack() as nodes:
        ids: dict[bytes, str] = {}
        for name, (answer, _) in MEMBERS.items():
            member = admit(tmp_path, server.invite(name), name, full_schedule(table))
            ids[member.membership.organization_id] = name
            nodes.enter_context(node(member, answer))
        result = next_round(server)
        assert result.outcome is RoundOutcome.NEW_VERSION
        assert (result.expected, result.replies, result.new_version) == (len(MEMBERS), 2, 2)
        bad = [reason for _, reason in MEMBERS.values() if reason != "accepted"]
        assert result.failures == dict.fromkeys(bad, 1)
        with server.database.transaction() as session:
            model = newest_version(session)
            (stored,) = closed_rounds(session, table)
            counted = releases.rejections(session)
            verify_events(session)
        assert (stored.number, stored.seconds) == (result.number, result.seconds)
        assert (stored.outcome, stored.failures) == (result.outcome, result.failures)
        assert {(ids[key[0]], key[2]) for key in counted} == {
            (name, reason) for name, (_, reason) in MEMBERS.items() if reason != "accepted"
        }
        for array in SmallFormat().decode(model.checkpoint):
            np.testing.assert_allclose(array, 1.75)
        assert result.public_error == pytest.approx(9 * 1.75**2)


@pytest.mark.slow
def test_reply_of_organization_revoked_during_round_is_not_counted(tmp_path: Path) -> None:
    table = calendar(replies=5.0)
    config = new_server(tmp_path / "server", table, grace=2.0)
    with world(config, quorum=1) as server:
        good = admit(tmp_path, server.invite("Good"), "good", full_schedule(table))
        bad = admit(tmp_path, server.invite("Bad"), "bad", full_schedule(table))

        def late(organization: Organization, request: TrainRequest) -> SignedRelease:
            server.operator.revoke("Bad")
            time.sleep(0.5)
            return organization.update(request, arrays(fill=1.0))

        with node(good, late), node(bad, constant(5.0)):
            result = next_round(server)
        assert (result.replies, result.failures) == (1, {"revoked": 1})


def test_model_slots_passed_during_downtime_are_recorded_as_missed(tmp_path: Path) -> None:
    began = calendar().period.start - timedelta(seconds=70)
    table = calendar(start=began, window=60, windows=2, replies=5)
    with world(new_server(tmp_path / "server", table)) as server:
        first, second = next_round(server), next_round(server)
        assert (first.outcome, second.outcome) == (RoundOutcome.MISSED, RoundOutcome.MISSED)
        assert (first.number, second.number) == (1, 2)
        with server.database.transaction() as session:
            assert round_calendar.due_slot(session, table, now=table.period.end) is None
        assert server.tick() == []


def test_accepted_update_gets_one_receipt_for_repeated_and_other_bytes(tmp_path: Path) -> None:
    table = calendar(replies=5.0)
    kept: list[SignedRelease] = []

    def answer(organization: Organization, request: TrainRequest) -> SignedRelease:
        kept.append(organization.update(request, arrays(fill=1.0)))
        return kept[-1]

    with world(new_server(tmp_path / "server", table), quorum=1) as server:
        member = admit(tmp_path, server.invite("Acme"), "acme", full_schedule(table))
        with node(member, answer):
            assert next_round(server).replies == 1
        with member.exchange() as exchange:
            receipt = exchange.submit(kept[0])
            assert receipt == exchange.submit(kept[0])
            assert receipt == exchange.submit(member.update(second_opinion(), arrays(fill=2.0)))
            assert exchange.receipts() == (receipt,)
        assert receipt.sequence == 1
        assert receipt.release_id == FIRST.release_id(table.period)


@pytest.mark.slow
def test_model_round_with_ggfn_collects_replies_of_three_organizations(tmp_path: Path) -> None:
    """Three organizations receive 615,809 parameters over TLS and return short sums."""
    table = calendar(replies=10.0)
    config = new_server(tmp_path / "server", table, model_format=GgfnFormat())
    with world(config, model_format=GgfnFormat()) as server, ExitStack() as nodes:
        for name in ("one", "two", "three"):
            member = admit(tmp_path, server.invite(name), name, full_schedule(table))
            nodes.enter_context(node(member, constant(0.01)))
        result = next_round(server, 30)
        with member.exchange() as exchange:
            assert len(exchange.model().checkpoint) > 4 * 615_809
    assert (result.replies, result.failures) == (3, {})
    print(f"round of 3 organizations: {result.seconds} s")
