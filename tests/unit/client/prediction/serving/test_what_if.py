"""Cores, durations and probabilities of what-if analyses: parsing and formatting."""

from datetime import UTC, datetime

import numpy as np
import pytest

from fedperf_client.formatting.facts import texts_of, values_of
from fedperf_client.prediction.prediction import (
    ErrorDistribution,
    Evidence,
    EvidenceSource,
    Prediction,
    QueryRegime,
    StudentT,
)
from fedperf_client.prediction.serving.what_if import (
    ClusterPrediction,
    deadline_sentence,
    equivalence_sentence,
    format_probability,
    p90_discontinuity_note,
    parse_cores,
    parse_duration,
    seconds_until,
    smallest_equivalent,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.quantities import duration_text


@pytest.mark.parametrize(
    ("text", "hours"), [("06:00", 8.0), ("22:30", 0.5), ("22:00", 24.0), ("23:00+01:00", 24.0)]
)
def test_seconds_until_time_of_day_refers_to_next_occurrence(text: str, hours: float) -> None:
    now = datetime(2026, 11, 25, 22, 0, tzinfo=UTC)
    assert seconds_until(text, now) == 3600 * hours


@pytest.mark.parametrize("text", ["noon", "25:00", "", "2026-11-26"])
def test_seconds_until_with_invalid_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="06:00"):
        seconds_until(text, datetime(2026, 11, 25, tzinfo=UTC))


def test_parse_cores_sorts_and_deduplicates() -> None:
    assert parse_cores("16, 8,32,8") == [8, 16, 32]


@pytest.mark.parametrize(
    "text", ["", "0", "8,,16", "-4", "8.5", "many", "1e3", "9999999", "\u0663"]
)
def test_parse_cores_with_invalid_counts_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--cores"):
        parse_cores(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("20m", 1200),
        ("1.5h", 5400),
        ("2 h", 7200),
        ("1d", 86400),
        ("30ms", 0.03),
    ],
)
def test_parse_duration_accepts_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "-5m", "5", "45.5", "soon", "1e3s", "inf", "nan", "99999h", "5 w"]
)
def test_parse_duration_with_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="a deadline is a number with its unit"):
        parse_duration(text)


def test_durations_and_probabilities_are_formatted_for_readers() -> None:
    told = [duration_text(each) for each in (0.0123, 1.5, 90, 600, 9000, 400_000)]
    assert told == ["12.3 ms", "1.5 s", "90 s", "10.0 min", "2.5 h", "4.6 d"]
    chances = [format_probability(each) for each in (0.0, 0.0099, 0.01, 0.504, 0.899, 1.0)]
    assert chances == ["< 1%", "< 1%", "1%", "50%", "89%", "99%"]


def answer(
    nodes: int = 1,
    *,
    kind: QueryRegime = QueryRegime.SEEN,
    inside: bool = True,
    keeps: bool = False,
    chance: float | None = None,
) -> ClusterPrediction:
    spread = ErrorDistribution.from_errors(np.zeros(40), np.arange(40))
    estimate = Prediction(0.0, spread, regime=kind, extrapolating=not inside)
    return ClusterPrediction(ClusterConfig(nodes, 4 * nodes, 1 << 34), estimate, chance, keeps)


@pytest.mark.parametrize(
    ("found", "table", "asks"),
    [
        (answer(), "observed", "observed"),
        (answer(keeps=True), "observed, with its partitions", "observed"),
        (answer(inside=False), "unlike own jobs, uncalibrated", "unlike own jobs"),
        (
            answer(inside=False, keeps=True),
            "unlike own jobs, with its partitions, uncalibrated",
            "unlike own jobs",
        ),
        (
            answer(kind=QueryRegime.BEYOND_SCALES, inside=False),
            "extrapolated cluster, uncalibrated",
            "extrapolated cluster",
        ),
        (answer(kind=QueryRegime.BETWEEN_SIZES), "interpolated input", "interpolated input"),
    ],
)
def test_cluster_prediction_table_and_json_agree_on_query_regime(
    found: ClusterPrediction, table: str, asks: str
) -> None:
    assert texts_of(found.facts)["regime"] == table
    row = values_of(found.facts)
    assert row["regime"] == asks
    assert row["fixed_partitions"] is found.keeps_partitions
    assert row["extrapolating"] is ("uncalibrated" in table)


@pytest.mark.parametrize(
    ("chances", "of_nodes", "says"),
    [
        ((0.1, 0.2), True, "none of these node counts meets 60 s with 90% probability; "
         "the best: 2 nodes, 20%"),
        ((0.2, 0.1), True, "the best: 1 node, 20%"),
        ((0.2, 0.1), False, "none of these core counts meets 60 s with 90% probability; "
         "the best: 4 cores, 20%"),
        ((0.95, 0.99), True, "fewest nodes that meet 60 s: 1, with 95% probability"),
        ((0.5, 0.99), False, "fewest cores that meet 60 s: 8, with 99% probability"),
    ],
)  # fmt: skip
def test_deadline_sentence_counts_nodes_or_cores_as_queried(
    chances: tuple[float, float], of_nodes: bool, says: str
) -> None:
    found = [answer(nodes, chance=chance) for nodes, chance in zip((1, 2), chances, strict=True)]
    assert deadline_sentence(found, 60.0, of_nodes=of_nodes).endswith(says)


def sized(
    *seconds: float, cores: int = 0, deadline: float | None = None
) -> list[ClusterPrediction]:
    """Return predictions on 1, 2, 4, ... cores, with standard errors of about 0.1 log seconds.

    If `cores` is given, they are for that many cores on 1, 2, 3, ... nodes.
    """
    found = []
    for number, each in enumerate(seconds):
        spread = StudentT(0.1, 10.0)
        estimate = Prediction(float(np.log(each)), spread)
        nodes, many = (number + 1, cores) if cores else (1, 2**number)
        chance = None if deadline is None else estimate.probability_within(deadline)
        found.append(ClusterPrediction(ClusterConfig(nodes, many, 1 << 34), estimate, chance))
    return found


def test_smallest_equivalent_is_first_size_without_distinguishable_improvement() -> None:
    least = smallest_equivalent(sized(100.0, 60.0, 59.0, 58.0))
    assert least is not None
    assert least[0].cores == 2
    assert 0.5 < least[1] < 0.75
    told = str(equivalence_sentence(sized(100.0, 60.0, 59.0, 58.0)))
    assert told.startswith("median time stops improving at 2 cores")
    assert "deadline" not in told
    assert smallest_equivalent(sized(100.0, 60.0, 30.0)) is None
    assert equivalence_sentence(sized(100.0)) is None


def test_equivalence_sentence_explains_why_deadline_needs_larger_size() -> None:
    found = sized(100.0, 60.0, 59.0, 58.0, deadline=68.2)
    assert [each.meets_deadline for each in found] == [False, False, True, True]
    told = str(equivalence_sentence(found))
    assert told.startswith("median time stops improving at 2 cores")
    assert "; a deadline depends on slow runs too: 2 cores meet it with a probability of 8" in told
    assert deadline_sentence(found, 68.2, of_nodes=False).startswith(
        "fewest cores that meet 68.2 s: 4, "
    )
    for deadline in (300.0, 10.0):  # met by the same size, or by none
        assert "slow runs" not in str(
            equivalence_sentence(sized(100.0, 60.0, 59.0, deadline=deadline))
        )


def test_equivalence_sentence_of_more_nodes_with_same_cores_is_none() -> None:
    assert equivalence_sentence(sized(60.0, 59.0, 58.0, cores=64)) is None


def test_p90_discontinuity_note_appears_only_if_evidence_sources_differ() -> None:
    def resting(*bases: EvidenceSource) -> list[ClusterPrediction]:
        spread = StudentT(0.1, 3.0)
        return [
            ClusterPrediction(
                ClusterConfig(1, 4 * number, 1 << 34),
                Prediction(0.0, spread, evidence=Evidence(each, 1)),
                None,
            )
            for number, each in enumerate(bases, start=1)
        ]

    own, moved = EvidenceSource.OWN_RUNS, EvidenceSource.OTHER_RESOURCES
    assert str(p90_discontinuity_note(resting(moved, own, moved))).startswith(
        "P90 of 8 cores is from own"
    )
    for same in ((own, own), (moved, moved), (own,), (own, EvidenceSource.PRETRAINED)):
        assert p90_discontinuity_note(resting(*same)) is None


def test_cluster_prediction_table_and_json_show_evidence() -> None:
    basis = Evidence(EvidenceSource.OWN_RUNS, 4)
    estimate = Prediction(0.0, StudentT(0.1, 3.0), evidence=basis)
    found = ClusterPrediction(ClusterConfig(1, 4, 1 << 34), estimate, None)
    assert texts_of(found.facts)["evidence"] == "4 own runs of it"
    row = values_of(found.facts)
    assert (row["evidence"], row["observed_runs"]) == ("own runs of it", 4)
