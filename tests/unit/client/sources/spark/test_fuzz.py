"""Fuzz tests of the reader: any log ends in records or named errors, within bounds."""

from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_client.diagnosis.diagnosis import Ranking, lines_of, row_of
from fedperf_client.diagnosis.job_facts import jobs_of
from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.spark import reader
from fedperf_client.sources.spark.event_log import EventLog
from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.plan import MAX_NODES
from fedperf_client.sources.spark.reader import USED_EVENTS, Application, Reader
from fedperf_shared.execution import Execution
from tests.fakes.json_paths import Place, places, replaced
from tests.fakes.spark_logs import SparkLog, node, sample

Json = dict[str, object]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
with_files = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
    deadline=None,
)


SAMPLE = sample()
PLACES = [place for place in places(SAMPLE) if len(place) > 1]


def read(path: Path, content: bytes) -> list[Execution | SkippedRecord]:
    path.write_bytes(content)
    return list(EventLog((path,)).read())


def test_fuzz_sample_contains_every_used_event() -> None:
    assert {str(event["Event"]).rpartition(".")[2] for event in SAMPLE} >= USED_EVENTS


@with_files
@given(place=st.sampled_from(PLACES), value=JSON)
def test_event_log_with_any_value_gives_executions_or_skip_reasons(
    tmp_path: Path, place: Place, value: object
) -> None:
    content = b"\n".join(map(_dumped, replaced(SAMPLE, place, value)))
    assert read(tmp_path / "log", content)


@with_files
@given(place=st.sampled_from(PLACES), value=JSON)
def test_diagnosis_of_event_log_with_any_value_completes(
    tmp_path: Path, place: Place, value: object
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(map(_dumped, replaced(SAMPLE, place, value))))
    ranking = Ranking(5)
    for found in jobs_of(EventLog((path,))):
        if not isinstance(found, str):
            ranking.add(found, "log", None)
    for each in ranking.first:
        assert list(lines_of(each))
        assert orjson.dumps(row_of(each))


@with_files
@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(sorted(USED_EVENTS)), st.dictionaries(st.text(), JSON, max_size=4)
        ),
        max_size=8,
    )
)
def test_reader_accepts_or_refuses_any_event_content(
    events: list[tuple[str, Json]],
) -> None:
    for with_tasks in (False, True):
        state = Reader(Application(with_tasks=with_tasks))
        for name, event in events:
            try:
                state.take(name, event)
            except MalformedEventError:
                continue
        state.end()


@with_files
@given(content=st.binary(max_size=2000))
def test_event_log_of_any_bytes_gives_only_skipped_records(tmp_path: Path, content: bytes) -> None:
    for found in read(tmp_path / "log", content):
        assert isinstance(found, SkippedRecord)


@with_files
@given(order=st.permutations(range(len(SAMPLE))))
def test_event_log_with_events_in_any_order_is_read(tmp_path: Path, order: list[int]) -> None:
    read(tmp_path / "log", b"\n".join(_dumped(SAMPLE[at]) for at in order))


@pytest.mark.parametrize(("depth", "is_read"), [(200, True), (400, True), (5_000, False)])
def test_event_log_with_plan_of_any_depth_is_skipped(
    tmp_path: Path, depth: int, *, is_read: bool
) -> None:
    scan = node("Scan parquet", rows=1)
    begin = b'{"nodeName":"Filter","simpleString":"","metrics":[],"children":['
    deep = begin * depth + orjson.dumps(scan) + b"]}" * depth
    content = SparkLog().begin().query(1, scan, {1: 9}).bytes().replace(orjson.dumps(scan), deep)
    found = read(tmp_path / "log", content)
    read_operators = [
        len(each.plan.workflow.operators) for each in found if isinstance(each, Execution)
    ]
    assert read_operators == ([depth + 1] if is_read else [])
    assert len(found) >= 1


def test_reader_drops_queries_that_never_end_and_bounds_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN", 50)
    monkeypatch.setattr(reader, "MAX_KEPT", 5_000)
    state = Reader()
    skipped = 0
    for number in range(1000):
        plan = node("Union", *[node("Scan parquet", rows=n) for n in range(number % 60)])
        event = {"executionId": number, "time": 5, "sparkPlanInfo": plan}
        skipped += len(state.take("SparkListenerSQLExecutionStart", event))
        assert len(state._open) <= 51
        assert sum(query.size for query in state._open.values()) <= 5_000 + MAX_NODES
    assert skipped + len(state.end()) == 1000


@pytest.mark.parametrize("query", [None, 1])
@pytest.mark.parametrize("same_job", [False, True])
def test_reader_drops_jobs_that_never_end_and_bounds_memory(
    monkeypatch: pytest.MonkeyPatch, query: int | None, *, same_job: bool
) -> None:
    monkeypatch.setattr(reader, "MAX_KEPT", 1_000)
    state = Reader()
    properties = {} if query is None else {"spark.sql.execution.id": str(query)}
    found = []
    for number in range(500):
        stages = list(range(10 * number, 10 * number + 10))
        event = {"Job ID": 0 if same_job else number, "Submission Time": 5, "Stage IDs": stages}
        found += state.take("SparkListenerJobStart", {**event, "Properties": properties})
        assert len(state._stages) + len(state._jobs) <= 1_011
    is_replaced = same_job and query is None  # each takes the place of the one before it
    assert {each.problem for each in found} == (set() if is_replaced else {reader.GIVEN_UP})
    assert sum(each.jobs for each in [*found, *state.end()]) == (1 if is_replaced else 500)


def test_hostile_application_name_is_sanitized_in_workload(tmp_path: Path) -> None:
    hostile = "<script>alert('x')</script>\x1b[31m/../../etc\x00 DROP TABLE"
    log = SparkLog(app_name=hostile, app_id=hostile).begin()
    log.query(1, node(f"Scan parquet {hostile}", rows=1), {1: 4})
    (found,) = read(tmp_path / "log", log.bytes())
    assert isinstance(found, Execution)
    assert found.workload.rpartition("/")[0] == "script-alert-x-script-m-etc-drop-table"


def _dumped(event: object) -> bytes:
    try:
        return orjson.dumps(event)
    except (orjson.JSONEncodeError, TypeError):
        return b'{"Event":"SparkListenerJobStart","Job ID":1e999}'
