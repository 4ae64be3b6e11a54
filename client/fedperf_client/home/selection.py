"""Selection of stored executions: by name, text, ending, platform, time, or an id cut short."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fedperf_client.home.execution_rows import micros_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ExecutionStatus
from fedperf_shared.workflow.vocabulary import Platform

PLATFORM_FUNCTION = "runs_on"
"""What a connection must offer for `CONDITION`: whether a plan, as bytes, uses a platform."""

CONDITION = """
    (:workload IS NULL OR workload = :workload OR (
        NOT EXISTS (SELECT 1 FROM execution WHERE workload = :workload)
        AND instr(lower(workload), lower(:workload)) > 0))
    AND (:text IS NULL OR instr(lower(
        execution_id || char(10) || workload || char(10) || application || char(10)
        || application_id || char(10) || record || char(10) || description || char(10)
        || file || char(10) || failure || char(10) || source), lower(:text)) > 0)
    AND (:status IS NULL OR status = :status)
    AND (:since IS NULL OR finished_at >= :since)
    AND (:until IS NULL OR finished_at < :until)
    AND (:platform IS NULL OR runs_on(plan, :platform))
"""
"""In SQL, for the parameters of a selection."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All executions for which everything that is not None holds.

    Attributes:
        workload: they are of this one; where none is called exactly so, of all whose names
            have it in them, in capitals or not.
        text: it is in what people know them by: id, workload, application and its id, record,
            description, file, failure or source, in capitals or not.
        status: they ended so.
        platform: an operator of them ran there.
        since: they finished at or after this moment (with time zone).
        until: they finished before this moment (with time zone).
    """

    workload: str | None = None
    text: str | None = None
    status: ExecutionStatus | None = None
    platform: Platform | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def parameters(self) -> dict[str, str | int | None]:
        """Of `CONDITION`.

        Raises:
            InvalidExecutionError: a moment has no time zone.
        """
        return {
            "workload": self.workload,
            "text": self.text,
            "status": None if self.status is None else int(self.status),
            "platform": None if self.platform is None else int(self.platform),
            "since": None if self.since is None else micros_of(self.since),
            "until": None if self.until is None else micros_of(self.until),
        }


EVERYTHING = Selection()


SHORTEST_ID = 8
"""Letters of an id that are shown at least."""

MOST_NAMED = 5
"""Executions that are named where several are meant."""

_LONGEST_WORKLOAD = 40


class UnknownExecutionError(InvalidInputError):
    """The store has no execution of that id."""

    def __init__(self, execution_id: str, stored: int) -> None:
        super().__init__(
            f"there is no execution {execution_id!r} among the {stored} in the store; "
            + ("fedperf runs lists them" if stored else "take some in with: fedperf ingest FILE")
        )
        self.execution_id = execution_id


class AmbiguousExecutionError(InvalidInputError):
    """Several executions have ids that begin so."""

    def __init__(self, prefix: str, count: int, first: Sequence[tuple[str, str]]) -> None:
        """`first` are the ids, cut short, and the workloads of some of the `count`."""
        told = [f"{each} ({workload[:_LONGEST_WORKLOAD]})" for each, workload in first]
        if count > len(first):
            told.append(f"{count - len(first)} more")
        super().__init__(
            f"several executions, {count}, have an id that begins with {prefix!r}: "
            f"{', '.join(told)}; name one, or list them with: fedperf runs --search {prefix}"
        )
        self.prefix = prefix
