"""Runs and models of dbt; the contract of sources is in `tests/contract`."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources import SkippedRecord
from fedperf_client.sources.dbt import RunResults, find_manifest, models_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import Execution, ExecutionStatus
from tests.fakes.dbt_artifacts import manifest, result, run_results


def read(path: Path, content: object) -> list[Execution | SkippedRecord]:
    path.write_bytes(orjson.dumps(content))
    return list(RunResults(path).read())


def test_run_results_give_one_execution_per_model_with_its_seconds(tmp_path: Path) -> None:
    [run] = read(tmp_path / "r.json", run_results(result("orders", seconds=2.5)))
    assert isinstance(run, Execution)
    assert (run.workload, run.runtime_seconds) == ("dbt/model.shop.orders", 2.5)
    assert run.finished_at == datetime(2026, 11, 28, 15, 29, 59, 301242, UTC)
    assert (run.origin.source, run.origin.application) == ("dbt 1.10.23", "shop")
    assert run.origin.rows_known == 0


def test_run_results_of_another_invocation_are_other_executions(tmp_path: Path) -> None:
    [first] = read(tmp_path / "r.json", run_results(result("orders")))
    [again] = read(tmp_path / "r.json", run_results(result("orders")))
    [other] = read(tmp_path / "r.json", run_results(result("orders"), invocation="b"))
    assert isinstance(first, Execution)
    assert isinstance(other, Execution)
    assert again == first
    assert other == replace(first, execution_id=other.execution_id, origin=other.origin)
    assert other.execution_id != first.execution_id


def test_run_results_of_error_and_skipped_model_are_failed_and_skipped(tmp_path: Path) -> None:
    failed = result("a", status="error", message="Runtime Error\n  no table")
    found = read(tmp_path / "r.json", run_results(failed, result("b", status="skipped")))
    assert isinstance(found[0], Execution)
    assert (found[0].status, found[0].origin.failure) == (
        ExecutionStatus.FAILED,
        "Runtime Error no table",
    )
    assert found[1] == SkippedRecord("result 1", "dbt did not run it: skipped")


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(result("a"))), value=_ANY, of_metadata=st.booleans())
def test_run_results_with_any_value_in_place_of_one_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object, of_metadata: bool
) -> None:
    content = run_results(result("a") | {key: value})
    if of_metadata:
        content["metadata"] = dict.fromkeys(["invocation_id", "dbt_version", "generated_at"], value)
    path = tmp_path_factory.mktemp("dbt") / "r.json"
    [found] = read(path, content)
    assert isinstance(found, Execution | SkippedRecord)


def test_manifest_is_found_in_project_target_and_by_itself(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    path = target / "manifest.json"
    assert find_manifest(tmp_path) is None
    path.write_bytes(orjson.dumps(manifest(totals="select 1", kinds=None)))
    assert [find_manifest(each) for each in (tmp_path, target, path)] == [path] * 3
    assert [(each.unique_id, each.compiled_code) for each in models_of(path)] == [
        ("model.shop.kinds", None),
        ("model.shop.totals", "select 1"),
    ]


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"nodes": 3}', b'{"nodes": {'])
def test_manifest_that_is_none_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"manifest\.json: ") as caught:
        models_of(path)
    assert "\n" not in str(caught.value)
