"""Trials of a whole workflow as executions of the organization's store.

The workload is the campaign: one operator per component, of the declared kind, with the
configuration's size as rows and its parallelism as partitions and cores; without a size its rows
are not known, without a parallelism it had the machine's cores. Ids follow from
the campaign and the trial, so adding the same trial twice adds it once. A resource that
could not be seen is 0 here, as for every source that does not tell it.
"""

import hashlib
from collections.abc import Mapping, Sequence

from fedperf_campaigns.campaign.components import PLATFORM_COLUMN, WHOLE, Component
from fedperf_campaigns.campaign.definition import Campaign
from fedperf_campaigns.campaign.expressions import Value
from fedperf_campaigns.campaign.journal import JournalTrial, Machine, TrialStatus
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
    """Whether a trial becomes an execution: the whole workflow, measured, not a warm-up."""
    return trial.key.component == WHOLE and trial.is_data


def execution_of(campaign: Campaign, trial: JournalTrial, machine: Machine) -> Execution:
    """The execution that a trial of the whole workflow was; see `is_execution`."""
    configuration = campaign.grid.configurations[trial.key.configuration]
    outcome = trial.outcome
    measurement = None
    is_noisy = trial.status is TrialStatus.NOISY
    if outcome is not None and outcome.wall_seconds is not None:
        used = outcome.resources
        measurement = Measurement(
            runtime_seconds=_within(outcome.wall_seconds, MIN_RUNTIME_SECONDS, MAX_RUNTIME_SECONDS),
            cpu_seconds=used.cpu_seconds or 0.0,
            peak_memory_bytes=used.peak_bytes or 0,
            read_bytes=used.read_bytes or 0,
            written_bytes=used.written_bytes or 0,
        )
    return Execution(
        execution_id=_execution_id(campaign, trial),
        workload=campaign.name,
        plan=plan_of(campaign, configuration),
        cluster=ClusterConfig(
            nodes=1,
            cores=_cores(campaign, configuration, machine),
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
            rows_known=0.0 if campaign.grid.size is None else 1.0,
            remarks=(ExecutionWarning.NOISY,) if is_noisy else (),
        ),
    )


def plan_of(campaign: Campaign, configuration: Mapping[str, Value]) -> Plan:
    """What ran where in a configuration."""
    components = campaign.settings.component
    grid, rows, partitions = campaign.grid, 0.0, 0.0
    if grid.size is not None:
        rows = _within(float(configuration[grid.size]), 0, MAX_ROWS)
    if grid.parallelism is not None:
        partitions = _within(float(configuration[grid.parallelism]), 1, MAX_ITERATIONS)
    names = [each.name for each in components]
    operators = tuple(
        Operator(
            kind=each.operator_kind,
            operator_class=_CLASSES.get(each.kind, OperatorClass.RELATIONAL),
            inputs=tuple(names.index(name) for name in dict.fromkeys(each.after)),
            output_rows=rows,
            partitions=int(partitions),
        )
        for each in components
    )
    return Plan(Workflow(operators), _platforms(components, configuration))


def _platforms(
    components: Sequence[Component], configuration: Mapping[str, Value]
) -> tuple[Platform, ...]:
    of_grid = str(configuration.get(PLATFORM_COLUMN, ""))
    return tuple(_platform(each.platform or of_grid) for each in components)


def _platform(word: str) -> Platform:
    """The platform of that name, `OTHER` where it is none of ours."""
    found = Platform.__members__.get(word.upper(), Platform.OTHER)
    return Platform.OTHER if found in RESERVED_PLATFORMS | {Platform.UNASSIGNED} else found


def _execution_id(campaign: Campaign, trial: JournalTrial) -> str:
    key = trial.key
    text = f"{campaign.campaign_id}/{key.configuration}/{key.repetition}/{trial.attempt}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cores(campaign: Campaign, configuration: Mapping[str, Value], machine: Machine) -> int:
    """The parallel units of a configuration; those of the machine where it has none."""
    name = campaign.grid.parallelism
    return machine.cores if name is None else int(_within(float(configuration[name]), 1, MAX_CORES))


def _within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
