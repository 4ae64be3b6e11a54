"""Directed slots: fetching of queries, responses, and slots that lapse without a charge."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.contributions.local_sums import label_executions, workload_residuals
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.exchange import ExchangeError
from fedperf_client.release.decisions import Decisions, Outcome
from fedperf_client.release.ledger import ReleaseState
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_release, encode_release
from tests.fakes.cell_queries import DIRECTED, make_cell_query
from tests.fakes.cell_reports import cell_report
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise
from tests.unit.client.executions import START, make_execution
from tests.unit.client.node.test_daemon import (
    HOUR,
    REPORT,
    Scene,
    lost,
    make_scene,
    order_of_drawing,
)
from tests.unit.client.node.test_daemon_approval import ASKING
from tests.unit.client.pretrained_model import seeded_checkpoint

TIMES = (SlotTimes(HOUR, 3 * HOUR), SlotTimes(5 * HOUR, 7 * HOUR))
PARAMETERS = DirectedParameters(20.0, 5.0)
STAGED = Schedule(
    ReleaseCalendar(Period(START, 24 * HOUR, 2), TIMES, ()),
    (Slot(REPORT, ReportParameters(20.0, 3.0)), Slot(DIRECTED, PARAMETERS)),
)


def staged_scene(directory: Path, monkeypatch: pytest.MonkeyPatch, *, count: int = 5) -> Scene:
    executions = (make_execution(number, finished_at=START - HOUR) for number in range(count))
    return make_scene(directory, monkeypatch, executions, schedule=STAGED)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return staged_scene(tmp_path, monkeypatch)


def asked_at(scene: Scene) -> list[datetime]:
    return [at for at, what in scene.exchange.calls if what == "linear_query"]


def charged(scene: Scene) -> list[SlotKey]:
    return [entry.key for entry in scene.ledger.entries()]


def test_directed_report_matches_its_linear_query_and_is_sent_at_its_time(scene: Scene) -> None:
    question = make_cell_query(center=0.4)
    scene.exchange.questions = {DIRECTED: question}
    with ExecutionStore.open(scene.home.store) as store:
        store.add([make_execution(99, finished_at=START)])  # in the current window
    for hours in (1.0, 3.0, 4.9):
        scene.look_at(hours)
    assert asked_at(scene) == []
    scene.look_at(5.0)
    assert charged(scene) == [REPORT, DIRECTED]
    scene.look_at(6.99)
    assert len(scene.exchange.submitted) == 1
    scene.look_at(7.0)
    at, sent = scene.exchange.submitted[-1]
    assert at == START + 7 * HOUR
    assert asked_at(scene) == [START + 5 * HOUR]
    with ExecutionStore.open(scene.home.store) as store:
        own = workload_residuals(
            GgfnArrays.of(seeded_checkpoint()),
            label_executions(store.executions(until=START)),
        )
    noise = SeededNoise()
    noise.discrete_gaussian(192, 1.0)  # noise of the plain report
    expected = cell_report(own, question, noise, slot=DIRECTED, parameters=PARAMETERS)
    assert sent.payload == encode_release(expected)


def test_plain_report_is_its_sum_plus_noise_of_its_slot(scene: Scene) -> None:
    scene.look_at(1.0)
    scene.look_at(3.0)
    ((_, sent),) = scene.exchange.submitted
    with ExecutionStore.open(scene.home.store) as store:
        own = workload_residuals(
            GgfnArrays.of(seeded_checkpoint()),
            label_executions(store.executions(until=START)),
        )
    parameters = STAGED.slots[0].parameters
    assert isinstance(parameters, ReportParameters)
    given = {"slot": REPORT, "parameters": parameters, "reference_version": 1}
    expected = residual_report(own, SeededNoise(), **given)  # type: ignore[arg-type]
    noise_alone = residual_report((), SeededNoise(), **given)  # type: ignore[arg-type]
    assert not np.array_equal(expected.values, noise_alone.values)
    assert sent.payload == encode_release(expected)


def test_directed_report_noise_is_drawn_before_the_sum_is_computed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.exchange.questions = {DIRECTED: make_cell_query()}
    for hours in (1.0, 3.0):
        scene.look_at(hours)
    drawn = order_of_drawing(monkeypatch, scene.participant._reports)
    scene.look_at(5.0)
    assert drawn == ["noise", "sum"]


def test_directed_slot_without_linear_query_is_not_charged(scene: Scene) -> None:
    for hours in (1.0, 3.0, 5.0, 6.0, 7.0, 8.0):
        scene.look_at(hours)
    assert charged(scene) == [REPORT]
    assert len(scene.exchange.submitted) == 1


def test_directed_report_with_late_linear_query_is_sent_at_the_fixed_time(scene: Scene) -> None:
    for hours in (1.0, 3.0, 5.0, 5.5):
        scene.look_at(hours)
    scene.exchange.questions = {DIRECTED: make_cell_query()}
    scene.look_at(6.0)
    assert charged(scene) == [REPORT, DIRECTED]
    scene.look_at(7.0)
    assert scene.exchange.submitted[-1][0] == START + 7 * HOUR


def test_linear_query_is_requested_again_after_an_outage(scene: Scene) -> None:
    scene.exchange.questions = {DIRECTED: make_cell_query()}
    scene.exchange.fault = ExchangeError("away")
    scene.look_at(5.0)
    scene.exchange.fault = None
    scene.look_at(5.1)
    assert DIRECTED in charged(scene)


def test_invalid_linear_query_is_refused_once_without_a_charge(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.exchange.bad_question = InvalidInputError(
        "not a valid linear query: a workload could send a vector of norm 2 > 1"
    )
    for hours in (5.0, 5.5, 6.0, 7.0, 8.0):
        scene.look_at(hours)
    assert DIRECTED not in charged(scene)
    assert len(asked_at(scene)) == 1
    assert capsys.readouterr().out.count("norm 2 > 1") == 1


def test_linear_query_about_a_missing_model_waits_until_it_is_fetched(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.exchange.questions = {DIRECTED: make_cell_query(reference_version=4)}
    for hours in (5.0, 5.2, 5.4):
        scene.look_at(hours)
    assert DIRECTED not in charged(scene)
    assert capsys.readouterr().out.count("model version 4, here is 1") == 1
    scene.exchange.models = {4: encode_checkpoint(seeded_checkpoint(5, version=4))}
    scene.exchange.reference = 4
    scene.look_at(5.5)
    scene.look_at(5.6)
    assert DIRECTED in charged(scene)


def test_restarted_daemon_sends_drawn_report_and_requests_no_new_query(scene: Scene) -> None:
    scene.exchange.questions = {DIRECTED: make_cell_query()}
    scene.look_at(5.0)
    stored = scene.ledger.stored(DIRECTED)
    scene.exchange.questions = {DIRECTED: make_cell_query(version=2, seed=9)}
    scene.restart()
    scene.look_at(7.0)
    assert stored is not None
    sent = [each.payload for _, each in scene.exchange.submitted]
    assert stored.payload in sent
    assert len(asked_at(scene)) == 1


@pytest.mark.parametrize("withheld_at", [0.5, 5.5, None])
@pytest.mark.parametrize("executions", [0, 5])
def test_linear_query_requests_are_independent_of_history_and_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, withheld_at: float | None, executions: int
) -> None:
    """Requests depend neither on the history nor on decisions of policy and operator."""
    usual = staged_scene(tmp_path / "usual", monkeypatch)
    other = staged_scene(tmp_path / "other", monkeypatch, count=executions)
    other.policy = ASKING
    other.restart()
    if withheld_at is not None:
        Decisions(other.ledger).decide(DIRECTED, Outcome.WITHHELD, at=START + withheld_at * HOUR)
    heard = traffic(usual)
    assert heard == traffic(other)
    asked = [at for at, what in heard if what == "linear_query"]
    assert asked[0] == START + 5 * HOUR
    assert len(asked) == 2  # the first attempt finds no query, the second does


def traffic(scene: Scene) -> list[tuple[datetime, str]]:
    """Return the calls of one day, without releases. The query appears at 5:20."""
    scene.now, scene.exchange.calls = START, []
    while scene.now < START + 23 * HOUR:
        if scene.now >= START + 5 * HOUR + timedelta(minutes=20):
            scene.exchange.questions = {DIRECTED: make_cell_query()}
        scene.participant.tick(scene.now)
        scene.now += scene.participant.pause(0.7 * HOUR, now=scene.now)
    return [call for call in scene.exchange.calls if call[1] != "submit"]


def test_directed_report_with_failed_computation_is_noise_of_same_size(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.participant._reports, "_compute", lost)
    scene.exchange.questions = {DIRECTED: make_cell_query()}
    for hours in (5.0, 7.0):
        scene.look_at(hours)
    report = decode_release(scene.exchange.submitted[-1][1].payload)
    assert isinstance(report, DirectedReport)
    assert report.values.shape == (16,)
    assert np.abs(report.values).min() > 0
    assert {entry.state for entry in scene.ledger.entries()} == {ReleaseState.HANDED_OUT}
