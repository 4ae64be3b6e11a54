"""The planned releases of a period, before and after it has begun.

Before an organization has joined, the default calendar replaces the coordinator's, and the output
names it. A mode is the one in force (`policy.effective_policy`). A withheld slot is never sent.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from fedperf_client.formatting.facts import Fact, named_facts, show_table, values_of
from fedperf_client.home.config import Home, write_private
from fedperf_client.release.decisions import Decision, Decisions, Outcome
from fedperf_client.release.policy import (
    PendingChange,
    Policy,
    ReleaseMode,
    effective_policy,
    load_policy,
    pending_changes,
)
from fedperf_client.release.schedule import KIND_NAMES, UnknownSlotError, parse_slot_name, slot_name
from fedperf_shared.releases.kinds import KINDS, kind_of
from fedperf_shared.releases.period import ReleaseCalendar, default_calendar
from fedperf_shared.releases.release import ReleaseKind, Schedule, Slot, SlotKey
from fedperf_shared.runtime.quantities import day, minute
from fedperf_shared.wire.codec import decode_schedule, encode_release, encode_schedule

if TYPE_CHECKING:
    from fedperf_client.release.accountant import PrivacyBudget
    from fedperf_client.release.ledger import PrivacyLedger
    from fedperf_client.release.preview import Preview
    from fedperf_client.release.schedule import PlannedSchedule

UNDECIDED = "undecided"  # decision of a slot that is sent only if it is approved
COLUMNS = ("slot", "kind", "mode", "decision", "opens_at", "send_at", "epsilon")
SPARE = ("kind", "mode")  # columns of the table of slots, and those that a narrow terminal omits


@dataclass(frozen=True, slots=True)
class PlannedSlots:
    """The slots of the current or the next period.

    `policy` has the modes in force; `changes` of it are not. `decisions` has the last one on each
    slot.
    """

    schedule: Schedule
    budget: "PrivacyBudget"
    policy: Policy
    changes: tuple[PendingChange, ...]
    charged: Collection[SlotKey]
    decisions: Mapping[SlotKey, Decision]

    @classmethod
    def load(cls, home: Home, ledger: "PrivacyLedger", policy: Policy) -> "PlannedSlots":
        """Load the slots of a period that has begun."""
        return cls(
            ledger.schedule,
            ledger.budget,
            effective_policy(home, policy),
            pending_changes(home, policy, ledger.schedule),
            {entry.key for entry in ledger.entries()},
            Decisions(ledger).latest(),
        )

    @classmethod
    def expect(cls, planned: "PlannedSchedule", policy: Policy) -> "PlannedSlots":
        """Return the slots of a period that has not begun, if the policy stays as it is."""
        return cls(planned.schedule, planned.budget, policy, (), (), {})

    @property
    def mode_changes(self) -> list[str]:
        """Changes of modes that are not in force, in words."""
        return [str(each) for each in self.changes if each.is_of_mode]

    def mode(self, slot: Slot) -> ReleaseMode:
        """Return the mode of the slot's kind."""
        return self.policy.mode(slot.key.kind)

    def send_at(self, slot: Slot) -> datetime | None:
        """Return when the release is sent, at least if it is approved; None if it never is."""
        decision = self.decisions.get(slot.key)
        is_withheld = decision is not None and decision.outcome is Outcome.WITHHELD
        is_never_sent = is_withheld or self.mode(slot) is ReleaseMode.NEVER
        return None if is_never_sent else self.schedule.replies_at(slot.key)

    def decision(self, slot: Slot) -> str:
        """Return the decision on the slot, `UNDECIDED`, `never`, or an empty text for `auto`."""
        decision = self.decisions.get(slot.key)
        if decision is not None:
            return str(decision.outcome)
        words = {ReleaseMode.ASK: UNDECIDED, ReleaseMode.NEVER: str(ReleaseMode.NEVER)}
        return words.get(self.mode(slot), "")

    def rows(self) -> list[list[Fact]]:
        """Return the facts of every slot."""
        from fedperf_client.release.accountant import epsilon, to_events

        costs: dict[object, float] = {}
        for slot in self.schedule.slots:
            if slot.parameters not in costs:
                costs[slot.parameters] = epsilon(to_events([slot]), self.budget.delta)
        return [
            named_facts(
                {
                    "slot": slot_name(slot.key),
                    "kind": kind_of(slot.parameters).name,
                    "mode": str(self.mode(slot)),
                    "decision": self.decision(slot) or None,
                    "window": slot.key.window,
                    "index": slot.key.index,
                    "opens_at": self.schedule.opens_at(slot.key),
                    "send_at": self.send_at(slot),
                    "extra": self.schedule.is_extra(slot.key),
                    "epsilon": costs[slot.parameters],
                    "noise": slot.parameters.noise_multiplier,
                    **asdict(slot.parameters),
                },
                columns=COLUMNS,
            )
            for slot in self.schedule.slots
        ]

    def notes(self) -> Iterator[str]:
        """Yield lines for people below the table."""
        if not self.schedule.slots:
            return
        yield "Epsilon is the privacy cost of one slot alone. The costs of all slots"
        yield (
            f"compose to at most {self.budget.epsilon:g} (less than their sum), at delta "
            f"{self.budget.delta:g}."
        )
        for kind in dict.fromkeys(kind_of(slot.parameters) for slot in self.schedule.slots):
            yield f"{kind.name}: {kind.contents}."
        first, ordinary = self.schedule.slots[0].key, len(self.schedule.calendar.report_slots)
        if first.kind is ReleaseKind.RESIDUAL_REPORT and first.index >= ordinary:
            yield (
                f"{slot_name(first)} is an extra first report after joining. The other slots "
                f"of a window have numbers from 0 to {ordinary - 1}."
            )
        extra = [slot_name(s.key) for s in self.schedule.slots if self.schedule.is_extra(s.key)]
        if extra:
            yield (
                f"{len(extra)} slots, such as {extra[0]}, are extra. They are used only when a "
                "drift regime begins."
            )
        if any(self.decision(slot) == UNDECIDED for slot in self.schedule.slots):
            yield (
                f"An {UNDECIDED} slot is not sent unless you approve it in time: "
                "fedperf release approve SLOT"
            )
        yield from (f"policy: {each}" for each in self.mode_changes)

    def select(self, what: str | None, *, at: datetime) -> tuple[SlotKey, ...]:
        """Return the slots to preview: the next of each kind, the next of one, or a named one.

        Raises:
            UnknownSlotError: `what` is neither a kind nor a slot that is still to come.
        """
        from fedperf_client.release.preview import next_slots

        schedule = self.schedule
        if what is None or what in KIND_NAMES:
            upcoming = next_slots(schedule, charged=self.charged, at=at)
            return tuple(key for key in upcoming if what is None or key.kind is KIND_NAMES[what])
        if what in {each.name for each in KINDS}:
            of_kind = tuple(s for s in schedule.slots if kind_of(s.parameters).name == what)
            return next_slots(Schedule(schedule.calendar, of_kind), charged=self.charged, at=at)
        _, key = parse_slot_name(what, [schedule.calendar.period])
        slot = schedule.slot(key)
        if slot is None:
            raise UnknownSlotError(what, reason="the schedule of the period does not have it")
        if kind_of(slot.parameters).is_removed:
            raise UnknownSlotError(what, reason="it trains by DP-SGD, so nothing is sent for it")
        if key in self.charged:
            raise UnknownSlotError(what, reason="it was released (see release show)")
        if not at < schedule.replies_at(key):
            end = minute(schedule.replies_at(key))
            raise UnknownSlotError(what, reason=f"its time ended on {end} without a release")
        return (key,)

    def reason_for_none(self, what: str | None = None) -> str:
        """Return why no slot of a kind, or of any kind, is to come."""
        from fedperf_client.release.schedule import plan_schedule

        end = day(self.schedule.calendar.period.end)
        if any(what in (None, *_kind_names(slot.key.kind)) for slot in self.schedule.slots):
            return f"its slots are released, over or extra; the period ends on {end}"
        planned = plan_schedule(self.policy, self.schedule.calendar)
        reasons = [
            each.reason for each in planned.not_planned if what in (None, *_kind_names(each.what))
        ]
        return (
            "; ".join(reasons) or f"the period that ends on {end} was planned with other settings"
        )


def _kind_names(slots: ReleaseKind) -> list[str]:
    """Return all names of the kinds of releases in such slots."""
    kinds = [each.name for each in KINDS if each.parameters.slot_kind is slots]
    return [*kinds, *(name for name, kind in KIND_NAMES.items() if kind is slots)]


def preview_facts(preview: "Preview", planned: PlannedSlots) -> list[Fact]:
    """Return the facts of a preview."""
    from fedperf_client.release.history import summarize_payload

    sample = summarize_payload(encode_release(preview.sample))
    return named_facts(
        {
            "slot": slot_name(preview.slot.key),
            "kind": kind_of(preview.slot.parameters).name,
            "contents": kind_of(preview.slot.parameters).contents,
            "mode": str(planned.mode(preview.slot)),
            "mode_changes": planned.mode_changes,
            "opens_at": planned.schedule.opens_at(preview.slot.key),
            "send_at": planned.send_at(preview.slot),
            "schema": list(preview.schema),
            "bytes": preview.payload_bytes,
            "noise_stddev": preview.slot.parameters.noise_multiplier,
            **asdict(preview.slot.parameters),
            "unit": "workload",
            "epsilon": preview.epsilon,
            "epsilon_replace_one": preview.replace_one_epsilon,
            "epsilon_added": preview.spent_after - preview.spent,
            "remaining_before": planned.budget.epsilon - preview.spent,
            "remaining_after": planned.budget.epsilon - preview.spent_after,
            "sample_of": "synthetic jobs (not your data)",
            **{f"sample_{name}": sample[name] for name in _SAMPLE_FACTS},
        }
    )


_SAMPLE_FACTS = ("values", "smallest", "largest", "root_mean_square", "first_values")


@dataclass(frozen=True, slots=True)
class ExpectedCalendar:
    """The calendar of the current or the next period, or the default one without either."""

    release_calendar: ReleaseCalendar
    is_default: bool

    @property
    def origin(self) -> str:
        """The name of the calendar in a sentence."""
        if self.is_default:
            return "the default calendar from today on; a coordinator may have another one"
        return "the coordinator's calendar"


def expected_calendar(home: Home, *, at: datetime) -> ExpectedCalendar:
    """Return the calendar that was stored when joining, or the default one from today on.

    Raises:
        InvalidInputError: the stored calendar is damaged.
    """
    if home.calendar.exists():
        release_calendar = decode_schedule(home.calendar.read_bytes()).calendar
        if at < release_calendar.period.end:
            return ExpectedCalendar(release_calendar, is_default=False)
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return ExpectedCalendar(default_calendar(today), is_default=True)


def public_calendar(home: Home, *, at: datetime) -> ExpectedCalendar:
    """Fetch the coordinator's calendar. Before joining, return the expected one with a note.

    Raises:
        ConfigurationError: a part of the membership is missing.
        FedperfError: the coordinator does not respond.
    """
    from fedperf_client.node.enrollment import Membership, is_member, load_or_create_key
    from fedperf_client.node.exchange import ExchangeClient

    if not is_member(home.identity):
        note_of_expected(home, at=at)
        return expected_calendar(home, at=at)
    membership = Membership.load(home.identity)
    with ExchangeClient(membership, load_or_create_key(home.identity)) as exchange:
        return ExpectedCalendar(exchange.calendar(), is_default=False)


def store_calendar(home: Home, calendar: ExpectedCalendar) -> None:
    """Store the calendar for commands that do not contact the coordinator."""
    write_private(home.calendar, encode_schedule(Schedule(calendar.release_calendar, ())))


def expected_schedule(home: Home, *, at: datetime) -> tuple[Policy, "PlannedSchedule"]:
    """Return the policy, and its schedule if the period began now."""
    from fedperf_client.release.schedule import plan_schedule

    policy = load_policy(home.policy)
    return policy, plan_schedule(policy, expected_calendar(home, at=at).release_calendar, at=at)


def note_of_expected(home: Home, *, at: datetime) -> None:
    """Print a note that no period has begun, and by which calendar it is planned."""
    origin = expected_calendar(home, at=at).origin
    print(f"note: no period has begun; planned by {origin}", file=sys.stderr)


def forecast_values(
    policy: Policy, calendar: ExpectedCalendar, *, at: datetime
) -> dict[str, object]:
    """Return the forecast of a policy, and that of each alternative, for JSON."""
    current, *changes = map(values_of, _forecast_rows(policy, calendar, at=at))
    del current["change"]
    origin = "default" if calendar.is_default else "coordinator"
    return {"calendar": origin, **current, "changes": changes}


def print_forecast(policy: Policy, calendar: ExpectedCalendar, *, at: datetime) -> None:
    """Print the date of the first release and a table of alternatives."""
    from fedperf_client.release.schedule import forecast, plan_schedule

    current = forecast(policy, calendar.release_calendar, at=at)
    if current.first_leaves_at is None or current.first_opens_at is None:
        planned = plan_schedule(policy, calendar.release_calendar, at=at)
        reasons = "; ".join(each.reason for each in planned.not_planned)
        typer.echo(f"No release is planned: {reasons}")
    else:
        typer.echo(
            f"First release: {day(current.first_leaves_at)}. It covers runs stored before "
            f"{minute(current.first_opens_at)}, and requires a running daemon (fedperf daemon)."
        )
    typer.echo(f"No period has begun. Planned by {calendar.origin}. Alternatives:")
    show_table(_forecast_rows(policy, calendar, at=at), json=False)
    typer.echo(
        "Expected error: the factor by which the model's correction, learned from the reports of "
        "all participants, is typically off (1 is exact, 2.72 without any report). It compares "
        "policies. Your own runs improve your own predictions further. Epsilon is the privacy "
        "budget of all releases of a period."
    )


def _forecast_rows(policy: Policy, calendar: ExpectedCalendar, *, at: datetime) -> list[list[Fact]]:
    """Return the facts of the policy as it is, and with each change."""
    from fedperf_client.release.schedule import forecast, forecast_alternatives

    dates = calendar.release_calendar
    forecasts = {"none": forecast(policy, dates, at=at)}
    forecasts |= forecast_alternatives(policy, dates, at=at)
    return [
        [
            Fact("change", change, "change"),
            Fact("first_release", first, "first release", "never" if first is None else day(first)),
            Fact("counts_until", each.first_opens_at),
            Fact("reports", each.reports, "reports"),
            Fact("updates", each.updates, "updates"),
            Fact("expected_error", error, "expected error", f"{error:.2f}"),
        ]
        for change, each in forecasts.items()
        for first, error in [(each.first_leaves_at, each.expected_error)]
    ]
