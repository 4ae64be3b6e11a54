"""Linear queries and responses over real sockets: fetching, acceptance, refusal and counts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_client.node.exchange import ExchangeClient, RefusedByCoordinatorError
from fedperf_server.app.process import system_clock
from fedperf_server.controllers.reports import design_queries
from fedperf_server.state import releases
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec, exchange_pb2, services
from tests.fakes.cell_queries import DIRECTED
from tests.fakes.cell_reports import cell_report
from tests.fakes.snapshots import evidence, snapshot
from tests.integration.federation.small_federation import (
    Organization,
    World,
    admit,
    calendar,
    new_server,
    world,
)
from tests.unit.client.contributions.seeded_noise import SeededNoise

PLAIN = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
PARAMETERS = DirectedParameters(5.0, 40.0)
WORKLOADS = [WorkloadResiduals(np.array([cell]), np.array([0.3])) for cell in range(40)]


@dataclass(frozen=True)
class Scene:
    server: World
    acme: Organization
    table: ReleaseCalendar

    def ask(self) -> None:
        design_queries(snapshot(self.server.database, self.table, system_clock()))

    def counted(self) -> dict[str, int]:
        with self.server.database.transaction() as session:
            return {key[2]: n for key, n in releases.rejections(session).items()}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    plain = calendar()
    times = SlotTimes(timedelta(0), timedelta(seconds=1))
    table = replace(plain, report_slots=(times, times))
    with world(new_server(tmp_path / "server", table)) as server:
        yield Scene(server, admit(tmp_path, server.invite("Acme"), "acme", None), table)


@pytest.fixture
def exchange(scene: Scene) -> Iterator[ExchangeClient]:
    slots = (Slot(PLAIN, ReportParameters(5.0, 3.0)), Slot(DIRECTED, PARAMETERS))
    with scene.acme.exchange() as client:
        client.declare_schedule(Schedule(scene.table, slots))
        yield client


def asked(scene: Scene, exchange: ExchangeClient) -> CellQuery:
    scene.ask()
    question = exchange.linear_query(DIRECTED)
    assert question is not None
    return question


def answer(question: CellQuery) -> DirectedReport:
    return cell_report(WORKLOADS, question, SeededNoise(), slot=DIRECTED, parameters=PARAMETERS)


def hand_in(exchange: ExchangeClient, organization: Organization, report: DirectedReport) -> None:
    exchange.submit(organization.sign(codec.encode_release(report)))


def test_exchange_serves_linear_query_and_counts_its_report_once(
    scene: Scene, exchange: ExchangeClient
) -> None:
    assert exchange.linear_query(DIRECTED) is None
    question = asked(scene, exchange)
    assert (question.slot, question.reference_version) == (DIRECTED, 1)
    signed = scene.acme.sign(codec.encode_release(answer(question)))
    assert exchange.submit(signed) == exchange.submit(signed)
    assert evidence(scene.server.database, scene.table, window=0).reports == 1
    assert scene.counted() == {}


def test_exchange_serves_same_linear_query_to_all_organizations(
    scene: Scene, exchange: ExchangeClient, tmp_path: Path
) -> None:
    question = asked(scene, exchange)
    other = admit(tmp_path, scene.server.invite("Other"), "other", None)
    with other.exchange() as client:
        theirs = client.linear_query(DIRECTED)
    assert theirs is not None
    assert codec.encode_question(theirs) == codec.encode_question(question)


def test_exchange_refuses_bad_directed_reports_and_counts_each_reason(
    scene: Scene, exchange: ExchangeClient
) -> None:
    with pytest.raises(RefusedByCoordinatorError, match="question"):
        hand_in(exchange, scene.acme, DirectedReport(DIRECTED, 1, -20, np.zeros(16, np.int64)))
    good = answer(asked(scene, exchange))
    bad = {
        "question": {"design_version": 2},
        "size": {"values": good.values[:15]},
        "grid": {"grid_exponent": 1},
        "range": {"values": np.full(16, 2**62)},
        "wrong_slot": {"slot": PLAIN},
        "unknown_slot": {"slot": replace(DIRECTED, window=1)},
    }
    for reason, changes in bad.items():
        with pytest.raises(RefusedByCoordinatorError, match=reason):
            hand_in(exchange, scene.acme, replace(good, **changes))  # type: ignore[arg-type]
    assert scene.counted() == dict.fromkeys(bad, 1) | {"question": 2}
    with scene.server.database.transaction() as session:
        assert releases.stored_reports(session, scene.table.period) == {}
    hand_in(exchange, scene.acme, good)


def test_linear_query_with_norm_above_one_is_refused_by_the_client(
    scene: Scene, exchange: ExchangeClient
) -> None:
    """The query holds directions of twice the length, so a workload could send norm 2."""
    honest = codec.QUESTION_OR_NONE

    def longer(question: CellQuery | None) -> exchange_pb2.Question:
        message = honest.write(question)
        message.directions[:] = [2 * each for each in message.directions]
        return message

    scene.ask()
    call = services.EXCHANGE["question"]  # the running server holds a reference to this object
    object.__setattr__(call, "reply", replace(honest, write=longer))
    try:
        with pytest.raises(InvalidInputError, match="a workload could send a vector of norm"):
            exchange.linear_query(DIRECTED)
    finally:
        object.__setattr__(call, "reply", honest)
