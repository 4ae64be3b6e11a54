"""Runs a campaign: asks the sampler what comes next, runs what is not settled, writes it down.

What was finished in earlier runs is walked through again without running it, in the order
in which it happened, so the sampler chooses as it would have without the interruption.

A configuration that failed for good (all attempts of one of its trials) is not tried
again; what was left of it is skipped. A budget that is spent ends the run; with a larger
one the campaign goes on from there.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from fedperf_client.profiling.campaign.definition import Campaign
from fedperf_client.profiling.campaign.order import Sampler
from fedperf_client.profiling.campaign.record.history import TrialHistory
from fedperf_client.profiling.campaign.record.journal import (
    Journal,
    JournalTrial,
    Machine,
    TrialKey,
)
from fedperf_client.profiling.campaign.record.noise import Host, HostReading, noise_of
from fedperf_client.profiling.campaign.record.outcome import TrialOutcome, TrialStatus
from fedperf_client.profiling.campaign.trials.trial_runner import (
    Limits,
    TrialRunner,
    TrialStoppedError,
)


@dataclass(frozen=True, slots=True)
class CampaignSurroundings:
    """What a campaign needs from outside.

    Attributes:
        trials: runs them.
        host: watches the machine meanwhile.
        machine: which one it is.
        boot: differs after every start of the machine.
        clock: gives moments with time zone.
        new_token: gives a random mark for the processes of a trial.
        stop: once set, the campaign ends; the trial in flight has no outcome.
        on_trial: called with every trial that has ended, and whether that settles what it
            measures, so that it will not be tried again.
    """

    trials: TrialRunner
    host: Host
    machine: Machine
    boot: str
    clock: Callable[[], datetime]
    new_token: Callable[[], str]
    stop: threading.Event
    on_trial: Callable[[JournalTrial, bool], None]


@dataclass(frozen=True, slots=True)
class CampaignEnd:
    """Why a run of a campaign ended.

    Attributes:
        reason: for people.
        interrupted: whether somebody stopped it, so that something is left to do.
        rows: configurations that the sampler named, in the order of their first turn.
        is_spent: whether a budget ended it, so that something is left for a larger one.
    """

    reason: str
    interrupted: bool
    rows: tuple[int, ...]
    is_spent: bool = False


class _SpentError(Exception):
    """A budget is spent."""


def run_campaign(
    campaign: Campaign, journal: Journal, sampler: Sampler, surroundings: CampaignSurroundings
) -> CampaignEnd:
    """Run what is left of the campaign; every outcome is in the journal when it returns."""
    session = journal.begin_session(
        surroundings.machine, boot=surroundings.boot, at=surroundings.clock()
    )
    history = TrialHistory(journal.trials(), retries=campaign.settings.run.retries)
    return _Run(campaign, journal, history, surroundings, session).to_the_end(sampler)


class _Run:
    def __init__(
        self,
        campaign: Campaign,
        journal: Journal,
        history: TrialHistory,
        surroundings: CampaignSurroundings,
        session: int,
    ) -> None:
        self._campaign = campaign
        self._settings = campaign.settings.run
        self._journal = journal
        self._history = history
        self._around = surroundings
        self._session = session
        self._limits = Limits(self._settings.timeout_seconds, self._settings.memory_bytes)

    def to_the_end(self, sampler: Sampler) -> CampaignEnd:
        """One turn after the other until the sampler, a budget or somebody says stop."""
        measured: dict[int, float] = {}
        unavailable: frozenset[int] = frozenset()
        turns: Counter[int] = Counter()
        reason, interrupted, is_spent = "", False, False
        try:
            while (row := sampler.next(measured, unavailable)) is not None:
                self._require_going_on()  # also where no trial is left to run in this turn
                turns[row] += 1
                if not self._turn(row, turns[row] - 1):
                    unavailable |= {row}
                    measured.pop(row, None)
                elif (seconds := self._median(row)) is not None:
                    measured[row] = seconds
            reason = sampler.reason
        except _SpentError as spent:
            reason, is_spent = str(spent), True
        except TrialStoppedError:
            reason, interrupted = "it was stopped", True
        return CampaignEnd(reason, interrupted, tuple(turns), is_spent)

    def _turn(self, row: int, repetition: int) -> bool:
        """Settle one repetition of a configuration; whether none of it failed for good."""
        for key in self._keys(row, repetition):
            while not self._history.is_settled(key):
                self._run_one(key)
            if self._history.has_failed(key):
                return False
        return True

    def _keys(self, row: int, repetition: int) -> Iterator[TrialKey]:
        """Targets in random order; before the first repetition their warm-ups."""
        targets = self._campaign.targets
        order = np.random.default_rng([self._settings.seed, 13, row, repetition])
        for place in order.permutation(len(targets)):
            if repetition == 0:
                for number in range(-self._settings.warmup, 0):
                    yield TrialKey(row, targets[place], number)
            yield TrialKey(row, targets[place], repetition)

    def _run_one(self, key: TrialKey) -> None:
        self._require_budget()
        self._require_going_on()
        around = self._around
        trial = self._begun(key)
        around.host.begin()
        outcome = around.trials.run(
            self._campaign.components_of(key.component),
            self._campaign.grid.configurations[key.configuration],
            limits=self._limits,
            token=trial.token,
        )
        outcome = self._judged(key, outcome, around.host.end())
        trial = replace(trial, ended=around.clock(), outcome=outcome)
        self._journal.end(trial.number, outcome, at=trial.ended or trial.started)
        self._history.add(trial)
        around.on_trial(trial, self._history.is_settled(key))
        around.stop.wait(self._settings.cooldown_seconds)

    def _begun(self, key: TrialKey) -> JournalTrial:
        trial = JournalTrial(
            number=0,
            session=self._session,
            key=key,
            attempt=self._history.attempts(key),
            is_warmup=key.is_warmup,
            is_cold=self._history.is_cold(key, self._around.boot),
            token=self._around.new_token(),
            started=self._around.clock(),
            boot=self._around.boot,
            ended=None,
            outcome=None,
        )
        number = self._journal.begin(
            key,
            session=trial.session,
            attempt=trial.attempt,
            is_cold=trial.is_cold,
            token=trial.token,
            at=trial.started,
        )
        return replace(trial, number=number)

    def _judged(self, key: TrialKey, outcome: TrialOutcome, reading: HostReading) -> TrialOutcome:
        """The outcome with what the machine did meanwhile, flagged where that was too much."""
        outcome = replace(
            outcome,
            foreign_cores=reading.foreign_cores,
            stolen_cores=reading.stolen_cores,
            load_before=reading.load_before,
            load_after=reading.load_after,
        )
        if outcome.status is not TrialStatus.OK:
            return outcome
        if key.is_warmup:
            return replace(outcome, status=TrialStatus.WARMUP)
        repeats = self._history.repeats(
            key.configuration, key.component, self._settings.repetitions
        )
        others = [
            each.outcome.wall_seconds
            for each in repeats
            if each.outcome and each.outcome.wall_seconds and each.key != key
        ]
        noise = noise_of(reading, outcome.wall_seconds or 0.0, others)
        return replace(outcome, status=TrialStatus.NOISY, reason=noise) if noise else outcome

    def _median(self, row: int) -> float | None:
        return self._history.median_seconds(row, self._campaign.targets, self._settings.repetitions)

    def _require_going_on(self) -> None:
        if self._around.stop.is_set():
            raise TrialStoppedError("it was stopped")

    def _require_budget(self) -> None:
        trials, seconds = self._settings.max_trials, self._settings.max_wall_seconds
        if trials is not None and self._history.spent_trials >= trials:
            raise _SpentError(f"the budget of {trials} trials is spent")
        if seconds is not None and self._history.spent_seconds >= seconds:
            raise _SpentError(f"the budget of {seconds:g} seconds is spent")
