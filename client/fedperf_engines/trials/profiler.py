"""From a program and its platforms to an `Execution`: rows counted once, trial run, put together.

Invariant: the workflow of an execution carries the rows that really flowed, counted
outside of the measured run, and none of the program's parameters.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from fedperf_engines.platforms.program import Program, StepStatistics, to_json, to_workflow
from fedperf_engines.trials.pool import (
    Trial,
    TrialLimits,
    TrialRequest,
    UncountableProgramError,
    WorkerPool,
)
from fedperf_shared.execution import ClusterConfig, Execution
from fedperf_shared.workflow.graph import Plan, SourceStatistics, Workflow
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

_KEPT_WORKFLOWS = 1024
_COUNTING_TIMEOUT_FACTOR = 5.0
"""Counting keeps every intermediate result, so it takes longer than a run."""


class Profiler:
    """Profiles programs in the child processes of a pool."""

    def __init__(
        self,
        pool: WorkerPool,
        *,
        data_directory: Path,
        limits: TrialLimits,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        """Use `pool`; `clock` gives moments with time zone, `new_id` random local ids."""
        self._pool = pool
        self._data_directory = data_directory
        self._limits = limits
        self._counting_limits = TrialLimits(
            min(limits.timeout_seconds * _COUNTING_TIMEOUT_FACTOR, MAX_RUNTIME_SECONDS),
            limits.memory_bytes,
        )
        self._clock = clock
        self._new_id = new_id
        self._workflows: OrderedDict[bytes, Workflow] = OrderedDict()

    def profile(
        self,
        program: Program,
        platforms: Sequence[Platform],
        cluster: ClusterConfig,
        *,
        workload: str,
    ) -> Execution:
        """One measured run with `cluster.cores` threads; a failed one is an execution too.

        Raises:
            UncountableProgramError: the rows of the program could not be counted.
        """
        workflow = self.workflow(program)
        trial = self.trial(program, platforms, threads=cluster.cores)
        return self.execution(workflow, trial, cluster, workload=workload)

    def trial(
        self,
        program: Program,
        platforms: Sequence[Platform],
        *,
        threads: int,
        memory_bytes: int | None = None,
    ) -> Trial:
        """One measured run, with a memory cap of its own or the profiler's limits alone."""
        request = TrialRequest(
            to_json(program), tuple(platforms), self._data_directory, threads, memory_bytes
        )
        return self._pool.run(request, self._limits)

    def workflow(self, program: Program) -> Workflow:
        """The workflow of a program with the rows that really flow; remembered.

        Raises:
            UncountableProgramError: the rows of the program could not be counted.
        """
        text = to_json(program)
        found = self._workflows.get(text)
        if found is None:
            request = TrialRequest(text, (Platform.UNASSIGNED,), self._data_directory, 1)
            found = _to_workflow(program, self._pool.count(request, self._counting_limits))
            self._workflows[text] = found
            if len(self._workflows) > _KEPT_WORKFLOWS:
                self._workflows.popitem(last=False)
        return found

    def execution(
        self, workflow: Workflow, trial: Trial, cluster: ClusterConfig, *, workload: str
    ) -> Execution:
        """The trial as an execution that finished now."""
        return Execution(
            execution_id=self._new_id(),
            workload=workload,
            plan=Plan(workflow, trial.platforms),
            cluster=cluster,
            status=trial.status,
            measurement=trial.measurement,
            finished_at=self._clock(),
        )


def _to_workflow(program: Program, reply: Mapping[str, object]) -> Workflow:
    steps, sources = reply.get("steps"), reply.get("sources")
    if not (isinstance(steps, list) and isinstance(sources, list)):
        raise UncountableProgramError("the rows of a program were counted without an answer")
    return to_workflow(
        program, [StepStatistics(*each) for each in steps], SourceStatistics(*sources)
    )
