"""Tests of linear queries: each is designed once from accepted reports and survives a restart."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedperf_server.controllers.reports import PublicationController, design_queries
from fedperf_server.inference.cell_directions import CHANGE, GRID, design_cell_query
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.state import database as tables
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, ModelVersionRow
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.releases import load_query
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    ReportParameters,
    ResidualReport,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import (
    decode_correction,
    encode_cell_query,
    encode_correction,
    encode_release,
)
from tests.fakes.audit_log import verify_events
from tests.fakes.snapshots import evidence, snapshot
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.client.release.periods import START, calendar
from tests.unit.server.inference.simulated_organizations import (
    PLAIN,
    Member,
    draw_truth,
    members,
    stage,
)

TABLE = calendar(2, reports=3)
SIGMA = 1.4
OPENS = [START + times.opens_after for times in TABLE.report_slots]
CATALOGUE = [
    MeasuredPlan(question.plan, question.cluster, 0.0)
    for question in draw_questions(np.random.default_rng(3), 30)
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    with database.transaction() as session:
        arrays = [*seeded_checkpoint(1).arrays.values()]
        registry.add_version(session, GgfnFormat(), arrays, at=START, promoted=True)
    yield database
    database.close()


@pytest.fixture(scope="module")
def group() -> list[Member]:
    return members(draw_truth(np.random.default_rng(3)), seed=3, count=2, workloads=100)


def join(database: Database, group: Sequence[Member], *, stages: int = 3, window: int = 0) -> None:
    """Add members with a plain report in the first window and directed reports in `window`."""
    for member in group:
        slots = [Slot(PLAIN, ReportParameters(SIGMA, 3.0))]
        slots += [
            Slot(
                replace(stage(index), window=window),
                DirectedParameters(SIGMA, len(member.workloads)),
            )
            for index in range(1, stages)
        ]
        with database.transaction() as session:
            session.add(
                tables.Member(
                    organization_id=identity(member),
                    name=member.name,
                    public_key=new_private_key().public_key(),
                    joined_at=START,
                    revoked_at=None,
                )
            )
            session.flush()
            releases.declare_schedule(
                session, identity(member), Schedule(TABLE, tuple(slots)), at=START
            )


def identity(member: Member) -> bytes:
    return member.name.encode()


def hand_in(database: Database, member: Member, report: ResidualReport | DirectedReport) -> None:
    signed = SignedRelease(encode_release(report), b"")
    with database.transaction() as session:
        releases.store_report(
            session,
            identity(member),
            report,
            signed,
            reference_version=1,
            period=TABLE.period,
            at=START,
        )


def asked(database: Database, at: datetime) -> tuple[CellQuery, ...]:
    return design_queries(snapshot(database, TABLE, at))


def stored(database: Database, slot: SlotKey) -> bytes:
    with database.transaction() as session:
        question = load_query(session, TABLE.period, slot)
    return b"" if question is None else encode_cell_query(question)


def test_design_queries_publishes_a_linear_query_when_its_slot_opens(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    assert asked(database, OPENS[1] - timedelta(seconds=1)) == ()
    (question,) = asked(database, OPENS[1])
    assert (question.slot, question.version, question.reference_version) == (stage(1), 1, 1)
    assert asked(database, OPENS[1]) == ()
    (later,) = asked(database, OPENS[2])
    assert (later.slot, later.version) == (stage(2), 2)
    with database.transaction() as session:
        assert verify_events(session) == 2


def test_design_queries_after_restart_keeps_the_stored_linear_query(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    asked(database, OPENS[1])
    before = stored(database, stage(1))
    for member in group:
        hand_in(database, member, member.plain(SIGMA).report)
    assert asked(database, OPENS[1] + timedelta(hours=1)) == ()
    assert stored(database, stage(1)) == before != b""


def test_design_queries_without_directed_slots_publishes_no_linear_query(
    database: Database, group: list[Member]
) -> None:
    join(database, group, stages=1)
    assert asked(database, OPENS[2]) == ()
    assert stored(database, stage(1)) == b""


def test_design_queries_after_the_period_publishes_no_linear_query(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    assert asked(database, TABLE.period.end) == ()


def test_linear_query_is_centered_at_the_posterior_of_reports(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    for member in group:
        hand_in(database, member, member.plain(SIGMA).report)
    (question,) = asked(database, OPENS[1])
    told = evidence(database, TABLE, window=0).posterior.correction
    np.testing.assert_allclose(question.center, told.mean, rtol=0, atol=GRID / 2)
    assert np.abs(question.center).max() > 0.1


@pytest.mark.parametrize(("window", "change"), [(0, 0.0), (1, CHANGE)])
def test_linear_query_after_reports_of_earlier_window_allows_for_change(
    database: Database,
    group: list[Member],
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    change: float,
) -> None:
    """This test covers the arguments only. `test_cell_directions` covers their effect."""
    join(database, group, window=window)
    for member in group:
        hand_in(database, member, member.plain(SIGMA).report)
    heard: list[object] = []

    def ask(*arguments: Any, **named: Any) -> CellQuery:
        heard.append(named["change"])
        return design_cell_query(*arguments, **named)

    monkeypatch.setattr("fedperf_server.controllers.reports.design_cell_query", ask)
    asked(database, OPENS[1] + window * TABLE.period.window)
    assert heard == [change]


def test_directed_reports_update_the_correction_and_restart_publishes_the_same(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    for member in group:
        hand_in(database, member, member.plain(SIGMA).report)
    desk = report_desk(database)
    assert look(database, desk) == 2
    plain = published(database)
    (question,) = asked(database, OPENS[1])
    for member in group:
        hand_in(database, member, member.answer(question, SIGMA).report)
    assert look(database, desk) == 4
    directed = published(database)
    assert directed != plain
    assert look(database, desk) is None
    assert look(database, report_desk(database)) == 4
    assert published(database) == directed
    before, after = (variance(each) for each in (plain, directed))
    assert after < before


def test_evidence_excludes_responses_about_another_model(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    (question,) = asked(database, OPENS[1])
    hand_in(database, group[0], group[0].answer(question, SIGMA).report)
    assert evidence(database, TABLE, window=0).reports == 1
    with database.transaction() as session:
        for row in session.query(ModelVersionRow).all():
            row.version = 2
    assert evidence(database, TABLE, window=0).reports == 0


def test_load_query_returns_the_linear_query_of_its_slot(
    database: Database, group: list[Member]
) -> None:
    join(database, group)
    (question,) = asked(database, OPENS[1])
    later = replace(TABLE.period, start=START + TABLE.period.window)
    with database.transaction() as session:
        found = load_query(session, TABLE.period, stage(1))
        assert load_query(session, TABLE.period, stage(2)) is None
        assert load_query(session, later, stage(1)) is None
    assert isinstance(found, CellQuery)
    assert (found.slot, found.version) == (stage(1), question.version)
    np.testing.assert_array_equal(found.design.directions, question.design.directions)


def report_desk(database: Database) -> PublicationController:
    return PublicationController(CATALOGUE, nought)


def nought(checkpoint: bytes) -> PredictLog:
    assert checkpoint
    return lambda entries: np.zeros(len(entries))


def look(database: Database, desk: PublicationController) -> int | None:
    found = desk.run_once(snapshot(database, TABLE, OPENS[1]))
    return found[0].reports if found else None


def published(database: Database) -> bytes:
    with database.transaction() as session:
        correction = registry.published_correction(session)
    assert correction is not None
    return encode_correction(correction)


def variance(payload: bytes) -> float:
    correction = decode_correction(payload)
    assert correction is not None
    return float(np.trace(correction.covariance))
