"""Tests of the publication controller: its corrections and its counts of releases."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.orm import Session

from fedperf_server.controllers.reports import (
    SYNTHETIC_ROWS,
    PublicationController,
    PublicationCounts,
    count_releases,
)
from fedperf_server.rehearsal.synthetic_batch import PredictLog
from fedperf_server.state import registry, releases
from fedperf_server.state.database import Database, Member
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.validation import Reason
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.release import (
    ReleaseKind,
    ReportParameters,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import encode_release
from tests.fakes.snapshots import snapshot
from tests.unit.client.prediction.synthetic import draw_questions
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.client.release.periods import calendar
from tests.unit.server.controllers.simulated_reports import simulated_report

AT = datetime(2027, 1, 20, tzinfo=UTC)
SLOTS_WINDOWS = 4
TABLE = calendar(SLOTS_WINDOWS)
PARAMETERS = ReportParameters(1.4, 3.0)
CATALOGUE = [
    MeasuredPlan(question.plan, question.cluster, 0.0)
    for question in draw_questions(np.random.default_rng(3), 60)
]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.sqlite'}")
    with database.transaction() as session:
        for version in range(2):
            arrays = [*seeded_checkpoint(version).arrays.values()]
            registry.add_version(session, GgfnFormat(), arrays, at=AT, promoted=version == 0)
    yield database
    database.close()


def desk(database: Database) -> PublicationController:
    return PublicationController(CATALOGUE, predict_nought)


def look(database: Database, watching: PublicationController) -> PublicationCounts | None:
    found = watching.run_once(snapshot(database, TABLE, AT))
    return found[0] if found else None


def predict_nought(checkpoint: bytes) -> PredictLog:
    assert checkpoint
    return lambda entries: np.zeros(len(entries))


def hand_in(
    database: Database, organization: bytes, window: int = 0, *, reference_version: int = 1
) -> None:
    """Store an accepted report of predictions that are half a log second too short everywhere."""
    key = new_private_key()
    content = simulated_report(np.random.default_rng([window, *organization]), np.full(CELLS, 0.5))
    slot = SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0)
    report = replace(content.report, slot=slot, reference_version=reference_version)
    payload = encode_release(report)
    signed = SignedRelease(payload, sign(key, payload))
    with database.transaction() as session:
        admit(session, organization)
        releases.store_report(
            session,
            organization,
            report,
            signed,
            reference_version=reference_version,
            period=TABLE.period,
            at=AT,
        )
        releases.give_receipt(
            session, organization, slot.release_id(TABLE.period), signed, key=key, at=AT
        )


def admit(session: Session, organization: bytes) -> None:
    if session.get(Member, organization) is None:
        session.add(
            Member(
                organization_id=organization,
                name=organization.hex(),
                public_key=new_private_key().public_key(),
                joined_at=AT,
                revoked_at=None,
            )
        )
        session.flush()
    slots = tuple(
        Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0), PARAMETERS)
        for window in range(SLOTS_WINDOWS)
    )
    releases.declare_schedule(session, organization, Schedule(TABLE, slots), at=AT)


def test_publication_without_reports_publishes_no_correction(database: Database) -> None:
    assert look(database, desk(database)) is None
    with database.transaction() as session:
        assert registry.published_correction(session) is None


def test_publication_turns_reports_into_correction_and_synthetic_rows(database: Database) -> None:
    hand_in(database, b"1")
    hand_in(database, b"2")
    watching = desk(database)
    published = look(database, watching)
    assert published is not None
    assert (published.reports, published.organizations) == (2, 2)
    assert look(database, watching) is None
    with database.transaction() as session:
        correction = registry.published_correction(session)
        rows = registry.published_rows(session)
    assert correction is not None
    assert correction.reference_version == 1
    assert 0.2 < float(np.mean(correction.mean[:20])) < 0.7
    assert len(rows) == published.rows <= SYNTHETIC_ROWS
    assert len(rows) > 0


def test_publication_after_restart_is_identical_and_adds_new_reports(database: Database) -> None:
    hand_in(database, b"1")
    look(database, desk(database))
    with database.transaction() as session:
        before = registry.published_correction(session)
    again = desk(database)
    assert look(database, again) is not None
    with database.transaction() as session:
        after = registry.published_correction(session)
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.covariance, before.covariance)
    hand_in(database, b"1", window=1)
    published = look(database, again)
    assert published is not None
    assert (published.reports, published.organizations) == (2, 1)


def test_publication_excludes_reports_about_another_reference_model(database: Database) -> None:
    hand_in(database, b"1", reference_version=2)
    assert look(database, desk(database)) is None
    with database.transaction() as session:
        assert registry.published_correction(session) is None


def test_count_releases_counts_accepted_and_refused_by_organization(database: Database) -> None:
    hand_in(database, b"1")
    hand_in(database, b"1", window=1)
    with database.transaction() as session:
        releases.count_rejection(session, b"1", "report", Reason.SIZE)
        releases.count_rejection(session, b"2", "model_update", Reason.NORM)
        found = count_releases(session)
    assert (found[b"1"].accepted, found[b"1"].refused) == (2, {"report/size": 1})
    assert (found[b"2"].accepted, found[b"2"].refused) == (0, {"model_update/norm": 1})
    assert found[b"nobody"].refused == {}
