"""From what the programs print to the results of a demo."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from fedperf_client.home.config import Home
from fedperf_client.release.history import LEFT
from fedperf_client.release.ledger.ledger import PrivacyLedger
from fedperf_client.release.policy import load_policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_client.release.slot_names import slot_name
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import Checkpoint, model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.releases.period import Timetable
from fedperf_simulations.demo.scenario import DemoMember
from fedperf_simulations.demo.summary import (
    LeftOut,
    OrganizationResult,
    QErrors,
    Released,
    RoundSummary,
    VersionSummary,
)

NOISE_ALONE = "leaves as noise alone"
"""What a daemon's log says when a sum was not there in time."""

REPORTS = frozenset({"residual_report", "directed_report"})
"""Kinds whose receipt comes at once; an update's comes when its round is over, or later."""

Facts = Mapping[str, Any]
"""What a program prints with `--json`."""


def collected(
    who: DemoMember,
    home: Home,
    timetable: Timetable,
    *,
    fingerprint: str,
    live: int,
    status: Facts,
    budget: Sequence[Facts],
    gain: Facts,
    releases: Sequence[Facts],
    log: str,
) -> OrganizationResult:
    """One organization's result; the period's ledger says what each release cost."""
    planned = plan_schedule(load_policy(home.policy), timetable)
    period = budget[-1]
    made = [each for each in releases if each["state"] in LEFT]
    ledger = PrivacyLedger.open(home.ledger(timetable.period.start))
    return OrganizationResult(
        name=who.name,
        size_class=str(who.size_class),
        executions=status["executions"],
        workloads=status["workloads"],
        live=live,
        unit=period["unit"],
        epsilon_spent=round(period["spent"], 6),
        replace_one_epsilon=round(period["spent_replace_one"], 6),
        epsilon_budget=period["epsilon"],
        delta=period["delta"],
        bytes_out=sum(each["bytes"] for each in made),
        slots_made=len(made),
        slots_not_planned=left_out(planned),
        releases=_released(made, ledger),
        lost=lost([slot_name(each.key) for each in ledger.schedule.slots], releases, log),
        q_error=QErrors(**{name: gain[name] for name in QErrors.__slots__}),
        coverage=gain["coverage"],
        held_out=gain["held_out"],
        model_version=status["model_version"],
        fingerprint=fingerprint,
    )


def lost(slots: Sequence[str], releases: Sequence[Facts], log: str) -> tuple[str, ...]:
    """What of an organization's schedule was lost, each with why.

    Args:
        slots: that were planned.
        releases: what `fedperf release list` says.
        log: of the daemon, which alone says what left as noise alone.
    """
    states = {each["slot"]: each for each in releases}
    found = [f"{slot} (never made)" for slot in slots if slot not in states]
    found += [
        f"{slot} ({each['because'] or each['state']})"
        for slot, each in states.items()
        if each["state"] not in LEFT
    ]
    found += [
        f"{slot} (no receipt)"
        for slot, each in states.items()
        if each["state"] == "handed out" and each["kind"] in REPORTS
    ]
    empty = log.count(NOISE_ALONE)
    return (*found, f"{empty} left as noise alone") if empty else tuple(found)


def rounds_of(rows: Sequence[Facts]) -> tuple[RoundSummary, ...]:
    """The rounds that `fedperf-server rounds` lists."""
    names = RoundSummary.__slots__
    return tuple(RoundSummary(**{name: row[name] for name in names}) for row in rows)


def versions_of(rows: Sequence[Facts]) -> tuple[VersionSummary, ...]:
    """The versions that `fedperf-server models` lists."""
    names = VersionSummary.__slots__
    return tuple(VersionSummary(**{name: row[name] for name in names}) for row in rows)


def error_on_plans(checkpoint: Checkpoint, plans: Sequence[MeasuredPlan]) -> float:
    """Median q-error of a model on public plans: the coordinator's yardstick."""
    model = model_from_arrays(checkpoint.arrays)
    predicted = predict(model, [PlanGraph.of(each.plan, each.cluster) for each in plans])
    return median_q_error(np.exp(predicted), np.exp([each.log_seconds for each in plans]))


def _released(made: Sequence[Facts], ledger: PrivacyLedger) -> tuple[Released, ...]:
    start = ledger.schedule.timetable.period.start
    moments = [datetime.fromisoformat(each["charged_at"]) for each in made]
    return tuple(
        Released(
            kind=each["kind"],
            window=each["window"],
            seconds=round((moment - start).total_seconds(), 3),
            epsilon=round(ledger.spent(moment), 6),
            bytes_out=each["bytes"],
        )
        for each, moment in zip(made, moments, strict=True)
    )


def left_out(planned: PlannedSchedule) -> tuple[LeftOut, ...]:
    """What a schedule leaves out: every slot of a kind, or some of them."""
    there = {slot.key.kind for slot in planned.schedule.slots}
    return tuple(
        LeftOut(
            f"{'some' if each.what in there else 'every'} {each.what.name.lower()}", each.reason
        )
        for each in planned.not_planned
    )
