"""The jobs of Spark's event logs, read once each, in bounded memory."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedperf_client.diagnosis.job_facts import JobFacts
from fedperf_client.sources import NothingToReadError, SkippedRecord
from fedperf_client.sources.codecs import UnreadCodecError
from fedperf_client.sources.kinds import places
from fedperf_client.sources.opener import UnreadArchiveError
from fedperf_client.sources.spark.application import Application
from fedperf_client.sources.spark.event_log import WHOLE_LOG, EventLog, open_event_log
from fedperf_shared.errors import InvalidInputError

_UNFINISHED = "no end of a job: the log stops before it"
_GIVEN_UP = "a job given up: too much ran at the same time"
_BAD = "a line that is no usable event"


def jobs_of(log: EventLog) -> Iterator[JobFacts | Application | str]:
    """Every job of a log when it is complete, and at its end the whole.

    Texts say what of it no finding is about; local.
    """
    names = {file.name for file in log.files}
    missing, application = Counter[str](), Application(is_partial=log.is_partial)
    for found in log.work(application, with_tasks=True):
        if isinstance(found, SkippedRecord) and found.record in names:
            is_one_of_many = len(names) > 1
            yield f"{found.record}: {found.reason}" if is_one_of_many else found.reason
        elif isinstance(found, SkippedRecord) and found.record == WHOLE_LOG:
            yield found.reason
        elif isinstance(found, SkippedRecord):
            missing[_BAD] += 1
        elif found.is_given_up:
            missing[_GIVEN_UP] += 1
        elif found.is_nested:
            continue
        elif found.is_complete:
            yield JobFacts.of(found, application)
        else:
            missing[_UNFINISHED] += 1
    yield application
    for reason in (_UNFINISHED, _GIVEN_UP, _BAD):
        if missing[reason]:
            yield f"{reason} ({missing[reason]})"


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
        except (NothingToReadError, UnreadArchiveError, UnreadCodecError) as error:
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
