"""The server's composition root: what makes one coordinator, on whatever carries its messages.

A process puts it behind sockets (`process`), a simulation behind function calls.
"""

from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_server.app.task import Task
from fedperf_server.config import ServerConfig
from fedperf_server.desks.absences import AbsenceDesk
from fedperf_server.desks.drift import DriftDesk
from fedperf_server.desks.evidence import SnapshotReader
from fedperf_server.desks.promotion import PromotionDesk
from fedperf_server.desks.questions import QuestionDesk
from fedperf_server.desks.reports import ReportDesk
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.coordinator import Coordinator, Desk
from fedperf_server.rounds.fleet import Fleet
from fedperf_server.rounds.model_rounds import ModelRounds
from fedperf_server.rounds.next_model import Evaluate
from fedperf_server.rounds.open_round import RoundRules
from fedperf_server.state import registry
from fedperf_server.state.database import Database
from fedperf_server.state.registry import ModelFormat
from fedperf_shared.model.architecture import Weights
from fedperf_shared.programs.troubles import Troubles


def coordinator_of(
    config: ServerConfig,
    database: Database,
    enrollment: Enrollment,
    fleet: Fleet,
    task: Task,
    *,
    signing_key: ec.EllipticCurvePrivateKey,
    since: datetime,
    rules: RoundRules | None = None,
    troubles: Troubles | None = None,
) -> Coordinator:
    """The coordinator of `config`'s calendar, with the task's start model in its registry.

    Args:
        config: its calendar and rules.
        database: its memory.
        enrollment: its members.
        fleet: what carries the messages of rounds.
        task: what is learned.
        signing_key: of receipts.
        since: now; whoever was absent before is not named.
        rules: of rounds; the configured ones by default.
        troubles: of the process.
    """
    store_start_model(database, task.model_format, task.start, at=since, evaluate=task.evaluate)
    calendar, grace = config.timetable, config.grace
    rounds = ModelRounds(
        database,
        enrollment,
        fleet,
        timetable=calendar,
        rules=rules or RoundRules(config.quorum, grace),
        model_format=task.model_format,
        signing_key=signing_key,
        strategy=task.strategy,
        evaluate=task.evaluate,
    )
    judged_by = task.plans, task.predict_with
    desks: dict[str, Desk] = {
        "asking questions": QuestionDesk(database, calendar),
        "evaluating reports": ReportDesk(database, calendar, *judged_by, grace=grace),
        "judging versions": PromotionDesk(database, calendar, *judged_by, grace=grace),
        "reading drift": DriftDesk(database, calendar, grace=grace),
        "looking for absent reports": AbsenceDesk(database, calendar, grace=grace, since=since),
    }
    return Coordinator(SnapshotReader(database, calendar.period), desks, rounds, troubles=troubles)


def store_start_model(
    database: Database,
    model_format: ModelFormat,
    arrays: Weights,
    *,
    at: datetime,
    evaluate: Evaluate | None = None,
) -> None:
    """Make `arrays` version 1, promoted, unless the registry holds a model already."""
    with database.transaction() as session:
        if registry.known_versions(session):
            return
    error = None if evaluate is None else evaluate(arrays)
    with database.transaction() as session:
        registry.add_version(
            session, model_format, arrays, at=at, public_error=error, promoted=True
        )
