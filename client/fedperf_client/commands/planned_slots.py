"""Rows and facts of planned slots, for `fedperf release`: what may leave, when, what decides it.

A mode is the one in force (`effective_policy`). A slot that stays here has no time to leave.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fedperf_client.release.decisions import Decision, Decisions, Outcome
from fedperf_client.release.effective_policy import PendingChange, effective_policy, pending_changes
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_client.release.schedule import KIND_NAMES, UnknownSlotError, parse_slot_name, slot_name
from fedperf_shared.releases.kinds import KINDS, kind_of
from fedperf_shared.releases.release import ReleaseKind, Schedule, Slot, SlotKey
from fedperf_shared.runtime.timestamps import day, minute

if TYPE_CHECKING:
    from fedperf_client.home.config import Home
    from fedperf_client.release.accountant import PrivacyBudget
    from fedperf_client.release.ledger import PrivacyLedger
    from fedperf_client.release.preview import Preview
    from fedperf_client.release.schedule import PlannedSchedule

UNDECIDED = "undecided"
"""Of a slot that leaves only if it is approved."""

NARROW = ("slot", "kind", "mode", "decision", "opens_at", "send_at", "epsilon")
SPARE = ("kind", "mode")
"""What a narrow terminal does without: a slot's name and what was decided tell the most of it."""


@dataclass(frozen=True, slots=True)
class PlannedSlots:
    """The slots of a period that is on or comes next, with what decides about them.

    Attributes:
        schedule: all slots.
        budget: of the period.
        in_force: the policy with the modes in force.
        changes: what the policy says otherwise, and from when it counts.
        charged: slots that were charged.
        decisions: the last decision on each slot that has one.
    """

    schedule: Schedule
    budget: "PrivacyBudget"
    in_force: Policy
    changes: tuple[PendingChange, ...]
    charged: Collection[SlotKey]
    decisions: Mapping[SlotKey, Decision]

    @classmethod
    def of_period(cls, home: "Home", ledger: "PrivacyLedger", policy: Policy) -> "PlannedSlots":
        """Those of a period that has begun."""
        return cls(
            ledger.schedule,
            ledger.budget,
            effective_policy(home, policy),
            pending_changes(home, policy, ledger.schedule),
            {entry.key for entry in ledger.entries()},
            Decisions(ledger).latest(),
        )

    @classmethod
    def expected(cls, planned: "PlannedSchedule", policy: Policy) -> "PlannedSlots":
        """Those of a period that has not begun, which will read the policy as it is then."""
        return cls(planned.schedule, planned.budget, policy, (), (), {})

    @property
    def mode_changes(self) -> list[str]:
        """Changes of modes, in words."""
        return [str(each) for each in self.changes if each.is_of_mode]

    def mode(self, slot: Slot) -> ReleaseMode:
        """Whether the slot's kind leaves."""
        return self.in_force.mode(slot.key.kind)

    def leaves_at(self, slot: Slot) -> datetime | None:
        """When its release leaves, or would once it is approved; None where it stays here."""
        decision = self.decisions.get(slot.key)
        is_withheld = decision is not None and decision.outcome is Outcome.WITHHELD
        stays = is_withheld or self.mode(slot) is ReleaseMode.NEVER
        return None if stays else self.schedule.replies_at(slot.key)

    def decision(self, slot: Slot) -> str:
        """What decides about it in a word: a decision, that one is missing, or a mode `never`."""
        decision = self.decisions.get(slot.key)
        if decision is not None:
            return str(decision.outcome)
        words = {ReleaseMode.ASK: UNDECIDED, ReleaseMode.NEVER: str(ReleaseMode.NEVER)}
        return words.get(self.mode(slot), "")

    def rows(self) -> list[dict[str, object]]:
        """A row for each slot, for programs."""
        from fedperf_client.release.accountant import epsilon, events_of

        costs: dict[object, float] = {}
        for slot in self.schedule.slots:
            if slot.parameters not in costs:
                costs[slot.parameters] = epsilon(events_of([slot]), self.budget.delta)
        return [
            {
                "slot": slot_name(slot.key),
                "kind": kind_of(slot.parameters).name,
                "mode": str(self.mode(slot)),
                "window": slot.key.window,
                "index": slot.key.index,
                "opens_at": self.schedule.opens_at(slot.key).isoformat(),
                "send_at": None if (at := self.leaves_at(slot)) is None else at.isoformat(),
                "extra": self.schedule.is_extra(slot.key),
                "decision": self.decision(slot) or None,
                "epsilon": costs[slot.parameters],
                "noise": slot.parameters.noise_multiplier,
                **asdict(slot.parameters),
            }
            for slot in self.schedule.slots
        ]

    def notes(self) -> Iterator[str]:
        """Lines for people below the table."""
        if not self.schedule.slots:
            return
        yield (
            f"epsilon: of each slot alone; together at most {self.budget.epsilon:g} at delta "
            f"{self.budget.delta:g}. Times are in UTC"
        )
        first, ordinary = self.schedule.slots[0].key, len(self.schedule.calendar.report_slots)
        if first.kind is ReleaseKind.RESIDUAL_REPORT and first.index >= ordinary:
            yield (
                f"{slot_name(first)} is slot {first.index} of window {first.window}, a day for the "
                f"first report of whoever has just joined; slots below {ordinary} are those that "
                "every window has"
            )
        extra = [slot_name(s.key) for s in self.schedule.slots if self.schedule.is_extra(s.key)]
        if extra:
            yield (
                f"{len(extra)} of them, such as {extra[0]}, are extra: used only where an epoch "
                "begins"
            )
        if any(self.decision(slot) == UNDECIDED for slot in self.schedule.slots):
            yield f"{UNDECIDED}: stays here unless approved before: fedperf release approve SLOT"
        yield from (f"policy: {each}" for each in self.mode_changes)

    def wanted(self, what: str | None, *, at: datetime) -> tuple[SlotKey, ...]:
        """The slots to preview: the next of each kind, of one, or the one of that name.

        Raises:
            UnknownSlotError: no kind and no slot that is still to come is called so.
        """
        from fedperf_client.release.preview import next_slots

        schedule = self.schedule
        if what is None or what in KIND_NAMES:
            upcoming = next_slots(schedule, charged=self.charged, at=at)
            return tuple(key for key in upcoming if what is None or key.kind is KIND_NAMES[what])
        if what in _KINDS:
            of_kind = tuple(s for s in schedule.slots if kind_of(s.parameters).name == what)
            return next_slots(Schedule(schedule.calendar, of_kind), charged=self.charged, at=at)
        _, key = parse_slot_name(what, [schedule.calendar.period])
        slot = schedule.slot(key)
        if slot is None:
            raise UnknownSlotError(what, reason="the schedule of the period does not have it")
        if kind_of(slot.parameters).is_removed:
            raise UnknownSlotError(what, reason="it trains by DP-SGD, so nothing leaves for it")
        if key in self.charged:
            raise UnknownSlotError(what, reason="it was made already (see release show)")
        if not at < schedule.replies_at(key):
            passed = minute(schedule.replies_at(key))
            raise UnknownSlotError(what, reason=f"its time passed at {passed}, nothing was made")
        return (key,)

    def why_nothing(self, what: str | None = None) -> str:
        """Why no slot of `what`, a kind, is to come."""
        from fedperf_client.release.schedule import plan_schedule

        end = day(self.schedule.calendar.period.end)
        if any(what in (None, *_kinds_of(slot.key.kind)) for slot in self.schedule.slots):
            return f"its slots are made, over or extra; the period ends on {end}"
        planned = plan_schedule(self.in_force, self.schedule.calendar)
        reasons = [
            each.reason for each in planned.not_planned if what in (None, *_kinds_of(each.what))
        ]
        return "; ".join(reasons) or f"the period that ends on {end} was planned otherwise"


def preview_facts(shown: "Preview", planned: PlannedSlots) -> dict[str, object]:
    """A preview for programs."""
    from fedperf_client.release.history import summarize_payload
    from fedperf_shared.wire.codec import encode_release

    sample = summarize_payload(encode_release(shown.sample))
    leaves_at = planned.leaves_at(shown.slot)
    return {
        "slot": slot_name(shown.slot.key),
        "kind": kind_of(shown.slot.parameters).name,
        "mode": str(planned.mode(shown.slot)),
        "mode_changes": planned.mode_changes,
        "opens_at": shown.opens_at.isoformat(),
        "send_at": None if leaves_at is None else leaves_at.isoformat(),
        "schema": list(shown.schema),
        "bytes": shown.payload_bytes,
        "noise_stddev": shown.noise_stddev,
        **asdict(shown.slot.parameters),
        "unit": "workload",
        "epsilon": shown.epsilon,
        "epsilon_replace_one": shown.replace_one_epsilon,
        "epsilon_added": shown.marginal_epsilon,
        "remaining_before": shown.budget_epsilon - shown.spent,
        "remaining_after": shown.budget_epsilon - shown.spent_after,
        "sample_of": "invented jobs, nobody's history",
        **{f"sample_{name}": sample[name] for name in _SAMPLE_FACTS},
    }


_SAMPLE_FACTS = ("values", "smallest", "largest", "root_mean_square", "first_values")
_KINDS = {each.name for each in KINDS}


def _kinds_of(slots: ReleaseKind) -> list[str]:
    """What people may call the kinds that fill such slots."""
    fill = [each.name for each in KINDS if each.parameters.slot_kind is slots]
    return [*fill, *(name for name, kind in KIND_NAMES.items() if kind is slots)]
