"""Words for cores, durations and chances."""

import pytest

from fedperf_client.prediction.answers.what_if import chance_text, parse_cores, parse_duration
from fedperf_client.text.durations import duration_text
from fedperf_shared.errors import InvalidInputError


def test_cores_are_numbers_in_order_each_once() -> None:
    assert parse_cores("16, 8,32,8") == [8, 16, 32]


@pytest.mark.parametrize(
    "text", ["", "0", "8,,16", "-4", "8.5", "many", "1e3", "9999999", "\u0663"]
)
def test_what_no_cluster_has_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--cores"):
        parse_cores(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1.5h", 5400),
        ("2 h", 7200),
        ("45", 45),
        ("1d", 86400),
        ("30ms", 0.03),
    ],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-5m", "soon", "1e3s", "inf", "nan", "99999h", "5 w"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="deadline"):
        parse_duration(text)


def test_durations_and_chances_are_told_in_units_of_people() -> None:
    told = [duration_text(each) for each in (0.0123, 1.5, 90, 600, 9000, 400_000)]
    assert told == ["12.3 ms", "1.5 s", "90 s", "10.0 min", "2.5 h", "4.6 d"]
    assert [chance_text(each) for each in (0.0, 0.504, 0.899, 1.0)] == ["1%", "50%", "89%", "99%"]
