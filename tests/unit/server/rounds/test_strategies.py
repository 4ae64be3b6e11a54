"""Our strategies under Flower's interfaces: messages, a Grid of members, Flower's own loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Error, Message
from flwr.app.message import make_message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedperf_server.membership.enrollment import Member
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.rounds.member_grid import MemberGrid, message_id
from fedperf_server.rounds.open_round import OpenRound, Reply
from fedperf_server.rounds.round_messages import AcceptedUpdate
from fedperf_server.rounds.round_strategy import round_arrays, round_config, weights_in
from fedperf_server.state.validation import Reason
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import Refusal
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.model.architecture import Weights
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.releases.period import ModelMethod, Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    LinearizedParameters,
    LinearizedUpdate,
    ReleaseKind,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from tests.fakes.rounds import SumsOfWeights, mean_of, sum_of_weights

START = datetime(2027, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLE = ReleaseCalendar(
    Period(START, 4 * HOUR, 1), (), (SlotTimes(HOUR, 2 * HOUR),), ModelMethod.TANGENT
)
KEY = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
SLOT = Slot(KEY, LinearizedParameters(1.0, 100.0))
START_WEIGHTS: Weights = [np.array([1.0, 2.0], dtype=np.float32), np.zeros((1, 3), np.float32)]
SHAPES = [each.shape for each in START_WEIGHTS]
BASE = 4


def strategy() -> SumsOfWeights:
    return SumsOfWeights(SHAPES, mean_of)


@dataclass
class Channel:
    """Members that answer at once, each in its way."""

    answers: dict[bytes, Callable[[bytes], Reply]]
    inbox: list[Reply] = field(default_factory=list)
    asked: list[bytes] = field(default_factory=list)

    def ask(self, organization_id: bytes, body: bytes) -> bool:
        if organization_id not in self.answers or organization_id in self.asked:
            return False
        self.asked.append(organization_id)
        self.inbox.append(self.answers[organization_id](body))
        return True

    def replies(self) -> Sequence[Reply]:
        arrived, self.inbox = self.inbox, []
        return arrived

    def close(self) -> None:
        self.answers.clear()


@dataclass
class Scene:
    """A round of members whose answers are given, and what drives it."""

    grid: MemberGrid
    members: dict[bytes, Member]
    channel: Channel
    keys: dict[bytes, ec.EllipticCurvePrivateKey] = field(default_factory=dict)

    def join(self, name: str, value: float | None) -> bytes:
        """A member that sends differences of `value`; None: it refuses."""
        key, whose = new_private_key(), name.encode().rjust(16, b"\0")
        self.members[whose] = Member(whose, name, key.public_key(), START)
        self.keys[whose] = key

        def answer(body: bytes) -> Reply:
            request = codec.decode_train_request(body)
            if value is None:
                return Reply(whose, None, Refusal.BUSY)
            arrays = [np.full(each, value, np.float32) for each in SHAPES]
            update = sum_of_weights(request.slot, request.base_version, arrays)
            payload = codec.encode_release(update)
            return Reply(whose, codec.encode_signed_release(payload, sign(key, payload)))

        self.channel.answers[whose] = answer
        self.grid.replies.schedules[whose] = Schedule(TABLE, (SLOT,))
        self.grid.set_members(self.members)
        return whose


@pytest.fixture
def scene() -> Scene:
    channel = Channel({})
    opened = OpenRound(1, KEY, BASE, START_WEIGHTS, None)
    return Scene(MemberGrid(channel, opened, check=strategy().check), {}, channel)


def config() -> ConfigRecord:
    return round_config(KEY, architecture=1, base_version=BASE)


def test_they_are_flowers() -> None:
    assert isinstance(strategy(), Strategy)
    assert isinstance(LinearizedAvg([]), Strategy)
    assert issubclass(MemberGrid, Grid)


@pytest.mark.parametrize(
    "accepted",
    [
        AcceptedUpdate(sum_of_weights(KEY, BASE, START_WEIGHTS), SLOT),
        AcceptedUpdate(
            LinearizedUpdate(KEY, BASE, -7, np.arange(DIRECTIONS, dtype=np.int64) - 100),
            Slot(KEY, LinearizedParameters(3.25, 1234.5)),
        ),
    ],
)
def test_nothing_of_an_update_is_lost_in_flowers_records(accepted: AcceptedUpdate) -> None:
    found = AcceptedUpdate.from_content(accepted.content())
    assert found.slot == accepted.slot
    assert codec.encode_release(found.update) == codec.encode_release(accepted.update)


def test_model_and_question_travel_as_one_record_of_arrays() -> None:
    question = LinearizedQuery(0.7, np.ones((5, DIRECTIONS), dtype=np.float32))
    both = round_arrays(START_WEIGHTS, question)
    assert all(map(np.array_equal, weights_in(both), START_WEIGHTS))
    again = round_arrays(weights_in(both))
    assert all(map(np.array_equal, weights_in(again), START_WEIGHTS))
    assert len(again) == len(both) - 2


def test_flowers_own_loop_makes_the_step_that_the_strategy_makes(scene: Scene) -> None:
    for name, value in (("b", 2.0), ("a", 1.0), ("c", None)):
        scene.join(name, value)
    result = strategy().start(
        grid=scene.grid,
        initial_arrays=round_arrays(START_WEIGHTS),
        num_rounds=1,
        train_config=config(),
    )
    changes = [[np.full(each, value, np.float32) for each in SHAPES] for value in (1.0, 2.0)]
    expected = mean_of(START_WEIGHTS, changes)
    assert result.arrays is not None
    assert all(map(np.array_equal, weights_in(result.arrays), expected))
    assert result.train_metrics_clientapp[1]["replies"] == 2


def test_only_who_was_let_in_and_has_not_answered_is_a_node(scene: Scene) -> None:
    one, other = scene.join("one", 1.0), scene.join("other", 1.0)
    del scene.channel.answers[other]  # it is offline
    assert scene.grid.get_node_ids() == [int.from_bytes(one), int.from_bytes(other)]
    messages = strategy().configure_train(1, round_arrays(START_WEIGHTS), config(), scene.grid)
    assert scene.grid.push_messages(messages) == [message_id(one)]
    scene.grid.receive()
    assert scene.grid.get_node_ids() == [int.from_bytes(other)]


def test_what_is_not_accepted_is_an_error_that_names_the_reason(scene: Scene) -> None:
    accepted, refused, wild = scene.join("a", 1.0), scene.join("b", None), scene.join("c", 1e9)
    messages = strategy().configure_train(1, round_arrays(START_WEIGHTS), config(), scene.grid)
    sent = scene.grid.push_messages(messages)
    first, second, third = scene.grid.pull_messages(sent)
    assert first.has_content()
    assert [each.error.reason for each in (second, third)] == [Reason.BUSY, Reason.RANGE]
    assert scene.grid.replies.accepted.keys() == {accepted}
    assert scene.grid.replies.refused == {refused: Reason.BUSY, wild: Reason.RANGE}


def test_who_is_no_member_any_more_counts_no_longer(scene: Scene) -> None:
    kept, gone = scene.join("a", 1.0), scene.join("b", 5.0)
    messages = strategy().configure_train(1, round_arrays(START_WEIGHTS), config(), scene.grid)
    scene.grid.push_messages(messages)
    scene.grid.receive()
    scene.grid.set_members({kept: scene.members[kept]})
    assert scene.grid.replies.accepted.keys() == {kept}
    assert scene.grid.replies.refused == {gone: Reason.REVOKED}


def test_all_get_the_same_bytes_which_are_made_once(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.join(name, 1.0)
    driven, arrays = strategy(), round_arrays(START_WEIGHTS)
    one, other = driven.configure_train(1, arrays, config(), scene.grid)
    (again, _) = driven.configure_train(1, arrays, config(), scene.grid)
    assert one.content is other.content is again.content


def test_replies_of_a_round_that_was_not_configured_are_refused(scene: Scene) -> None:
    driven = strategy()
    with pytest.raises(InvalidInputError, match="round 1 was not configured"):
        driven.aggregate_train(1, [])
    driven.configure_train(1, round_arrays(START_WEIGHTS), config(), scene.grid)
    with pytest.raises(InvalidInputError, match="round 2 was not configured"):
        driven.aggregate_train(2, [])


def test_errors_alone_make_no_model(scene: Scene) -> None:
    driven = strategy()
    driven.configure_train(1, round_arrays(START_WEIGHTS), config(), scene.grid)
    assert driven.aggregate_train(1, [failed()]) == (None, None)


def failed() -> Message:
    scene_grid = MemberGrid(Channel({}), OpenRound(1, KEY, BASE, (), None), check=lambda *_: None)
    message = scene_grid.create_message(
        AcceptedUpdate(sum_of_weights(KEY, BASE, START_WEIGHTS), SLOT).content(),
        "train",
        1,
        "",
    )
    return make_message(metadata=message.metadata, error=Error(0, "refused"))
