"""The summary of a campaign: per configuration, per trial, and in total.

An unknown number is None. A trial that never ran is skipped, with the reason, and is no failure:
a constraint ruled it out, a budget ended, or an earlier trial of its configuration failed for
good.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedperf_campaigns.campaign.definition import Campaign, Strategy
from fedperf_campaigns.campaign.grid import Value
from fedperf_campaigns.campaign.journal import (
    JournalTrial,
    Session,
    TrialHistory,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_client.formatting.facts import Fact, values_of

# Stands for an outcome that was lost in flight, of which nothing is known.
_LOST = TrialOutcome(TrialStatus.FAILED)


@dataclass(frozen=True, slots=True)
class CampaignEnd:
    """Why a run of a campaign ended."""

    reason: str  # for people
    interrupted: bool  # whether a user stopped it, so that something is left to do
    rows: tuple[int, ...]  # configurations that the sampler named, in the order of their first turn
    is_spent: bool = False  # whether a budget ended it, so that something is left for a larger one


@dataclass(frozen=True, slots=True)
class SkippedTrial:
    """A trial that never ran."""

    key: TrialKey
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigurationRepeats:
    """One component, or the whole, in one configuration."""

    configuration: int  # its number
    component: str  # its name, or `WHOLE`
    seconds: tuple[float, ...]  # wall seconds of the repetitions that count

    @property
    def median_seconds(self) -> float | None:
        """Return the median of `seconds`; None where nothing was measured."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def noise(self) -> float | None:
        """Return mean distance from the median as a share of it; None below two repeats."""
        if len(self.seconds) < 2:  # noqa: PLR2004 (one repeat has no noise)
            return None
        middle = statistics.median(self.seconds)
        return statistics.fmean(abs(each - middle) for each in self.seconds) / middle


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of a campaign for its reports."""

    campaign: Campaign  # that ran
    stopped: CampaignEnd  # why its last run ended
    sessions: tuple[Session, ...]  # its runs
    trials: tuple[JournalTrial, ...]  # that were started, in that order
    repeats: tuple[ConfigurationRepeats, ...]  # what counts, by configuration and component
    skipped: tuple[SkippedTrial, ...]  # what never ran
    spent_trials: int  # trials with an outcome
    spent_seconds: float  # their time, starting and ending included

    @property
    def statuses(self) -> dict[str, int]:
        """Return trials by status; every status has an entry."""
        counts = Counter(each.status for each in self.trials)
        counts[TrialStatus.SKIPPED] = len(self.skipped) + self.ruled_out_trials
        return {status.value: counts[status] for status in TrialStatus}

    @property
    def ruled_out_trials(self) -> int:
        """Return trials that the constraints leave out."""
        run = self.campaign.settings.run
        return self.campaign.grid.ruled_out * run.repetitions * len(self.campaign.targets)

    @property
    def failed(self) -> tuple[JournalTrial, ...]:
        """Return failed trials, also those whose retry succeeded."""
        return tuple(each for each in self.trials if each.is_failure)

    @property
    def measured(self) -> int:
        """Configurations of which anything was measured."""
        return len({each.configuration for each in self.repeats if each.seconds})

    @property
    def flagged(self) -> tuple[JournalTrial, ...]:
        """Return trials that failed or were disturbed."""
        return tuple(
            each for each in self.trials if each.is_failure or each.status is TrialStatus.NOISY
        )

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is left to do: neither a user nor a budget stopped it."""
        return not (self.stopped.interrupted or self.stopped.is_spent)

    def values(self, configuration: int) -> Mapping[str, Value]:
        """Return the values of a configuration, by column."""
        return self.campaign.grid.configurations[configuration]


def summarize(
    campaign: Campaign,
    trials: Sequence[JournalTrial],
    sessions: Sequence[Session],
    stopped: CampaignEnd,
) -> Summary:
    """Return the summary of all trials and sessions of a campaign."""
    history = TrialHistory(trials, retries=campaign.settings.run.retries)
    repetitions = campaign.settings.run.repetitions
    rows = sorted(stopped.rows)
    if campaign.settings.sampling.strategy is Strategy.FULL:
        rows = list(range(len(campaign.grid.configurations)))
    repeats, skipped = [], []
    for row in rows:
        for target in campaign.targets:
            timed = history.repeats(row, target, repetitions)
            seconds = tuple(each.wall_seconds or 0.0 for each in timed)
            repeats.append(ConfigurationRepeats(row, target, seconds))
        skipped += _skipped(campaign, history, row, stopped)
    return Summary(
        campaign=campaign,
        stopped=stopped,
        sessions=tuple(sessions),
        trials=tuple(trials),
        repeats=tuple(repeats),
        skipped=tuple(skipped),
        spent_trials=history.spent_trials,
        spent_seconds=history.spent_seconds,
    )


def as_json(summary: Summary) -> dict[str, Any]:
    """Return the contents of summary.json."""
    run, grid = summary.campaign.settings.run, summary.campaign.grid
    noises = [each.noise for each in summary.repeats if each.noise is not None]
    return {
        "name": summary.campaign.name,
        "campaign": summary.campaign.campaign_id,
        "complete": summary.is_complete,
        "stopped": summary.stopped.reason,
        "strategy": summary.campaign.settings.sampling.strategy.value,
        "status": summary.statuses,
        "configurations": {
            "allowed": len(grid.configurations),
            "ruled_out": grid.ruled_out,
            "measured": summary.measured,
        },
        "budget": {
            "trials": summary.spent_trials,
            "max_trials": run.max_trials,
            "wall_seconds": summary.spent_seconds,
            "max_wall_seconds": run.max_wall_seconds,
        },
        "repeat_noise": {
            "median": statistics.median(noises) if noises else None,
            "largest": max(noises, default=None),
        },
        "rows": [values_of(repeats_facts(summary, each)) for each in summary.repeats],
        "flagged": [
            {"configuration": each.key.configuration} | values_of(flag_facts(summary, each))
            for each in summary.flagged
        ],
        "machines": [values_of(machine_facts(each)) for each in summary.sessions],
    }


def trial_rows(summary: Summary) -> list[dict[str, object]]:
    """Return the rows of trials.csv: every trial that ran, then those that were skipped."""
    rows = [
        {"configuration": each.key.configuration} | values_of(trial_facts(summary, each))
        for each in summary.trials
    ]
    return rows + [
        {
            "configuration": each.key.configuration,
            **summary.values(each.key.configuration),
            "component": each.key.component,
            "repetition": each.key.repetition,
            "status": TrialStatus.SKIPPED.value,
            "reason": each.reason,
        }
        for each in summary.skipped
    ]


def repeats_facts(summary: Summary, repeats: ConfigurationRepeats) -> list[Fact]:
    """Return the facts of a component's repeats in one configuration, in seconds and shares."""
    seconds, noise = repeats.seconds, repeats.noise
    return [
        *_place(summary, repeats.configuration, repeats.component),
        Fact("repeats", len(seconds), "repeats"),
        Fact("median_seconds", repeats.median_seconds, "median"),
        Fact("fastest_seconds", min(seconds, default=None), "fastest"),
        Fact("slowest_seconds", max(seconds, default=None), "slowest"),
        Fact("noise", noise, "noise", None if noise is None else f"{noise:.1%}"),
    ]


def flag_facts(summary: Summary, trial: JournalTrial) -> list[Fact]:
    """Return the facts of a trial that failed or was disturbed, and why."""
    return [
        *_place(summary, trial.key.configuration, trial.key.component),
        Fact("repetition", trial.key.repetition, "repetition"),
        Fact("attempt", trial.attempt, "attempt"),
        Fact("status", trial.status, "status"),
        Fact("reason", trial.outcome and trial.outcome.reason, "reason"),
    ]


def trial_facts(summary: Summary, trial: JournalTrial) -> list[Fact]:
    """Return the facts of a trial that was started, and the resources it used."""
    outcome = trial.outcome or _LOST
    used, foreign = outcome.resources, outcome.foreign_cores
    return [
        *_place(summary, trial.key.configuration, trial.key.component),
        Fact("repetition", trial.key.repetition),
        Fact("attempt", trial.attempt),
        Fact("session", trial.session),
        Fact("position", trial.number),
        Fact("is_warmup", trial.key.is_warmup),
        Fact("is_cold", trial.is_cold),
        Fact("started", trial.started.isoformat()),
        Fact("ended", trial.ended and trial.ended.isoformat()),
        Fact("status", trial.status or "lost"),
        Fact("reason", outcome.reason),
        Fact("wall_seconds", outcome.wall_seconds, "wall"),
        Fact("startup_seconds", outcome.startup_seconds),
        Fact("cpu_seconds", used.cpu_seconds, "CPU"),
        Fact("peak_bytes", used.peak_bytes, "peak memory"),
        Fact("read_bytes", used.read_bytes, "read"),
        Fact("written_bytes", used.written_bytes, "written"),
        Fact("context_switches", used.context_switches),
        Fact("queue_seconds", _sum([each.queue_seconds for each in outcome.spans])),
        Fact("compute_seconds", _sum([each.compute_seconds for each in outcome.spans])),
        Fact("foreign_cores", foreign, "others", None if foreign is None else f"{foreign:.2f}"),
        Fact("stolen_cores", outcome.stolen_cores),
        Fact("load_before", outcome.load_before),
        Fact("load_after", outcome.load_after),
    ]


def machine_facts(session: Session) -> list[Fact]:
    """Return the facts of a run of the campaign, and of its machine."""
    machine, began = session.machine, session.began
    return [
        Fact("session", session.session, "run"),
        Fact("began", began.isoformat(), "began", f"{began:%Y-%m-%d %H:%M} UTC"),
        Fact("node_type", machine.node_type, "node type"),
        Fact("architecture", machine.architecture, "architecture"),
        Fact("processor", machine.processor, "processor"),
        Fact("cores", machine.cores, "cores"),
        Fact("memory_bytes", machine.memory_bytes, "memory"),
        Fact("machine_speed", machine.machine_speed, "speed", f"{machine.machine_speed:.2f}"),
    ]


def _place(summary: Summary, configuration: int, component: str) -> list[Fact]:
    values = summary.values(configuration)
    columns = [Fact(name, value, name, str(value)) for name, value in values.items()]
    return [*columns, Fact("component", component, "component")]


def _skipped(
    campaign: Campaign, history: TrialHistory, row: int, stopped: CampaignEnd
) -> list[SkippedTrial]:
    run = campaign.settings.run
    keys = [
        TrialKey(row, target, repetition)
        for repetition in range(-run.warmup, run.repetitions)
        for target in campaign.targets
    ]
    failed = any(history.has_failed(key) for key in keys)
    if not failed and stopped.interrupted:
        return []
    reason = "an earlier trial of this configuration failed for good" if failed else stopped.reason
    return [
        SkippedTrial(key, reason)
        for key in keys
        if not key.is_warmup and not history.is_settled(key)
    ]


def _sum(seconds: Sequence[float | None]) -> float | None:
    numbers = [each for each in seconds if each is not None]
    return sum(numbers) if numbers else None
