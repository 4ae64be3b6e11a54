"""The server's composition root: which model, round method and yardstick a coordinator uses.

GGFN from the public start, steps at its tangent on the public plans that ship with fedperf or
equal-weight robust aggregation of updates by DP-SGD, as the calendar says, and the median
q-error on these plans. What a window's rounds made is judged before the next ones (`promotion`);
organizations weight what they fetch by their own executions, so this only has to catch a
model that went astray.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from fedperf_server.app.process import serving, store_start_model
from fedperf_server.config import ServerConfig
from fedperf_server.desks.absences import AbsenceDesk
from fedperf_server.desks.drift import DriftDesk
from fedperf_server.desks.promotion import PromotionDesk
from fedperf_server.desks.questions import QuestionDesk
from fedperf_server.desks.reports import ReportDesk
from fedperf_server.inference.aggregation import aggregate
from fedperf_server.rehearsal.synthetic_rows import PredictLog
from fedperf_server.rounds.dp_sgd_rounds import DpSgdRounds
from fedperf_server.rounds.round_method import RoundMethod
from fedperf_server.rounds.tangent_rounds import TangentRounds
from fedperf_server.state.database import DATABASE, Database, DatabaseError
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.rounds import RoundResult
from fedperf_server.state.validation import UpdateLimits
from fedperf_shared.execution import MeasuredPlan, SizedPlan
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights, named_arrays
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.metrics import median_q_error
from fedperf_shared.model.public_plans import anchors_of, load_public_plans
from fedperf_shared.model.public_start import load_public_start
from fedperf_shared.programs.troubles import Troubles
from fedperf_shared.releases.period import ModelMethod

REPORT_PAUSE_SECONDS = 1.0

log = structlog.get_logger()


def run_server(
    config: ServerConfig, stop: threading.Event, *, clock: Callable[[], datetime]
) -> None:
    """Serve until `stop` is set.

    Raises:
        FedperfError: configuration, keys, database or ports cannot be used.
    """
    plans = load_public_plans()
    database = Database.existing(config.database_url)
    start = [load_public_start().arrays[name] for name in ARRAY_SHAPES]
    evaluate = yardstick(plans)
    store_start_model(database, GgfnFormat(), start, at=clock(), public_error=evaluate(start))

    troubles = Troubles()
    with serving(
        config,
        model_format=GgfnFormat(),
        method=method_of(config, plans),
        evaluate=evaluate,
        clock=clock,
        troubles=troubles,
    ) as coordinator:
        log.info("serving", exchange=config.exchange_address, fleet=config.fleet_address)
        desk = ReportDesk(database, config.timetable, plans, grace=config.grace)
        questions = QuestionDesk(database, config.timetable)
        promotions = PromotionDesk(database, config.timetable, plans, grace=config.grace)
        drifts = DriftDesk(database, config.timetable, grace=config.grace, clock=clock)
        absences = AbsenceDesk(database, config.timetable, grace=config.grace, since=clock())
        steps: dict[str, DeskStep] = {
            "asking questions": partial(_ask, questions),
            "evaluating reports": partial(_look, desk),
            "judging versions": partial(_judge, promotions),
            "reading drift": partial(_watch_drift, drifts),
            "looking for absent reports": partial(_miss, absences),
        }
        with _watched(steps, stop, clock, troubles):
            coordinator.run(stop, on_round=_announce)


def method_of(config: ServerConfig, plans: Sequence[MeasuredPlan]) -> RoundMethod:
    """How the rounds of the configured calendar train GGFN."""
    if config.timetable.model_method is ModelMethod.TANGENT:
        return TangentRounds([PlanGraph.of(plan, cluster) for plan, cluster in anchors_of(plans)])
    bound, ggfn = config.update_norm_bound, GgfnFormat()
    limits = UpdateLimits(ggfn.architecture, ggfn.shapes, bound)
    return DpSgdRounds(limits, partial(aggregate, norm_bound=bound))


def yardstick(plans: Sequence[MeasuredPlan]) -> Callable[[Weights], float]:
    """Median q-error on `plans` as a function of GGFN's arrays."""
    graphs = [PlanGraph.of(each.plan, each.cluster) for each in plans]
    seconds = np.exp([each.log_runtime_seconds for each in plans])

    def error(arrays: Weights) -> float:
        model = model_from_arrays(named_arrays(arrays))
        return median_q_error(np.exp(predict(model, graphs)), seconds)

    return error


def predict_with(checkpoint: bytes) -> PredictLog:
    """A checkpoint's predictions on entries of the catalogue."""
    model = model_from_arrays(decode_checkpoint(checkpoint).arrays)

    def predict_log(entries: Sequence[SizedPlan]) -> NDArray[np.float64]:
        return predict(model, [PlanGraph.of(e.plan, e.cluster) for e in entries])

    return predict_log


class DeskStep(Protocol):
    """What the thread beside the rounds does at every look."""

    def __call__(self, *, at: datetime) -> None:
        """At that moment."""


@contextmanager
def _watched(
    steps: Mapping[str, DeskStep],
    stop: threading.Event,
    clock: Callable[[], datetime],
    troubles: Troubles,
) -> Iterator[None]:
    """Take the steps again and again in a thread, until `stop` is set or the block is left."""
    left = threading.Event()

    def watch() -> None:
        while not (stop.is_set() or left.wait(REPORT_PAUSE_SECONDS)):
            if not troubles.rests(DATABASE):
                _take(steps, clock, troubles)

    watching = threading.Thread(target=watch, name="reports", daemon=True)
    watching.start()
    try:
        yield
    finally:
        left.set()
        watching.join(timeout=10)


def _take(steps: Mapping[str, DeskStep], clock: Callable[[], datetime], troubles: Troubles) -> None:
    """Each step once; what a step cannot do, whatever the reports hold, holds up no round."""
    for what, step in steps.items():
        if troubles.rests(what):
            continue
        try:
            step(at=clock())
        except DatabaseError as error:
            troubles.failed(DATABASE, error, source="desks")
            return
        except Exception as error:
            troubles.failed(what, error)
        else:
            troubles.worked(what)
    troubles.worked(DATABASE, source="desks")


def _ask(questions: QuestionDesk, *, at: datetime) -> None:
    for each in questions.ask(at=at):
        log.info("question asked", window=each.slot.window, slot=each.slot.index)


def _look(desk: ReportDesk, *, at: datetime) -> None:
    published = desk.look(predict_with, at=at)
    if published is not None:
        log.info("correction published", reports=published.reports, rows=published.rows)


def _judge(desk: PromotionDesk, *, at: datetime) -> None:
    verdict = desk.look(predict_with, at=at)
    if verdict is not None:
        said = "model promoted" if verdict.promoted else "model rejected"
        log.info(said, version=verdict.version, reason=verdict.reason)


def _watch_drift(desk: DriftDesk, *, at: datetime) -> None:
    for each in desk.look(at=at):
        log.info(
            "drift found",
            platform=each.platform.name.lower(),
            shared=each.shared,
            organizations=len(each.organizations),
            since=each.since,
            log_factor=round(each.log_factor, 3),
        )


def _miss(desk: AbsenceDesk, *, at: datetime) -> None:
    for each in desk.look(at=at):
        log.warning("report missing", organization=each.organization, slot=each.slot_name)


def _announce(result: RoundResult) -> None:
    log.info(
        "round closed",
        round=result.number,
        outcome=str(result.outcome),
        replies=f"{result.replies} of {result.asked}",
        refused=dict(result.failures),
        public_error=result.public_error,
    )
