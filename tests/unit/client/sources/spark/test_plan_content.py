"""Equal parts of plans: descriptions without numbers, and joins that could be sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.spark.plan import content_of, sides_to_send

numbers = st.integers(0, 10**6)


@given(numbers, numbers, numbers, numbers)
def test_content_ignores_the_numbers_of_an_occurrence(a: int, b: int, c: int, d: int) -> None:
    def exchange(expression: int, plan: int) -> str:
        return (
            f"Exchange hashpartitioning(key#{expression}L, 4), ENSURE_REQUIREMENTS, "
            f"[plan_id={plan}]"
        )

    assert content_of(exchange(a, b)) == content_of(exchange(c, d)) != 0


@given(st.text(), numbers)
def test_content_of_other_constants_differs(text: str, number: int) -> None:
    filtered = f"Filter (isnotnull(a#1) AND (a#1 > {number}))"
    assert content_of(filtered) != content_of(f"Filter (isnotnull(a#1) AND (a#1 > {number + 1}))")
    assert isinstance(content_of(text), int)


def test_content_of_a_very_long_description_is_unknown() -> None:
    assert content_of("x" * 10_000) == 0


@pytest.mark.parametrize(
    ("name", "kind", "sides"),
    [
        ("SortMergeJoin", "Inner", (0, 1)),
        ("SortMergeJoin(skew=true)", "LeftOuter", (1,)),
        ("SortMergeJoin", "RightOuter", (0,)),
        ("SortMergeJoin", "FullOuter", ()),
        ("BroadcastHashJoin", "Inner", ()),
    ],
)
def test_sides_of_a_sort_merge_join_depend_on_its_type(
    name: str, kind: str, sides: tuple[int, ...]
) -> None:
    assert sides_to_send(name, f"{name} [key#1L], [key#2L], {kind}") == sides
