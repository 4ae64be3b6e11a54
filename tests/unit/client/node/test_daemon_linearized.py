"""Linearized model rounds in the daemon: updates, their timing, and refused requests."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from fedperf_client.contributions.local_sums import label_executions, linearized_sum
from fedperf_client.contributions.mechanisms import noisy
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.updates import RequestRefusedError
from fedperf_client.release.accountant import epsilon, to_events
from fedperf_client.release.decisions import Decisions, Outcome, WithholdReason
from fedperf_client.release.gate import WithheldError
from fedperf_client.release.ledger import ReleaseState
from fedperf_client.release.policy import ReleaseMode
from fedperf_shared.execution import Execution
from fedperf_shared.model.architecture import ARCHITECTURE_VERSION, weights_of
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.period import ModelMethod
from fedperf_shared.releases.release import (
    LinearizedParameters,
    LinearizedUpdate,
    Schedule,
    SignedRelease,
    Slot,
    TrainingParameters,
)
from fedperf_shared.wire.codec import decode_release, encode_release
from tests.fakes.linearized_queries import (
    ANCHORS,
    few_anchors,
    install_plans,
    make_linearized_query,
)
from tests.unit.client.contributions.seeded_noise import SeededNoise
from tests.unit.client.executions import START
from tests.unit.client.node.test_daemon import (
    HOUR,
    TABLE,
    UPDATE,
    Scene,
    lost,
    make_scene,
    order_of_drawing,
)
from tests.unit.client.pretrained_model import install_start, seeded_checkpoint

T = TypeVar("T")

PARAMETERS = LinearizedParameters(20.0, 5000.0)
AT_TANGENT = Schedule(TABLE, (Slot(UPDATE, PARAMETERS),))
QUESTION = make_linearized_query()


def linearized_scene(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    executions: Iterable[Execution] | None = None,
) -> Scene:
    scene = make_scene(directory, monkeypatch, executions, schedule=AT_TANGENT)
    install_plans(directory, monkeypatch)
    return scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return linearized_scene(tmp_path, monkeypatch)


def sent(body: SignedRelease) -> LinearizedUpdate:
    update = decode_release(body.payload)
    assert isinstance(update, LinearizedUpdate)
    return update


def noise_alone() -> bytes:
    nothing = np.zeros(DIRECTIONS, dtype=np.int64)
    return encode_release(noisy(nothing, SeededNoise(), Slot(UPDATE, PARAMETERS), version=1))


def test_linearized_update_is_its_sum_plus_noise_and_is_sent_at_its_time(
    scene: Scene,
) -> None:
    body = scene.ask_at(4.5, query=QUESTION)
    assert scene.now == START + 6 * HOUR
    with ExecutionStore.open(scene.home.store) as store:
        own = label_executions(store.executions())
    model = weights_of(seeded_checkpoint().arrays)
    total = linearized_sum(model, own, QUESTION, few_anchors())
    assert total.any()
    expected = noisy(total, SeededNoise(), Slot(UPDATE, PARAMETERS), version=1)
    assert body.payload == encode_release(expected)


def test_second_linearized_query_for_a_slot_gets_the_drawn_bytes(scene: Scene) -> None:
    first = scene.ask_at(4.5, query=QUESTION)
    assert scene.ask_at(6.5, query=make_linearized_query(seed=9), base_version=9) == first
    assert [entry.state for entry in scene.ledger.entries()] == [ReleaseState.HANDED_OUT]


@pytest.mark.parametrize(
    "changes",
    [
        {"query": None},  # a request for DP-SGD
        {"query": make_linearized_query(ANCHORS + 1)},
        {"query": make_linearized_query(ANCHORS - 1)},
        {"query": QUESTION, "architecture": ARCHITECTURE_VERSION + 1},
        {"query": QUESTION, "arrays": ()},
    ],
)
def test_train_request_not_matching_the_slot_is_refused_without_a_charge(
    scene: Scene, changes: dict[str, object]
) -> None:
    with pytest.raises(RequestRefusedError):
        scene.ask_at(4.5, **changes)
    assert scene.ledger.entries() == ()


def test_linearized_update_with_failed_computation_is_sent_as_noise(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.participant._updates, "_compute", lost)
    body = scene.ask_at(4.5, query=QUESTION)
    assert scene.now == START + 6 * HOUR
    assert body.payload == noise_alone()


def test_linearized_update_noise_is_drawn_before_the_sum_is_computed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = order_of_drawing(monkeypatch, scene.participant._updates)
    scene.ask_at(4.5, query=QUESTION)
    assert drawn == ["noise", "sum"]


def test_linearized_sum_computation_has_a_time_limit_before_its_slot_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []

    def counted(task: Callable[[], T], /, *, seconds: float | None = None) -> T:
        given.append(seconds)
        return task()

    monkeypatch.setattr(scene.participant._updates, "_compute", counted)
    scene.ask_at(4.5, query=QUESTION)
    assert given == [pytest.approx((6 - 4.5 - 0.1 * 2) * 3600)]


def test_linearized_update_without_executions_is_noise_of_same_size(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = linearized_scene(tmp_path / "empty", monkeypatch, ())
    nothing, something = (each.ask_at(4.5, query=QUESTION) for each in (empty, scene))
    assert nothing.payload == noise_alone()
    payloads = [each.payload for each in (nothing, something)]
    assert len(payloads[0]) == len(payloads[1]) < 8 * DIRECTIONS + 200
    assert sent(something).values.shape == (DIRECTIONS,)


OLD = Schedule(
    replace(TABLE, model_method=ModelMethod.UNSPECIFIED),
    (Slot(UPDATE, TrainingParameters(4.0, 0.5, 1, 0.5, 10.0)),),
)


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return an organization in a period that an older version began, with DP-SGD."""
    install_start(tmp_path, monkeypatch)
    home = Home(tmp_path / "home")
    home.create("")
    return Scene(home, schedule=OLD)


def test_dp_sgd_slot_is_charged_and_withheld_for_good(old: Scene) -> None:
    for hours in (4.5, 5.0, 6.5):
        refused = RequestRefusedError if hours > 6 else WithheldError
        with pytest.raises(refused):
            old.ask_at(hours, query=None)
    (entry,) = old.ledger.entries()
    assert (entry.key, entry.state) == (UPDATE, ReleaseState.RESERVED)
    assert old.ledger.stored(UPDATE) is None
    assert old.ledger.spent(old.now) == epsilon(to_events(OLD.slots), old.ledger.budget.delta)
    decision = Decisions(old.ledger).latest().get(UPDATE)
    assert decision is not None
    assert (decision.outcome, decision.settled) == (Outcome.WITHHELD, True)
    assert decision.reason is WithholdReason.METHOD_REMOVED


def test_linearized_query_for_dp_sgd_slot_is_refused(old: Scene) -> None:
    with pytest.raises(RequestRefusedError, match="method"):
        old.ask_at(4.5, query=QUESTION)
    assert old.ledger.entries() == ()


def test_dp_sgd_slot_with_mode_never_is_not_charged(old: Scene) -> None:
    old.policy = replace(old.policy, model_update=ReleaseMode.NEVER)
    old.restart()
    with pytest.raises(WithheldError):
        old.ask_at(4.5, query=None)
    assert old.ledger.entries() == ()
