"""Tests of an open round: participating organizations and replies that count."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_server.rounds.open_round import OpenRound, Reply
from fedperf_server.state.validation import Reason
from fedperf_shared.exchange import Refusal
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    ReleaseKind,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from tests.fakes.rounds import SumsOfWeights, mean_of, sum_of_weights

START = datetime(2027, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CALENDAR = ReleaseCalendar(
    Period(START, 4 * HOUR, 1), (), (SlotTimes(HOUR, 2 * HOUR),), ModelMethod.TANGENT
)
KEY = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
SLOT = Slot(KEY, LinearizedParameters(1.0, 100.0))
SHAPES = [(2,), (1, 3)]
BASE = 4


@dataclass
class Scene:
    """An open round and the keys of its organizations."""

    opened: OpenRound = field(default_factory=lambda: OpenRound(1, KEY, BASE, (), None))
    keys: dict[bytes, ec.EllipticCurvePrivateKey] = field(default_factory=dict)

    def join(self, name: str) -> bytes:
        organization_id = name.encode().rjust(16, b"\0")
        self.keys[organization_id] = new_private_key()
        self.opened.schedules[organization_id] = Schedule(CALENDAR, (SLOT,))
        return organization_id

    def reply(self, organization_id: bytes, value: float | None, base: int = BASE) -> None:
        """Receive differences of `value`, or a refusal if it is None."""
        key = self.keys[organization_id]
        arrays = [np.full(each, value or 0.0, np.float32) for each in SHAPES]
        payload = codec.encode_release(sum_of_weights(KEY, base, arrays))
        body = codec.encode_signed_release(SignedRelease(payload, sign(key, payload)))
        reply = Reply(organization_id, body)
        if value is None:
            reply = Reply(organization_id, None, Refusal.BUSY)
        check = SumsOfWeights(SHAPES, mean_of).check
        self.opened.receive(reply, key.public_key(), check=check)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_open_round_accepts_valid_replies_and_refuses_others_with_a_reason(scene: Scene) -> None:
    good, busy, wild, stale = (scene.join(each) for each in ("a", "b", "c", "d"))
    scene.reply(good, 1.0)
    scene.reply(busy, None)
    scene.reply(wild, 1e9)
    scene.reply(stale, 1.0, base=BASE - 1)
    assert scene.opened.accepted.keys() == {good}
    assert scene.opened.refused == {
        busy: Reason.BUSY,
        wild: Reason.RANGE,
        stale: Reason.BASE_VERSION,
    }
    assert scene.opened.sizes[busy] == 0
    assert scene.opened.sizes[good] > 0


def test_open_round_counts_first_reply_and_ignores_later_ones(scene: Scene) -> None:
    one, other = scene.join("one"), scene.join("other")
    scene.reply(one, 1.0)
    accepted = scene.opened.accepted[one]
    scene.reply(one, None)
    assert scene.opened.accepted[one] is accepted
    assert scene.opened.refused == {}
    assert scene.opened.missing == [other]


def test_reply_of_an_organization_that_does_not_take_part_is_ignored(scene: Scene) -> None:
    absent = scene.join("absent")
    del scene.opened.schedules[absent]
    scene.reply(absent, 1.0)
    assert not scene.opened.accepted
    assert not scene.opened.refused


def test_revoked_organization_has_its_reply_refused(scene: Scene) -> None:
    member, revoked = scene.join("a"), scene.join("b")
    scene.reply(member, 1.0)
    scene.reply(revoked, 5.0)
    scene.opened.reject_revoked({member})
    assert scene.opened.accepted.keys() == {member}
    assert scene.opened.refused == {revoked: Reason.REVOKED}
