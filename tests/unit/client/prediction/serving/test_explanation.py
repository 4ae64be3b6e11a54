"""Explanations of ensembles: weights of the members and their reasons."""

import math
from dataclasses import replace

import numpy as np

from fedperf_client.formatting.facts import texts_of, values_of
from fedperf_client.prediction.ensemble.ensemble import (
    STACKED_FROM,
    EnsembleMember,
    EnsembleWeights,
)
from fedperf_client.prediction.prediction import QueryRegime
from fedperf_client.prediction.serving.explanation import (
    accuracy_sentence,
    member_facts,
    weighting_rules,
)

MEMBERS = (
    EnsembleMember("third", 0.0, math.log(2.4)),
    EnsembleMember("first", 0.7, math.log(1.2)),
    EnsembleMember("second", 0.3, math.log(1.5)),
)


def outcome(workloads: int, *members: EnsembleMember) -> EnsembleWeights:
    rows = np.arange(workloads)
    errors = np.zeros(workloads)
    return EnsembleWeights(QueryRegime.SEEN, 0, members or MEMBERS, 5, errors, rows, rows, 0.0)


def test_ensemble_member_facts_list_weight_error_and_reason_in_order() -> None:
    assert [
        (line["learner"], line["weight"], line["error"], line["why"])
        for line in map(texts_of, member_facts([outcome(STACKED_FROM - 1)]))
    ] == [
        ("first", "70%", "1.200x", "least error"),
        ("second", "30%", "1.500x", "1.25x the least error"),
        ("third", "0%", "2.400x", "2.00x the least error, weight below 1%"),
    ]
    rules = weighting_rules([outcome(STACKED_FROM - 1)])
    assert "weights fall with the error" in rules[0]
    assert [each.split()[0] for each in rules[1:]] == ["error:", "learners:", "regime"]


def test_accuracy_sentence_counts_each_workload_once() -> None:
    often = np.concatenate([np.zeros(50, np.int64), np.arange(1, 11)])  # one has fifty runs
    errors = np.concatenate([np.full(50, 3.0), np.log(np.linspace(1.1, 2.0, 10))])
    told = accuracy_sentence(
        [replace(outcome(60), errors=errors * [(-1) ** n for n in range(60)], groups=often)]
    )
    assert told is not None
    assert "are predicted within 1.60 times, nine of ten within 2.0" in told
    assert "on 11 workloads)" in told
    assert accuracy_sentence([outcome(0)]) is None


def test_ensemble_member_facts_and_rules_describe_jointly_fitted_weights() -> None:
    *_, last = map(values_of, member_facts([outcome(STACKED_FROM)]))
    assert last["why"] == "2.00x the least error, adds nothing"
    assert "minimize the error of the ensemble" in weighting_rules([outcome(STACKED_FROM)])[0]


def test_ensemble_member_facts_without_runs_name_the_most_trusted() -> None:
    none = outcome(
        0, EnsembleMember("start", 1.0, math.nan), EnsembleMember("other", 0.0, math.nan)
    )
    rows = list(map(values_of, member_facts([none])))
    assert [row["why"] for row in rows] == ["trusted first: nothing ran yet", "nothing ran yet"]
    assert [line["error"] for line in map(texts_of, member_facts([none]))] == [None, None]
    assert weighting_rules([none]) == []
