"""Hand-written workflow files: parsing, and errors that name the operator."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedperf_client.formatting.workflow_file import InvalidWorkflowFileError, read_workflow_file
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.client.workflow_files import GOOD, changed

USUAL = ClusterConfig(2, 4, 2**33, 1.5)


def read(tmp_path: Path, content: object, platform: str | None = None) -> Any:
    path = tmp_path / "workflow.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_workflow_file(path, platform=platform)


def test_workflow_file_is_read_with_operators_platforms_and_sources(tmp_path: Path) -> None:
    written = read(tmp_path, GOOD)
    operators = written.plan.workflow.operators
    assert [each.kind for each in operators] == [
        OperatorKind.TABLE_SOURCE,
        OperatorKind.FILTER,
        OperatorKind.AGGREGATE,
    ]
    assert [each.inputs for each in operators] == [(), (0,), (1,)]
    assert operators[0].output_rows == 1_500_000
    assert operators[2].operator_class is OperatorClass.RELATIONAL
    assert written.plan.platforms == (Platform.DUCKDB, Platform.DUCKDB, Platform.POLARS)
    assert written.plan.workflow.sources.columns == 8


def test_workflow_file_with_partial_cluster_takes_defaults_for_the_rest(tmp_path: Path) -> None:
    written = read(tmp_path, GOOD | {"cluster": {"cores": 8, "memory_gib": 0.5}})
    assert written.cluster_or(USUAL) == ClusterConfig(2, 8, 2**29, 1.5)
    assert read(tmp_path, GOOD).cluster_or(USUAL) == USUAL


def test_workflow_file_platform_option_overrides_all_operators(tmp_path: Path) -> None:
    assert set(read(tmp_path, GOOD, "pandas").plan.platforms) == {Platform.PANDAS}


BAD = {
    "not JSON": ("{", "is not JSON"),
    "NaN": (json.dumps(changed(1, output_rows=float("nan"))), "NaN"),
    "a list": ([], "the file"),
    "nothing": ({}, "operators"),
    "no operators": ({"operators": [], "platform": "duckdb"}, "1 to 512 operators"),
    "deep": ("[" * 100_000, "is not JSON"),
    "unknown kind": (changed(1, kind="filtre"), "operator 1 (open): kind: unknown kind 'filtre'"),
    "reserved kind": (changed(1, kind="reserved_1"), "operator 1 (open): kind: unknown kind"),
    "no kind": (changed(1, kind=None), "operator 1 (open): kind: is missing"),
    "unknown class": (changed(0, **{"class": "art"}), "operator 0 (orders): class: unknown class"),
    "unknown platform": (
        changed(2, platform="abacus"),
        "operator 2 (totals): platform: unknown platform",
    ),
    "unknown key": (
        changed(1, row_byte=3),
        'operator 1 (open): row_byte: unknown key; did you mean "row_bytes"?',
    ),
    "unknown table": (GOOD | {"plattform": "spark"}, 'did you mean "platform"?'),
    "more after a filter": (
        changed(1, output_rows=1500001),
        "operator 1 (open): output_rows is 1,500,001, but a filter has at most its 1,500,000 input "
        "rows",
    ),
    "no rows": (
        changed(0, output_rows=None),
        "operator 0 (orders) has no inputs, so it needs output_rows",
    ),
    "negative": (changed(0, output_rows=-1), "operator 0 (orders): output_rows must be between"),
    "absurd": (changed(0, output_rows=1e300), "operator 0 (orders): output_rows must be between"),
    "yes": (changed(0, output_rows=True), "operator 0 (orders): output_rows"),
    "a text": (
        changed(0, output_rows="many"),
        "operator 0 (orders): output_rows: must be a number, got 'many'",
    ),
    "ratio": (changed(2, key_distinct_ratio=2), "operator 2 (totals): key_distinct_ratio"),
    "cycle": (changed(1, inputs=["totals"]), "operator 1 (open) is part of, or behind, a cycle"),
    "itself": (changed(1, inputs=[1]), "operator 1 (open) is part of, or behind, a cycle"),
    "nobody": (changed(1, inputs=["ordres"]), "operator 1 (open) reads from 'ordres'"),
    "no such number": (changed(1, inputs=[7]), "operator 1 (open) reads from operator 7"),
    "same name": (changed(1, name="orders"), "operator 1 has the name 'orders' of operator 0"),
    "no cores": (GOOD | {"cluster": {"cores": 0}}, "cluster.cores: must be at least 1, got 0"),
    "no platform": (
        {key: value for key, value in GOOD.items() if key != "platform"},
        "operator 0 (orders) has no platform; name one in the file or with --platform",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_workflow_file_is_refused_with_the_operator_named(
    case: str, tmp_path: Path
) -> None:
    content, says = BAD[case]
    with pytest.raises(InvalidWorkflowFileError) as refused:
        read(tmp_path, content)
    assert says in str(refused.value)


def test_workflow_file_without_rows_of_an_operator_estimates_them(tmp_path: Path) -> None:
    found = read(tmp_path, changed(1, output_rows=None, row_bytes=None))
    orders, is_open, _ = found.plan.workflow.operators
    assert is_open.output_rows == pytest.approx(orders.output_rows / 3)
    assert is_open.row_bytes == orders.row_bytes


def test_missing_unreadable_or_huge_workflow_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkflowFileError, match=r"missing.json does not exist"):
        read_workflow_file(tmp_path / "missing.json")
    with pytest.raises(InvalidWorkflowFileError, match="cannot read"):
        read_workflow_file(tmp_path)
    with pytest.raises(InvalidWorkflowFileError, match="larger than"):
        read(tmp_path, " " * (9 * 2**20))


def test_workflow_file_problem_repeated_by_operators_is_reported_once(tmp_path: Path) -> None:
    operators = [each | {"rowbytes": 8} for each in GOOD["operators"]]  # type: ignore[attr-defined]
    with pytest.raises(InvalidWorkflowFileError) as refused:
        read(tmp_path, GOOD | {"operators": operators})
    assert str(refused.value).endswith(
        'operator 0 (orders): rowbytes: unknown key; did you mean "row_bytes"? (and 2 more alike)'
    )


def test_filter_after_operator_without_rows_may_have_any_row_count(tmp_path: Path) -> None:
    content = changed(2, kind="filter", output_rows=1400000)
    operators: Any = content["operators"]
    operators[1] = {key: value for key, value in operators[1].items() if key != "output_rows"}
    assert read(tmp_path, content)


def test_workflow_file_default_platform_applies_to_operators_without_one(tmp_path: Path) -> None:
    path = tmp_path / "workflow.json"
    nothing = {key: value for key, value in GOOD.items() if key != "platform"}
    path.write_text(json.dumps(nothing))
    assert read_workflow_file(path, otherwise="unassigned").plan.platforms == (
        Platform.UNASSIGNED,
        Platform.UNASSIGNED,
        Platform.POLARS,
    )
    path.write_text(json.dumps(GOOD))
    said = read_workflow_file(path, otherwise="unassigned").plan.platforms
    assert said == read_workflow_file(path).plan.platforms
