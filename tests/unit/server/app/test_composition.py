"""The server's composition root: its yardstick, how rounds train, and that it goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedperf_server.app.composition import (
    _announce,
    _look,
    _watched,
    method_of,
    predict_with,
    yardstick,
)
from fedperf_server.config import (
    DEFAULT_UPDATE_NORM_BOUND,
    ServerConfig,
    default_timetable,
)
from fedperf_server.desks.reports import Published, ReportDesk
from fedperf_server.rehearsal.synthetic_rows import PredictLog
from fedperf_server.rounds.dp_sgd_rounds import DpSgdRounds
from fedperf_server.rounds.tangent_rounds import TangentRounds
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.rounds import RoundOutcome, RoundResult
from fedperf_shared.errors import StorageError
from fedperf_shared.execution import MeasuredPlan, SizedPlan
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import encode_checkpoint, model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.public_plans import anchors_of
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.period import ModelMethod, Period, Timetable
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from tests.fakes.tangents import few_plans
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.public import seeded_checkpoint

AT = datetime(2027, 1, 1, tzinfo=UTC)
QUESTIONS = draw_questions(np.random.default_rng(1), 9)
ARRAYS = [*seeded_checkpoint().arrays.values()]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    with database.transaction() as session:
        registry.add_version(session, GgfnFormat(), ARRAYS, at=AT, public_error=2.0, promoted=True)
    yield database
    database.close()


def predictions() -> list[float]:
    model = model_from_arrays(seeded_checkpoint().arrays)
    graphs = [PlanGraph.of(each.plan, each.cluster) for each in QUESTIONS]
    return [float(value) for value in predict(model, graphs)]


def test_the_yardstick_is_the_median_q_error_on_the_public_plans() -> None:
    for factor in (1.0, 2.0, 0.5):
        plans = [
            MeasuredPlan(each.plan, each.cluster, value + float(np.log(factor)))
            for each, value in zip(QUESTIONS, predictions(), strict=True)
        ]
        assert yardstick(plans)(ARRAYS) == pytest.approx(max(factor, 1 / factor), rel=1e-5)


def test_a_checkpoint_predicts_on_the_catalogue() -> None:
    entries = [SizedPlan(each.plan, each.cluster) for each in QUESTIONS]
    found = predict_with(encode_checkpoint(seeded_checkpoint()))(entries)
    np.testing.assert_allclose(found, predictions(), rtol=1e-5)


def test_rounds_train_as_the_calendar_says(tmp_path: Path) -> None:
    plans = few_plans()
    found = [
        method_of(
            ServerConfig(
                tmp_path, "localhost", replace(default_timetable(AT), model_method=method)
            ),
            plans,
        )
        for method in (ModelMethod.TANGENT, ModelMethod.DP_SGD)
    ]
    assert isinstance(found[0], TangentRounds)
    assert len(found[0].anchors) == len(anchors_of(plans))
    assert isinstance(found[1], DpSgdRounds)
    assert found[1].limits.norm_bound == DEFAULT_UPDATE_NORM_BOUND
    zeros = [np.zeros_like(array) for array in ARRAYS]
    same = found[1].aggregate(ARRAYS, [zeros])
    assert all(np.array_equal(a, b) for a, b in zip(same, ARRAYS, strict=True))


class FailingDesk(ReportDesk):
    """Fails in the ways that a desk can, then works."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Timetable(Period(AT), (), ()), [], grace=timedelta(0))
        self.failures: list[Exception] = [StorageError("full"), np.linalg.LinAlgError("singular")]
        self.works = threading.Event()

    def look(
        self, predict_with: Callable[[bytes], PredictLog], *, at: datetime
    ) -> Published | None:
        del predict_with, at
        if self.failures:
            raise self.failures.pop(0)
        self.works.set()
        return None


def test_reports_that_cannot_be_evaluated_are_tried_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedperf_server.app.composition.REPORT_PAUSE_SECONDS", 0.01)
    desk = FailingDesk(database)
    troubles = Troubles(timer=lambda: 1000 * time.monotonic())
    steps = {"evaluating reports": partial(_look, desk)}
    with _watched(steps, threading.Event(), lambda: AT, troubles):
        assert desk.works.wait(5)
    assert not [each for each in threading.enumerate() if each.name == "reports"]


def test_a_closed_round_is_said_with_what_was_refused(capsys: pytest.CaptureFixture[str]) -> None:
    slot = SlotKey(ReleaseKind.MODEL_UPDATE, 2, 0)
    failures = {"missing": 2, "not_due": 1}
    _announce(RoundResult(7, slot, RoundOutcome.NO_QUORUM, 4, 1, failures, 30.0, None, None))
    (line,) = capsys.readouterr().out.splitlines()
    said = ("round closed", "round=7", "outcome=no_quorum", "replies='1 of 4'")
    for part in (*said, "refused={'missing': 2, 'not_due': 1}"):
        assert part in line
