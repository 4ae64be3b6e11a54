"""Tests of the GGFN task of a coordinator and of its log events."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from fedperf_server.app.composition import ggfn_task, predict_with, public_error
from fedperf_server.app.process import log_event
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.state.database import ModelRound, ReplyRow, RoundOutcome
from fedperf_shared.execution import MeasuredPlan, PlanOnCluster
from fedperf_shared.model.checkpoint import encode_checkpoint
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.model.fit import predict
from fedperf_simulations.model.ggfn import model_from_arrays
from tests.fakes.linearized_queries import few_anchors, install_plans
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.pretrained_model import install_start, seeded_checkpoint

AT = datetime(2027, 1, 1, tzinfo=UTC)
QUESTIONS = draw_questions(np.random.default_rng(1), 9)
ARRAYS = [*seeded_checkpoint().arrays.values()]


def predictions() -> list[float]:
    model = model_from_arrays(seeded_checkpoint().arrays)
    graphs = [featurize(each.plan, each.cluster) for each in QUESTIONS]
    return [float(value) for value in predict(model, graphs)]


def test_public_error_is_the_median_q_error_on_public_plans() -> None:
    for factor in (1.0, 2.0, 0.5):
        plans = [
            MeasuredPlan(each.plan, each.cluster, value + float(np.log(factor)))
            for each, value in zip(QUESTIONS, predictions(), strict=True)
        ]
        assert public_error(plans)(ARRAYS) == pytest.approx(max(factor, 1 / factor), rel=1e-5)


def test_predict_with_checkpoint_matches_its_model() -> None:
    entries = [PlanOnCluster(each.plan, each.cluster) for each in QUESTIONS]
    found = predict_with(encode_checkpoint(seeded_checkpoint()))(entries)
    np.testing.assert_allclose(found, predictions(), rtol=1e-5)


def test_ggfn_task_uses_linearized_averaging_with_public_anchors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_start(tmp_path, monkeypatch)
    install_plans(tmp_path, monkeypatch)
    found = ggfn_task().strategy
    assert isinstance(found, LinearizedAvg)
    assert len(found.anchors) == len(few_anchors())


def test_log_event_of_closed_round_counts_refused_replies_by_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = ("accepted", "missing", "not_due", "missing")
    replies = [ReplyRow(outcome=each) for each in outcomes]
    no_quorum = RoundOutcome.NO_QUORUM
    log_event(ModelRound(number=7, outcome=no_quorum, expected=4, replies=1, reply_rows=replies))
    (line,) = capsys.readouterr().out.splitlines()
    said = ("round closed", "round=7", "outcome=no_quorum", "replies='1 of 4'")
    for part in (*said, "refused={'missing': 2, 'not_due': 1}"):
        assert part in line
