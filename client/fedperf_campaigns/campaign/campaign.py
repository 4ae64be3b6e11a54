"""Runs a campaign: the sampler names a configuration, its trials run, their outcomes are recorded.

Trials of earlier runs are walked through again without running them, in the order in which they
happened. So the sampler chooses as it would have without the interruption. A configuration that
failed for good (all attempts of one of its trials) is skipped from then on. A spent budget ends the
run. With a larger budget the campaign goes on from there.

`profile_campaign` is the composition root. The journal is in the home, so the same file goes on
where it was after a crash, and a file with another meaning begins anew.

A trial of the whole job becomes an execution of the store. Its workload is the campaign: one
operator per component, of the declared kind, with the configuration's size as rows and its
parallelism as partitions and cores. Without a size the rows are unknown; without a parallelism it
had the machine's cores. Ids follow from campaign and trial, so adding a trial twice adds it once.
"""

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
import psutil

from fedperf_campaigns.campaign.definition import (
    OPERATOR_KINDS,
    PLATFORM_COLUMN,
    WHOLE,
    Campaign,
    Component,
    Strategy,
    component_message,
    journal_path,
)
from fedperf_campaigns.campaign.grid import TRIAL_DIRECTORY, Value
from fedperf_campaigns.campaign.journal import (
    Journal,
    JournalTrial,
    Machine,
    TrialHistory,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_campaigns.campaign.summary import CampaignEnd, Summary, summarize
from fedperf_campaigns.campaign.trial_process import CALLABLE_COMMAND
from fedperf_campaigns.campaign.trial_runner import (
    HostMonitor,
    InterferenceSample,
    TrialRunner,
    TrialStoppedError,
    kill_leftovers,
    noise_reason,
)
from fedperf_client.home.store import ExecutionStore
from fedperf_client.workers import machine
from fedperf_client.workers.child_process import ChildFailedError, ChildProcess
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import (
    ClusterConfig,
    Execution,
    ExecutionMetadata,
    ExecutionStatus,
    ExecutionWarning,
    Measurement,
)
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import (
    MAX_ITERATIONS,
    MAX_ROWS,
    MAX_RUNTIME_SECONDS,
    MIN_RUNTIME_SECONDS,
    RESERVED_PLATFORMS,
    OperatorClass,
    Platform,
)

MAX_CORES = 1_000_000
_CLASSES = {
    "graph_iterate": OperatorClass.GRAPH,
    "ml_train": OperatorClass.ML,
    "ml_predict": OperatorClass.ML,
}


def is_execution(trial: JournalTrial) -> bool:
    """Return whether a trial becomes an execution: the whole job, measured, not a warm-up."""
    return trial.key.component == WHOLE and trial.is_data


def to_execution(campaign: Campaign, trial: JournalTrial, machine: Machine) -> Execution:
    """Return a trial of the whole job as an execution. An unknown resource is 0."""
    grid, key, outcome = campaign.grid, trial.key, trial.outcome
    configuration = grid.configurations[key.configuration]
    cores = machine.cores
    if grid.parallelism is not None:
        cores = int(_clip(float(configuration[grid.parallelism]), 1, MAX_CORES))
    measurement = None
    if outcome is not None and outcome.wall_seconds is not None:
        used = outcome.resources
        measurement = Measurement(
            runtime_seconds=_clip(outcome.wall_seconds, MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS),
            cpu_seconds=used.cpu_seconds or 0.0,
            peak_memory_bytes=used.peak_bytes or 0,
            read_bytes=used.read_bytes or 0,
            written_bytes=used.written_bytes or 0,
        )
    name = f"{campaign.campaign_id}/{key.configuration}/{key.repetition}/{trial.attempt}"
    return Execution(
        execution_id=hashlib.sha256(name.encode()).hexdigest()[:32],
        workload=campaign.name,
        plan=to_plan(campaign, configuration),
        cluster=ClusterConfig(
            nodes=1,
            cores=cores,
            memory_bytes=machine.memory_bytes,
            machine_speed=machine.machine_speed,
        ),
        status=ExecutionStatus.OK,
        measurement=measurement,
        finished_at=trial.ended or trial.started,
        origin=ExecutionMetadata(
            source="campaign",
            node_type=machine.node_type,
            architecture=machine.architecture,
            rows_known=0.0 if grid.size is None else 1.0,
            remarks=(ExecutionWarning.NOISY,) if trial.status is TrialStatus.NOISY else (),
        ),
    )


def to_plan(campaign: Campaign, configuration: Mapping[str, Value]) -> Plan:
    """Return the components as operators with the configuration's platforms and sizes."""
    grid, components = campaign.grid, campaign.settings.component
    rows, partitions = 0.0, 0.0
    if grid.size is not None:
        rows = _clip(float(configuration[grid.size]), 0, MAX_ROWS)
    if grid.parallelism is not None:
        partitions = _clip(float(configuration[grid.parallelism]), 1, MAX_ITERATIONS)
    names = [each.name for each in components]
    operators = tuple(
        Operator(
            kind=OPERATOR_KINDS[each.kind],
            operator_class=_CLASSES.get(each.kind, OperatorClass.RELATIONAL),
            inputs=tuple(names.index(name) for name in dict.fromkeys(each.after)),
            output_rows=rows,
            partitions=int(partitions),
        )
        for each in components
    )
    default = str(configuration.get(PLATFORM_COLUMN, ""))
    return Plan(Workflow(operators), tuple(_platform(e.platform or default) for e in components))


def _platform(name: str) -> Platform:
    """Return the platform of that name, `OTHER` where fedperf has none."""
    platform = Platform.__members__.get(name.upper(), Platform.OTHER)
    unusable = platform in RESERVED_PLATFORMS or platform is Platform.UNASSIGNED
    return Platform.OTHER if unusable else platform


def _clip(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)


class Sampler(Protocol):
    """Chooses configurations, deterministically given its seed and the measurements.

    The n-th occurrence of a row of the grid is the row's n-th repetition.
    """

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """Return the row of the grid to measure next, or None to stop.

        Args:
            measured: row to median seconds of its ok repeats, in the order of measuring.
            unavailable: rows that failed for good.
        """
        ...

    @property
    def reason(self) -> str:
        """Return why it stopped, for people."""
        ...


class Blocks:
    """Measures every configuration once in random order, then again in another order.

    So a machine that gets slower, or is disturbed for a while, affects all configurations alike.
    """

    reason = "every configuration had its turns"

    def __init__(self, rows: int, *, repetitions: int, seed: int) -> None:
        self._turns = (
            int(row)
            for block in range(repetitions)
            for row in np.random.default_rng([seed, 11, block]).permutation(rows)
        )

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """Return the next row of the blocks (`Sampler`)."""
        del measured
        return next((row for row in self._turns if row not in unavailable), None)


class AllAtOnce:
    """Repeats every choice of another sampler as often as there are repetitions."""

    def __init__(self, chosen_by: Sampler, *, repetitions: int) -> None:
        self._sampler = chosen_by
        self._repetitions = repetitions
        self._row: int | None = None
        self._remaining = 0

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        """Return the current row until it has all repetitions (`Sampler`)."""
        if self._remaining == 0 or self._row in unavailable:
            self._row = self._sampler.next(measured, unavailable)
            self._remaining = self._repetitions
        self._remaining -= 1
        return self._row

    @property
    def reason(self) -> str:
        """Return why the other sampler stopped."""
        return self._sampler.reason


def make_sampler(campaign: Campaign) -> Sampler:
    """Return a new sampler of the campaign's strategy."""
    run, sampling, grid = campaign.settings.run, campaign.settings.sampling, campaign.grid
    if sampling.strategy is Strategy.FULL:
        return Blocks(len(grid.configurations), repetitions=run.repetitions, seed=run.seed)
    from fedperf_campaigns.campaign.sampling import GridSampler, SamplingGrid  # imports learners

    sampler = GridSampler(
        SamplingGrid.of(grid.table(), scale=grid.parallelism_column, size=grid.size_column),
        sampling.strategy,
        target_mape=sampling.target_mape,
        patience=sampling.patience,
        max_configurations=sampling.max_configurations,
        seed=run.seed,
    )
    return AllAtOnce(sampler, repetitions=run.repetitions)


IMPORT_SECONDS = 300.0  # how long a function's module may take to import, as in a trial
_GRACE_SECONDS = 2.0


def missing_parts(campaign: Campaign, environment: Mapping[str, str]) -> list[str]:
    """Check that commands and functions of a campaign are there, without running them.

    A command is searched as in a trial: on its PATH, or next to the campaign file. A
    function's module is imported in a process of its own. Files in a trial's own directory, and
    programs that an earlier component may build, are not checked.

    Args:
        campaign: whose components are checked.
        environment: that its trials will have.

    Returns:
        Each problem with its key.
    """
    problems: list[str] = []
    for component in campaign.settings.component:
        key, problem = "command", ""
        if component.command is not None:
            problem = _command_problem(campaign, component, environment)
        elif component.target is not None:
            key, problem = "callable", _function_problem(campaign, component)
        problems += [f"component {component.name}: {key}: {problem}"] if problem else []
    return problems


def _command_problem(
    campaign: Campaign, component: Component, environment: Mapping[str, str]
) -> str:
    """Return why the program cannot be started in some configuration; empty if it can."""
    template = (component.command or ("",))[0]
    if f"{{{TRIAL_DIRECTORY}}}" in template or (component.after and os.sep in template):
        return ""
    directory = campaign.directory
    varies = "{" in template + component.environment.get("PATH", "")
    programs: dict[tuple[str, str], None] = {}
    for configuration in campaign.grid.configurations[: None if varies else 1]:
        message = component_message(component, configuration, directory)
        words, own = message["command"], message["environment"]
        if isinstance(words, list) and isinstance(own, dict):
            folders = os.get_exec_path({**environment, **own})
            path = os.pathsep.join(str(directory / each) for each in folders)
            programs[str(words[0]), path] = None
    for program, path in programs:
        if os.sep in program:
            if shutil.which(directory / program) is None:
                return f"{program} is no program that can be run in {directory}"
        elif shutil.which(program, path=path) is None:
            return f"there is no program {program!r} on the PATH"
    return ""


def _function_problem(campaign: Campaign, component: Component) -> str:
    """Return why a function cannot be imported; empty if it can."""
    message = component_message(component, campaign.grid.configurations[0], campaign.directory)
    request = orjson.dumps({**message, "directory": str(campaign.directory)})
    with (
        tempfile.TemporaryFile() as log,
        ChildProcess(
            CALLABLE_COMMAND, log=log, cwd=campaign.directory, grace_seconds=_GRACE_SECONDS
        ) as child,
    ):
        try:  # without a second message the child ends before the call
            child.send(request)
            reply = orjson.loads(child.receive(IMPORT_SECONDS))
        except ChildFailedError as error:
            reply = {"reason": error.reason}
    if "ready" in reply:
        return ""
    return f"{component.target} cannot be imported: {reply['reason']}"


@dataclass(frozen=True, slots=True)
class CampaignDependencies:
    """The adapters that a campaign needs from outside."""

    trials: TrialRunner  # runs them
    host: HostMonitor  # watches the machine meanwhile
    machine: Machine  # which one it is
    boot: str  # differs after every start of the machine
    clock: Callable[[], datetime]  # gives moments with time zone
    new_token: Callable[[], str]  # gives a random mark for the processes of a trial
    stop: threading.Event  # once set, the campaign ends; the trial in flight has no outcome
    # Called with every trial that has ended, and whether that settles what it measures, so that it
    # will not be tried again.
    on_trial: Callable[[JournalTrial, bool], None]


class _SpentError(Exception):
    """A budget is spent."""


class CampaignRun:
    """Runs what is left of a campaign."""

    def __init__(
        self, campaign: Campaign, journal: Journal, dependencies: CampaignDependencies
    ) -> None:
        self._campaign = campaign
        self._settings = campaign.settings.run
        self._journal = journal
        self._around = dependencies
        self._session = journal.begin_session(
            dependencies.machine, boot=dependencies.boot, at=dependencies.clock()
        )
        self._history = TrialHistory(journal.trials(), retries=self._settings.retries)

    def to_the_end(self, sampler: Sampler) -> CampaignEnd:
        """Run turns until the sampler stops, a budget is spent or the user stops the run.

        Every outcome is in the journal when this returns.
        """
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
                elif (
                    seconds := self._history.median_seconds(
                        row, self._campaign.targets, self._settings.repetitions
                    )
                ) is not None:
                    measured[row] = seconds
            reason = sampler.reason
        except _SpentError as spent:
            reason, is_spent = str(spent), True
        except TrialStoppedError:
            reason, interrupted = "it was stopped", True
        return CampaignEnd(reason, interrupted, tuple(turns), is_spent)

    def _turn(self, row: int, repetition: int) -> bool:
        """Settle one repetition of a configuration; whether none of it failed for good.

        Its targets are in random order, before the first repetition with their warm-ups.
        """
        order = np.random.default_rng([self._settings.seed, 13, row, repetition])
        first = repetition if repetition else -self._settings.warmup
        for target in order.permutation(self._campaign.targets).tolist():
            for number in range(first, repetition + 1):
                key = TrialKey(row, target, number)
                while not self._history.is_settled(key):
                    self._run_one(key)
                if self._history.has_failed(key):
                    return False
        return True

    def _run_one(self, key: TrialKey) -> None:
        trials, seconds = self._settings.max_trials, self._settings.max_wall_seconds
        if trials is not None and self._history.spent_trials >= trials:
            raise _SpentError(f"the budget of {trials} trials is spent")
        if seconds is not None and self._history.spent_seconds >= seconds:
            raise _SpentError(f"the budget of {seconds:g} seconds is spent")
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
            limits=self._settings,
            token=token,
        )
        outcome = self._checked(key, outcome, around.host.end())
        self._journal.end(number, outcome, at=around.clock())
        trial = self._journal.trial(number)
        self._history.add(trial)
        around.on_trial(trial, self._history.is_settled(key))
        around.stop.wait(self._settings.cooldown_seconds)

    def _checked(
        self, key: TrialKey, outcome: TrialOutcome, reading: InterferenceSample
    ) -> TrialOutcome:
        """Add the interference to an outcome; flag it as noisy where there was too much."""
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
        noise = noise_reason(reading, outcome.wall_seconds or 0.0, others)
        return replace(outcome, status=TrialStatus.NOISY, reason=noise) if noise else outcome

    def _require_going_on(self) -> None:
        if self._around.stop.is_set():
            raise TrialStoppedError("it was stopped")


@dataclass(frozen=True, slots=True)
class CampaignPreview:
    """The trials that a campaign would run."""

    configurations: int  # that its constraints allow
    ruled_out: int  # that they do not
    trials: int  # with all repetitions and warm-ups, at most
    settled: int  # of these, what earlier runs have done


def plan(campaign: Campaign, home: Path) -> CampaignPreview:
    """Preview the campaign without running anything or writing a file."""
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
    sampler = make_sampler(campaign)
    path = journal_path(home, campaign)
    with Journal.open(path, campaign.campaign_id) as journal, journal.locked():
        _recover(campaign, journal, store)
        runner = TrialRunner(campaign.directory, path.with_suffix(".trials"), stop=stop)
        runner.clear()
        config = machine.cluster_config(psutil.cpu_count() or 1)
        here = Machine(
            node_type=campaign.settings.machine.node_type or machine.product_name(),
            architecture=machine.architecture(),
            processor=machine.machine_name(),
            cores=config.cores,
            memory_bytes=config.memory_bytes,
            machine_speed=config.machine_speed,
        )

        def ended(trial: JournalTrial, is_settled: bool) -> None:
            if is_execution(trial):
                store.add([to_execution(campaign, trial, here)])
            on_trial(trial, is_settled)

        dependencies = CampaignDependencies(
            trials=runner,
            host=HostMonitor(),
            machine=here,
            boot=machine.boot_id(),
            clock=clock,
            new_token=lambda: secrets.token_hex(16),
            stop=stop,
            on_trial=ended,
        )
        stopped = CampaignRun(campaign, journal, dependencies).to_the_end(sampler)
        return summarize(campaign, journal.trials(), journal.sessions(), stopped)


def _recover(campaign: Campaign, journal: Journal, store: ExecutionStore) -> None:
    """End what a killed run of the campaign left behind, and store what it had measured."""
    trials = journal.trials()
    lost = [each.token for each in trials if each.outcome is None]
    if lost:
        kill_leftovers(lost)
    machines = {each.session: each.machine for each in journal.sessions()}
    store.add(
        to_execution(campaign, each, machines[each.session])
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
