"""Queue and compute time from reply headers, and placeholders in requests."""

import math
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_campaigns.campaign.definition import Component, component_message
from fedperf_campaigns.campaign.http_call import split_of


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, (None, None)),
        ({"X-Duration-Seconds": "0.75"}, (0.25, 0.75)),
        ({"x-duration-seconds": "3"}, (0.0, 3.0)),
        ({"Server-Timing": "queue;dur=100,compute;dur=800"}, (0.1, 0.8)),
        ({"Server-Timing": 'db;dur=53, app;desc="a b";dur=47.2'}, (0.9528, 0.0472)),
        ({"Server-Timing": "wait; dur = 20", "X-Duration-Seconds": "0.5"}, (0.02, 0.5)),
        ({"Server-Timing": "compute;dur=nan", "X-Duration-Seconds": "inf"}, (None, None)),
        ({"Server-Timing": "compute;dur=-5", "X-Duration-Seconds": "-1"}, (None, None)),
        ({"Server-Timing": "compute", "X-Duration-Seconds": "soon"}, (None, None)),
    ],
)
def test_split_of_reads_queue_and_compute_seconds_from_headers(
    headers: dict[str, str], expected: tuple[float | None, float | None]
) -> None:
    assert split_of(httpx.Headers(headers), 1.0) == pytest.approx(expected)


@given(st.text(alphabet=st.sampled_from('queue;compute dur=0123.e,"\\-'), max_size=200))
def test_split_of_any_header_gives_finite_seconds_or_none(text: str) -> None:
    for each in split_of({"Server-Timing": text, "X-Duration-Seconds": text}, 1.0):
        assert each is None or (math.isfinite(each) and each >= 0)


def test_component_message_fills_placeholders_and_keeps_other_braces() -> None:
    row: dict[str, float | str | bool] = {"rows": 5, "mode": "a b/{rows}", "cached": True}
    command = Component(name="c", command=("x", "{rows}-{mode}", "{{rows}} {cached}"))
    told = component_message(command, row, Path("/t"))
    assert told["command"] == ["x", "5-a b/{rows}", "{rows} true"]
    request = Component.model_validate(
        {
            "name": "c",
            "http": {
                "url": "http://h/{mode}?d={trial_directory}",
                "headers": {"X-Rows": "{rows}"},
                "body": '{"a": {"rows": {rows}, "other": {x}}}',
            },
        }
    )
    sent = component_message(request, row, Path("/t"))["http"]
    assert isinstance(sent, dict)
    assert sent["url"] == "http://h/a%20b%2F%7Brows%7D?d=%2Ft"
    assert sent["headers"] == {"X-Rows": "5"}
    assert sent["body"] == '{"a": {"rows": 5, "other": {x}}}'
