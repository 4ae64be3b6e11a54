"""What may be parsed: the largest plan that Spark honestly writes, and little more memory."""

from collections.abc import Callable

import orjson
import pytest

from fedperf_client.sources.opener import MAX_PARSED_BYTES, exceeds_json_memory
from fedperf_client.sources.spark.plan import MAX_NODES
from tests.fakes.spark_logs import Json, SparkLog

COUNTERS = 12
"""Of each node: more than any operator of the public logs has."""


def test_the_largest_plan_that_is_read_is_parsed() -> None:
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
def test_many_values_are_too_much_long_before_the_longest_line(part: Callable[[int], str]) -> None:
    values = ",".join(part(each) for each in range(MAX_PARSED_BYTES // 88))
    assert orjson.loads(f"[{values[:1000].rpartition(',')[0]}]")
    assert exceeds_json_memory(f"[{values}]".encode())


def test_a_long_text_counts_more_where_a_single_character_is_wide() -> None:
    text = b"a" * (MAX_PARSED_BYTES // 4)
    assert not exceeds_json_memory(b'["' + text + b'"]')
    assert exceeds_json_memory('["\U0001f600'.encode() + text + b'"]')
    assert exceeds_json_memory(b'["\\ud83d\\ude00' + text + b'"]')
