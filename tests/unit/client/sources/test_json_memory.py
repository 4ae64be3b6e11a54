"""Tests of the JSON memory bound: the largest plan that Spark writes is just below it."""

from collections.abc import Callable

import orjson
import pytest

from fedperf_client.sources.opener import MAX_PARSED_BYTES, exceeds_json_memory
from fedperf_client.sources.spark.plan import MAX_NODES
from tests.fakes.spark_logs import Json, SparkLog

COUNTERS = 12
"""Counters per node, more than any operator of the public logs has."""


def test_largest_readable_plan_is_below_json_memory_bound() -> None:
    text = "[" + ", ".join(f"column{each}#{each}L" for each in range(10)) + "]"
    counter: Json = {"name": "number of output rows", "accumulatorId": 123_456, "metricType": "sum"}
    nodes: list[Json] = [
        {
            "nodeName": "SortMergeJoin",
            "simpleString": f"SortMergeJoin {text}",
            "children": [],
            "metadata": {},
            "metrics": [counter] * COUNTERS,
        }
    ] * MAX_NODES
    plan: Json = {"nodeName": "Union", "children": nodes}
    assert not exceeds_json_memory(SparkLog().start(0, plan).bytes())


@pytest.mark.parametrize(
    "part",
    [
        lambda _: "1",
        lambda number: f'"{number}"',
        lambda _: "[]",
        lambda _: "{}",
        lambda _: '{"a":{"b":{}}}',
        lambda number: f'{{"{number}":{number}}}',
    ],
)
def test_many_json_values_exceed_memory_bound_before_maximum_line_length(
    part: Callable[[int], str],
) -> None:
    values = ",".join(part(each) for each in range(MAX_PARSED_BYTES // 88))
    assert orjson.loads(f"[{values[:1000].rpartition(',')[0]}]")
    assert exceeds_json_memory(f"[{values}]".encode())


def test_json_text_with_a_wide_character_counts_more_memory() -> None:
    text = b"a" * (MAX_PARSED_BYTES // 4)
    assert not exceeds_json_memory(b'["' + text + b'"]')
    assert exceeds_json_memory('["\U0001f600'.encode() + text + b'"]')
    assert exceeds_json_memory(b'["\\ud83d\\ude00' + text + b'"]')
