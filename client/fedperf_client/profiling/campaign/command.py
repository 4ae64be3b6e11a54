"""`fedperf profile CAMPAIGN.toml`: the parts of a campaign put together.

The journal lies in the home as `campaigns/NAME-ID.sqlite`, so the same file goes on where
it was whatever happened, and a file with another meaning begins anew.
"""

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psutil

from fedperf_client.home.store import ExecutionStore
from fedperf_client.profiling.campaign.campaign import CampaignSurroundings, run_campaign
from fedperf_client.profiling.campaign.definition import Campaign
from fedperf_client.profiling.campaign.files import journal_path
from fedperf_client.profiling.campaign.order import sampler_of
from fedperf_client.profiling.campaign.record.history import TrialHistory
from fedperf_client.profiling.campaign.record.journal import Journal, JournalTrial, Machine
from fedperf_client.profiling.campaign.record.noise import Host
from fedperf_client.profiling.campaign.results.executions import execution_of, is_execution
from fedperf_client.profiling.campaign.results.summary import Summary, summarize
from fedperf_client.profiling.campaign.trials.trial_runner import TrialRunner, kill_leftovers
from fedperf_client.profiling.choosing.strategies import Strategy
from fedperf_client.profiling.trials import machine
from fedperf_shared.errors import ConfigurationError


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
        CampaignRunsError: another program runs this campaign.
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

        surroundings = CampaignSurroundings(
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
