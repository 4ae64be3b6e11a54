"""The jobs of Spark's event logs, read once each, in bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.diagnosis.open_jobs import WANTED, OpenJobs
from fedperf_client.sources import NothingToReadError
from fedperf_client.sources.kinds import places
from fedperf_client.sources.opener import FilePlace, UnreadArchiveError
from fedperf_client.sources.spark.event_log import EventLog, open_event_log
from fedperf_client.sources.spark.events import BadLine, Events
from fedperf_client.sources.spark.fields import MalformedEventError
from fedperf_client.sources.spark.streams import DamagedLogError, PassedOver, UnreadCodecError
from fedperf_shared.errors import InvalidInputError

_STARTS_OF_TASKS = PassedOver((b'{"Event":"SparkListenerTaskStart"',))


@dataclass(frozen=True, slots=True)
class UnreadPart:
    """Something of a log that no finding is about; local text."""

    reason: str


def jobs_of(log: EventLog) -> Iterator[JobFacts | UnreadPart]:
    """Every job of a log when it is complete, and at its end what is missing."""
    running, events = OpenJobs(), Events(WANTED, _STARTS_OF_TASKS)
    bad = 0
    for file in log.files:
        try:
            for found in events.of(file):
                if isinstance(found, BadLine):
                    bad += 1
                    continue
                try:
                    yield from running.take(*found)
                except MalformedEventError:
                    bad += 1
        except (DamagedLogError, OSError) as error:
            yield UnreadPart(_words(file, error, is_one_of_many=len(log.files) > 1))
    yield from running.complete()
    for count, reason in (
        (running.unfinished, "no end of a job: the log stops before it"),
        (running.given_up, "a job given up: too much ran at the same time"),
        (bad, "a line that is no usable event"),
    ):
        if count:
            yield UnreadPart(f"{reason} ({count})")


def event_logs_in(
    paths: Iterable[Path], others: list[str] | None = None
) -> tuple[list[tuple[Path, EventLog]], list[str]]:
    """Every Spark log below the paths, and what is wrong with what was named.

    Args:
        paths: files and directories.
        others: gets what lies in directories and is no log, or holds nothing.
    """
    passed_by: list[str] = [] if others is None else others
    problems: list[str] = []
    found: list[tuple[Path, EventLog]] = []
    for place, is_named in places(paths, problems):
        try:
            log = open_event_log(place)
        except NothingToReadError as error:
            (problems if is_named else passed_by).append(str(error))
            continue
        except (UnreadArchiveError, UnreadCodecError) as error:
            (problems if is_named else passed_by).append(str(error))
            continue
        except (InvalidInputError, OSError) as error:
            problems.append(str(error))
            continue
        if log is None:
            (problems if is_named else passed_by).append(f"{place}: not a Spark event log")
            continue
        found += [(place, each) for each in log.logs]
        passed_by += [f"{place}: {each}" for each in log.others]
    return found, problems


def _words(file: FilePlace, error: Exception, *, is_one_of_many: bool) -> str:
    said = str(error.strerror if isinstance(error, OSError) else error).removeprefix(f"{file}: ")
    return f"{file.name}: {said}" if is_one_of_many else said
