"""Linear queries are fetched once, stored, and rejected if they are not acceptable."""

from pathlib import Path

import pytest

from fedperf_client.node.reports import QueryRejectedError, QueryStore
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import SlotKey
from fedperf_shared.wire.codec import encode_cell_query
from tests.fakes.cell_queries import DIRECTED, make_cell_query
from tests.unit.client.release.periods import calendar

PERIOD = calendar(2, reports=2).period


class Coordinator:
    """A coordinator that returns or raises `answer` and records the requested slots."""

    def __init__(self, answer: CellQuery | Exception | None) -> None:
        self.answer = answer
        self.asked: list[SlotKey] = []

    def __call__(self, key: SlotKey) -> CellQuery | None:
        self.asked.append(key)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_linear_query_is_fetched_once_and_survives_a_restart(tmp_path: Path) -> None:
    coordinator = Coordinator(None)
    questions = QueryStore(tmp_path, PERIOD, coordinator)
    questions.fetch(DIRECTED)
    assert questions.stored(DIRECTED) is None
    coordinator.answer = make_cell_query()
    questions.fetch(DIRECTED)
    questions.fetch(DIRECTED)
    again = QueryStore(tmp_path, PERIOD, coordinator)
    again.fetch(DIRECTED)
    kept = again.current(DIRECTED, reference_version=1)
    assert kept is not None
    assert encode_cell_query(kept) == encode_cell_query(make_cell_query())
    assert coordinator.asked == [DIRECTED] * 2


@pytest.mark.parametrize(
    "answer",
    [
        InvalidInputError("not a valid question: norm 2 > 1"),
        make_cell_query(SlotKey(DIRECTED.kind, 1, 1)),
    ],
)
def test_unacceptable_linear_query_is_rejected_once(
    tmp_path: Path, answer: CellQuery | Exception
) -> None:
    coordinator = Coordinator(answer)
    questions = QueryStore(tmp_path, PERIOD, coordinator)
    with pytest.raises(QueryRejectedError, match="report-0-1 is not evaluated"):
        questions.fetch(DIRECTED)
    questions.fetch(DIRECTED)
    assert coordinator.asked == [DIRECTED]
    assert questions.stored(DIRECTED) is None


def test_linear_query_about_another_model_is_rejected_once_until_it_is_fetched(
    tmp_path: Path,
) -> None:
    questions = QueryStore(tmp_path, PERIOD, Coordinator(make_cell_query(reference_version=4)))
    questions.fetch(DIRECTED)
    with pytest.raises(QueryRejectedError, match="model version 4, here is 1"):
        questions.current(DIRECTED, reference_version=1)
    assert questions.current(DIRECTED, reference_version=1) is None
    assert questions.current(DIRECTED, reference_version=4) is not None


def test_damaged_query_file_is_fetched_again(tmp_path: Path) -> None:
    coordinator = Coordinator(make_cell_query())
    questions = QueryStore(tmp_path, PERIOD, coordinator)
    questions.fetch(DIRECTED)
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"\xff")
    questions.fetch(DIRECTED)
    assert questions.stored(DIRECTED) is not None
    assert len(coordinator.asked) == 2
