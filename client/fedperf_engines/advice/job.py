"""The job to advise on: a workflow file, an execution that ran, or a program.

Only a program can be counted and run here. Of other jobs only the kinds of their operators are
known. An operator of those may stay on its platform, or move to platforms that run its kind.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from fedperf_client.formatting.workflow_file import MAX_FILE_BYTES
from fedperf_client.prediction.serving.reconfiguration import reconfigure
from fedperf_engines.platforms.engine import could_run, supports
from fedperf_engines.platforms.executor import DatasetMissingError, dataset_path
from fedperf_engines.platforms.operations import InvalidProgramError
from fedperf_engines.platforms.program import Program, from_json
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, PlanOnCluster
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform


class NoDataError(InvalidInputError):
    """A program without a directory of its data sets, or a directory without a program."""


class NotRunnableError(InvalidInputError):
    """The job cannot be run on this machine."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is to run."""

    # The workflow with the platforms that it runs on now; `UNASSIGNED` where none is given for an
    # operator.
    today: Plan
    cluster: ClusterConfig  # what it runs on now, or would by default
    program: Program | None = None  # what can be run here; None where only the workflow is given
    peak_bytes: int = 0  # the most memory that it took as it ran; 0 if not measured
    local_job: KnownJob | None = None  # the local execution of the job; None where there is none

    @property
    def workflow(self) -> Workflow:
        """Return its operators."""
        return self.today.workflow

    def on(self, cluster: ClusterConfig) -> "Job":
        """Return the job as it would run on another cluster; see `reconfigure`."""
        there = reconfigure(self.today, self.cluster, cluster).query.plan
        return replace(self, today=there, cluster=cluster)

    def query(self, query: PlanOnCluster) -> PlanOnCluster:
        """Attach the facts of this job to a query about one of its plans."""
        if self.local_job is None:
            return query
        stays = query.plan.platforms == self.today.platforms
        return query.about(self.local_job if stays else self.local_job.elsewhere())

    def keeps_partitions_on(self, cluster: ClusterConfig) -> bool:
        """Return whether the plan keeps its partitions, as their number there is unknown."""
        return reconfigure(self.today, self.cluster, cluster).keeps_partitions

    def can_run(self, position: int, platform: Platform) -> bool:
        """Return whether an operator can run on a platform."""
        if self.program is not None:
            return supports(self.program.steps[position].operation, platform)
        stays = self.today.platforms[position] is platform
        return stays or could_run(self.workflow.operators[position].kind, platform)


def read_program(path: Path) -> Program | None:
    """Return the program of a file; None where it is something else, such as a workflow file.

    Raises:
        InvalidInputError: there is no such file, or it has no JSON.
        InvalidProgramError: a program, but one that cannot run.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        raise InvalidInputError(f"{path} does not exist") from None
    except OSError:
        return None  # the reader of workflow files reports the problem
    if not text.lstrip().startswith(b"{"):
        raise InvalidInputError(
            f"{path} is no Spark log, and neither a workflow nor a program, which are JSON objects"
        )
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None  # as above
    is_program = isinstance(content, dict) and "steps" in content
    try:
        return from_json(text) if is_program else None
    except InvalidProgramError as error:
        raise InvalidProgramError(f"{path}: {error}") from error


def require_data(program: Program, directory: Path) -> None:
    """Refuse a program whose data sets are missing.

    Raises:
        DatasetMissingError: one of them is not.
    """
    for dataset in program.datasets:
        path = dataset_path(directory, dataset)
        if not path.exists():
            raise DatasetMissingError(dataset, path)
