"""Explanation of a prediction: the weights in its mixes, and whether two plans are alike work."""

import math
from collections.abc import Iterable

import numpy as np

from fedperf_client.prediction.evidence import UNNAMED, engine_of
from fedperf_client.prediction.mixture.intervals import HULL_MARGIN
from fedperf_client.prediction.mixture.learner_weights import SMALLEST_WEIGHT, STACKED_FROM
from fedperf_client.prediction.mixture.matched_folds import Asks
from fedperf_client.prediction.mixture.mixture import MixMember, MixOutcome
from fedperf_client.text.facts import Fact
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.template import fingerprint
from fedperf_shared.workflow.vocabulary import NAMED_PLATFORMS, OperatorKind


def member_facts(outcomes: Iterable[MixOutcome]) -> list[list[Fact]]:
    """The facts of each member of each mix, of most weight first."""
    found = []
    for outcome in outcomes:
        question = "inside" if outcome.kind is Asks.SEEN else outcome.kind.value
        for member in sorted(outcome.members, key=lambda each: (-each.weight, each.error)):
            error = math.exp(member.error) if math.isfinite(member.error) else None
            found.append(
                [
                    Fact("question", question, "question"),
                    Fact("levels_held_out", outcome.cut or None, "levels_held_out"),
                    Fact("folds", outcome.folds, "folds"),
                    Fact("held_out", len(outcome.errors), "held_out"),
                    Fact("member", member.name, "member"),
                    Fact("weight", member.weight, "weight", f"{member.weight:.0%}"),
                    Fact("error", error, "error", None if error is None else f"{error:.3f}x"),
                    Fact("why", _why(member, outcome), "why"),
                ]
            )
    return found


def in_short(outcomes: Iterable[MixOutcome]) -> str | None:
    """What a person can expect of answers, in one sentence; None where nothing ran yet."""
    inside = [each for each in outcomes if each.kind is Asks.SEEN and len(each.errors)]
    if not inside:
        return None
    _, group = np.unique(np.concatenate([each.groups for each in inside]), return_inverse=True)
    absolute = np.abs(np.concatenate([each.errors for each in inside]))
    errors = np.bincount(group, absolute) / np.bincount(group)
    half, most = (math.exp(float(np.quantile(errors, share))) for share in (0.5, 0.9))
    return (
        "in short: asked about each workload as if it had never run here, but others like it, "
        f"half of the answers are off by less than {half:.2f} times, nine of ten by less than "
        f"{most:.2f} ({len(errors)} workloads); what ran before is answered from its own runs"
    )


def rules_of(outcomes: Iterable[MixOutcome]) -> list[str]:
    """How weights followed from errors, a sentence for each rule that was used."""
    known = [each for each in outcomes if len(each.errors)]
    told = []
    if any(not _is_stacked(each) for each in known):
        told.append(
            "weights fall with the error, the more steeply the more workloads ran here; below "
            f"{SMALLEST_WEIGHT:.0%} there is none"
        )
    if any(_is_stacked(each) for each in known):
        told.append(
            f"from {STACKED_FROM} workloads on weights are those of the mix that errs least: a "
            "member with a larger error counts where it is off in other places than the others"
        )
    if known:
        told.append(
            "error: how many times too long or too short, typically, on own executions held out; "
            "in each question most weight comes first"
        )
    return told


def names_of(engines: int) -> str:
    """The engines of a mix for people, from bits as of `engine_of`; commands are an own one."""
    named = {engine_of((OperatorKind.OTHER, each)): each.name.lower() for each in NAMED_PLATFORMS}
    commands = {
        engine_of((OperatorKind.COMMAND, each)): f"commands on {each.name.lower()}"
        for each in NAMED_PLATFORMS
    }
    of_bits = {**named, **commands, UNNAMED: "others"}
    return ", ".join(name for bit, name in of_bits.items() if bit & engines)


def _why(member: MixMember, outcome: MixOutcome) -> str:
    """What its error has to do with its weight."""
    if not len(outcome.errors):
        return "nothing ran yet" if member.weight == 0 else "trusted first: nothing ran yet"
    least = min(each.error for each in outcome.members)
    is_least = member.error == least
    error = "least error" if is_least else f"{math.exp(member.error - least):.2f}x the least error"
    if member.weight > 0:
        return error
    return f"{error}, adds nothing" if _is_stacked(outcome) else f"{error}, below the smallest"


def _is_stacked(outcome: MixOutcome) -> bool:
    return len(set(outcome.groups.tolist())) >= STACKED_FROM


def same_work(one: Plan, other: Plan) -> bool:
    """Whether two plans have one shape and platforms, and sizes within a factor of two."""
    sizes = [math.log1p(plan.workflow.source_rows) for plan in (one, other)]
    return abs(sizes[0] - sizes[1]) <= HULL_MARGIN and same_shape(one, other)


def same_shape(one: Plan, other: Plan) -> bool:
    """Whether two plans have one shape and platforms, at whatever sizes."""
    return sorted(one.platforms) == sorted(other.platforms) and (
        fingerprint(one.workflow) == fingerprint(other.workflow)
    )
