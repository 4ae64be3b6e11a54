from dataclasses import replace

import numpy as np
import pytest

from fedperf_client.prediction.encoding import History, InvalidHistoryError, encode
from fedperf_client.prediction.prediction import PredictorFailedError
from fedperf_shared.execution import ExecutionStatus, PlanOnCluster
from fedperf_shared.releases.basis import cell_of
from tests.unit.client.executions import make_execution
from tests.unit.client.prediction.synthetic import draw_questions


def test_history_contains_only_successful_executions() -> None:
    failed = make_execution(1, status=ExecutionStatus.FAILED, measurement=None)
    history = History.from_executions([make_execution(0), failed, make_execution(2)])
    assert len(history) == 2
    assert history.workloads == ("workload-0", "workload-2")
    np.testing.assert_allclose(history.log_seconds, np.log([0.5, 2.5]))
    assert history.finished_at == (make_execution(0).finished_at, make_execution(2).finished_at)


@pytest.mark.parametrize("status", [s for s in ExecutionStatus if s is not ExecutionStatus.OK])
def test_history_stores_unsuccessful_executions_as_right_censored(status: ExecutionStatus) -> None:
    cut = make_execution(1, status=status)
    nothing_left = make_execution(2, status=status, measurement=None)
    history = History.from_executions([make_execution(0), cut, nothing_left])
    assert len(history) == 1
    [(asked, bound)] = history.censored
    assert asked == PlanOnCluster(cut.plan, cut.cluster)
    assert bound == pytest.approx(np.log(1.5))
    with pytest.raises(InvalidHistoryError, match="finite"):
        replace(history, censored=((history.queries[0], np.inf),))


def test_history_without_executions_is_empty() -> None:
    history = History.from_executions([])
    assert len(history) == 0


def test_history_with_inconsistent_or_non_finite_columns_is_refused() -> None:
    question = draw_questions(np.random.default_rng(0), 1)
    with pytest.raises(InvalidHistoryError, match="workloads"):
        History(question, (), np.zeros(1))
    with pytest.raises(InvalidHistoryError, match="finite"):
        History(question, ("w",), np.array([np.nan]))
    with pytest.raises(InvalidHistoryError, match="timestamps"):
        History(question, ("w",), np.zeros(1), ())


def test_encode_calls_pretrained_model_once_for_all_queries() -> None:
    calls = []
    questions = draw_questions(np.random.default_rng(1), 7)

    def start(asked: object) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        calls.append(asked)
        return np.arange(7.0)

    samples = encode(questions, {"shared": start})
    assert len(calls) == 1
    assert samples.cells.tolist() == [cell_of(q.plan).index for q in questions]
    taken = samples.take(np.array([5, 2]))
    np.testing.assert_array_equal(taken.base_predictions["shared"], [5.0, 2.0])
    np.testing.assert_array_equal(taken.features, samples.features[[5, 2]])


def test_encode_with_too_few_pretrained_predictions_is_refused() -> None:
    questions = draw_questions(np.random.default_rng(1), 3)
    with pytest.raises(PredictorFailedError, match="3 queries"):
        encode(questions, {"shared": lambda asked: np.zeros(2)})


def test_history_excludes_executions_without_known_rows() -> None:
    unknown = [
        replace(each, origin=replace(each.origin, rows_known=0.0))
        for each in (make_execution(1), make_execution(2, status=ExecutionStatus.FAILED))
    ]
    history = History.from_executions([make_execution(0), *unknown])
    assert history.workloads == (make_execution(0).workload,)
    assert history.censored == ()
