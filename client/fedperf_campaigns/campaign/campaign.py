"""Runs a campaign: asks the sampler what comes next, runs what is not settled, writes it down.

What was finished in earlier runs is walked through again without running it, in the order
in which it happened, so the sampler chooses as it would have without the interruption.

A configuration that failed for good (all attempts of one of its trials) is not tried
again; what was left of it is skipped. A budget that is spent ends the run; with a larger
one the campaign goes on from there.

`profile_campaign` puts the parts together. The journal lies in the home, so the same file goes on
where it was whatever happened, and a file with another meaning begins anew.
"""

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

from fedperf_campaigns.campaign.definition import Campaign, journal_path
from fedperf_campaigns.campaign.executions import execution_of, is_execution
from fedperf_campaigns.campaign.history import TrialHistory
from fedperf_campaigns.campaign.interference import Host, InterferenceSample, noise_of
from fedperf_campaigns.campaign.journal import (
    Journal,
    JournalTrial,
    Machine,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_campaigns.campaign.order import Sampler, sampler_of
from fedperf_campaigns.campaign.summary import CampaignEnd, Summary, summarize
from fedperf_campaigns.campaign.trial_runner import (
    Limits,
    TrialRunner,
    TrialStoppedError,
    kill_leftovers,
)
from fedperf_campaigns.sampling import Strategy
from fedperf_client.home.store import ExecutionStore
from fedperf_client.workers import machine
from fedperf_shared.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class CampaignDependencies:
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


class _SpentError(Exception):
    """A budget is spent."""


def run_campaign(
    campaign: Campaign, journal: Journal, sampler: Sampler, surroundings: CampaignDependencies
) -> CampaignEnd:
    """Run what is left of the campaign; every outcome is in the journal when it returns."""
    return _Run(campaign, journal, surroundings).to_the_end(sampler)


class _Run:
    def __init__(
        self, campaign: Campaign, journal: Journal, surroundings: CampaignDependencies
    ) -> None:
        self._campaign = campaign
        self._settings = campaign.settings.run
        self._journal = journal
        self._around = surroundings
        self._session = journal.begin_session(
            surroundings.machine, boot=surroundings.boot, at=surroundings.clock()
        )
        self._history = TrialHistory(journal.trials(), retries=self._settings.retries)
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
        token = around.new_token()
        number = self._journal.begin(
            key,
            session=self._session,
            attempt=self._history.attempts(key),
            is_cold=self._history.is_cold(key, around.boot),
            token=token,
            at=around.clock(),
        )
        around.host.begin()
        outcome = around.trials.run(
            self._campaign.components_of(key.component),
            self._campaign.grid.configurations[key.configuration],
            limits=self._limits,
            token=token,
        )
        outcome = self._judged(key, outcome, around.host.end())
        self._journal.end(number, outcome, at=around.clock())
        trial = self._journal.trial(number)
        self._history.add(trial)
        around.on_trial(trial, self._history.is_settled(key))
        around.stop.wait(self._settings.cooldown_seconds)

    def _judged(
        self, key: TrialKey, outcome: TrialOutcome, reading: InterferenceSample
    ) -> TrialOutcome:
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
        others = [each.wall_seconds for each in repeats if each.wall_seconds and each.key != key]
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


@dataclass(frozen=True, slots=True)
class CampaignPreview:
    """What a campaign would run.

    Attributes:
        configurations: that its constraints allow.
        ruled_out: that they do not.
        trials: with all repetitions and warm-ups, at most.
        settled: of these, what earlier runs have done.
    """

    configurations: int
    ruled_out: int
    trials: int
    settled: int


def plan(campaign: Campaign, home: Path) -> CampaignPreview:
    """What there is to do, without doing it; writes nothing."""
    run, sampling = campaign.settings.run, campaign.settings.sampling
    allowed = rows = len(campaign.grid.configurations)
    if sampling.strategy is not Strategy.FULL and sampling.max_configurations is not None:
        rows = min(rows, sampling.max_configurations)
    settled = 0
    path = journal_path(home, campaign)
    if path.exists():
        with Journal.open(path, campaign.campaign_id) as journal:
            trials = journal.trials()
        history = TrialHistory(trials, retries=run.retries)
        settled = sum(history.is_settled(key) for key in {trial.key for trial in trials})
    each = (run.repetitions + run.warmup) * len(campaign.targets)
    return CampaignPreview(allowed, campaign.grid.ruled_out, rows * each, settled)


def profile_campaign(
    campaign: Campaign,
    *,
    home: Path,
    store: ExecutionStore,
    environment: Mapping[str, str],
    clock: Callable[[], datetime],
    stop: threading.Event,
    on_trial: Callable[[JournalTrial, bool], None],
) -> Summary:
    """Run what is left of a campaign, and summarize all of it.

    Args:
        campaign: to run.
        home: the organization's directory.
        store: takes the trials of the whole workflow as executions.
        environment: where tokens of functions are looked for.
        clock: gives moments with time zone.
        stop: once set, the trial in flight is ended and the campaign with it.
        on_trial: called with every trial that has ended, and whether that settles it.

    Raises:
        ConfigurationError: a token is missing, or the strategy is not installed.
        InUseError: another program runs this campaign.
        StorageError: the journal or the store cannot be written.
    """
    _require_tokens(campaign, environment)
    sampler = sampler_of(campaign)
    path = journal_path(home, campaign)
    with Journal.open(path, campaign.campaign_id) as journal, journal.locked():
        _recover(campaign, journal, store)
        runner = TrialRunner(campaign.directory, path.with_suffix(".trials"), stop=stop)
        runner.clear()
        here = this_machine(campaign.settings.machine.node_type)

        def ended(trial: JournalTrial, is_settled: bool) -> None:
            if is_execution(trial):
                store.add([execution_of(campaign, trial, here)])
            on_trial(trial, is_settled)

        surroundings = CampaignDependencies(
            trials=runner,
            host=Host(),
            machine=here,
            boot=machine.boot_id(),
            clock=clock,
            new_token=lambda: secrets.token_hex(16),
            stop=stop,
            on_trial=ended,
        )
        stopped = run_campaign(campaign, journal, sampler, surroundings)
        return summarize(campaign, journal.trials(), journal.sessions(), stopped)


def this_machine(node_type: str = "") -> Machine:
    """What this machine is; `node_type` goes before what it says of itself."""
    config = machine.cluster_config(psutil.cpu_count() or 1)
    return Machine(
        node_type=node_type or machine.product_name(),
        architecture=machine.architecture(),
        processor=machine.machine_name(),
        cores=config.cores,
        memory_bytes=config.memory_bytes,
        machine_speed=config.machine_speed,
    )


def _recover(campaign: Campaign, journal: Journal, store: ExecutionStore) -> None:
    """End what a killed run of the campaign left behind, and store what it had measured."""
    trials = journal.trials()
    lost = TrialHistory(trials, retries=campaign.settings.run.retries).lost_tokens()
    if lost:
        kill_leftovers(lost)
    machines = {each.session: each.machine for each in journal.sessions()}
    store.add(
        execution_of(campaign, each, machines[each.session])
        for each in trials
        if is_execution(each)
    )


def _require_tokens(campaign: Campaign, environment: Mapping[str, str]) -> None:
    missing = [
        f"component {each.name}: http.token_env: the variable {each.http.token_env} is not set"
        for each in campaign.settings.component
        if each.http is not None
        and each.http.token_env is not None
        and not environment.get(each.http.token_env)
    ]
    if missing:
        raise ConfigurationError("; ".join(missing))
