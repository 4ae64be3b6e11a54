"""Explanations of mixes: who has which weight, and why."""

import math

import numpy as np

from fedperf_client.prediction.answers.explanation import lines_of, rows_of, rules_of
from fedperf_client.prediction.mixture.learner_weights import STACKED_FROM
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.mixture import MixMember, MixOutcome

MEMBERS = (
    MixMember("third", 0.0, math.log(2.4)),
    MixMember("first", 0.7, math.log(1.2)),
    MixMember("second", 0.3, math.log(1.5)),
)


def outcome(workloads: int, *members: MixMember) -> MixOutcome:
    rows = np.arange(workloads)
    errors = np.zeros(workloads)
    return MixOutcome(Asks.SEEN, 0, members or MEMBERS, 5, errors, rows, rows)


def test_every_member_is_told_with_its_weight_its_error_and_why() -> None:
    assert [
        (line["member"], line["weight"], line["error"], line["why"])
        for line in lines_of([outcome(STACKED_FROM - 1)])
    ] == [
        ("first", "70%", "1.200x", "least error"),
        ("second", "30%", "1.500x", "1.25x the least error"),
        ("third", "0%", "2.400x", "2.00x the least error, below the smallest"),
    ]
    weights, errors = rules_of([outcome(STACKED_FROM - 1)])
    assert "weights fall with the error" in weights
    assert errors.startswith("error: how many times too long or too short")


def test_weights_that_were_fitted_together_are_told_as_such() -> None:
    *_, last = rows_of([outcome(STACKED_FROM)])
    assert last["why"] == "2.00x the least error, adds nothing"
    assert "the mix that errs least" in rules_of([outcome(STACKED_FROM)])[0]


def test_before_anything_ran_the_most_trusted_counts() -> None:
    none = outcome(0, MixMember("start", 1.0, math.nan), MixMember("other", 0.0, math.nan))
    rows = rows_of([none])
    assert [row["why"] for row in rows] == ["trusted first: nothing ran yet", "nothing ran yet"]
    assert [line["error"] for line in lines_of([none])] == [None, None]
    assert rules_of([none]) == []
