"""Tests of the database, the audit log, the model registry and the keys on disk."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import delete, update

from fedperf_server.membership.authority import CA, KeyRing, init
from fedperf_server.state import registry
from fedperf_server.state.database import (
    Database,
    DatabaseError,
    EventRow,
    ModelVersionRow,
    PromotionRecord,
    VersionStatus,
    record_event,
)
from fedperf_server.state.registry import GgfnFormat, UnknownVersionError
from fedperf_shared.errors import ConfigurationError
from tests.fakes.audit_log import AuditBrokenError, verify_events

NOW = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:///{tmp_path / 'test.sqlite'}")


def events(database: Database) -> None:
    with database.transaction() as session:
        for number in range(4):
            record_event(session, "test", at=NOW, number=number)


def test_database_transaction_that_fails_stores_no_events(database: Database) -> None:
    def half_done() -> None:
        with database.transaction() as session:
            record_event(session, "test", at=NOW)
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        half_done()
    with database.transaction() as session:
        assert verify_events(session) == 0


def test_audit_log_without_changes_verifies(database: Database) -> None:
    events(database)
    with database.transaction() as session:
        assert verify_events(session) == 4


def test_audit_log_with_changed_or_removed_entry_fails_verification(database: Database) -> None:
    events(database)
    with database.transaction() as session:
        session.execute(update(EventRow).where(EventRow.event_id == 2).values(detail="{}"))
    with database.transaction() as session, pytest.raises(AuditBrokenError, match="entry 2"):
        verify_events(session)
    with database.transaction() as session:
        session.execute(delete(EventRow).where(EventRow.event_id == 2))
    with database.transaction() as session, pytest.raises(AuditBrokenError, match="entry 3"):
        verify_events(session)


@pytest.mark.parametrize("url", ["nonsense", "sqlite:////no/such/folder/x.sqlite", "oracle7://x/y"])
def test_database_with_unusable_url_raises_one_line_error(url: str) -> None:
    with pytest.raises(DatabaseError) as error:
        Database(url)
    assert "\n" not in str(error.value)


def promoted(version: int) -> PromotionRecord:
    return PromotionRecord(
        version=version, status=VersionStatus.PROMOTED, reason="good", by_segment={}, decided_at=NOW
    )


def test_model_registry_numbers_versions_from_one_and_stores_their_arrays(
    database: Database,
) -> None:
    model_format = GgfnFormat()
    random = np.random.default_rng(1)
    arrays = [random.normal(size=shape).astype(np.float32) for shape in model_format.shapes]
    with database.transaction() as session:
        with pytest.raises(UnknownVersionError):
            registry.get_version(session, 0)
        with pytest.raises(UnknownVersionError):
            registry.first_promoted(session)
        first = registry.add_version(session, model_format, arrays, at=NOW, promoted=True)
        second = registry.add_version(session, model_format, arrays, at=NOW, public_error=1.5)
    assert (first, second) == (1, 2)
    with database.transaction() as session:
        assert registry.get_version(session, 0).version == 1
        newest = registry.get_version(session, 2)
        assert (newest.version, newest.promoted, newest.public_error) == (2, False, 1.5)
        assert registry.version_numbers(session) == {1, 2}
        registry.decide(session, promoted(2))
        assert registry.get_version(session, 0).version == 2
        assert registry.first_promoted(session) == 1
        with pytest.raises(UnknownVersionError):
            registry.decide(session, promoted(3))
        assert session.get_one(ModelVersionRow, 2).promoted_at is not None
    for stored, given in zip(model_format.decode(newest.checkpoint), arrays, strict=True):
        np.testing.assert_array_equal(stored, given)


def test_key_ring_files_are_private_and_never_overwritten(tmp_path: Path) -> None:
    ring = init(tmp_path / "server", "localhost", now=NOW)
    assert stat.S_IMODE(ring.key_path(CA).stat().st_mode) == 0o600
    before = ring.key_pem(CA)
    with pytest.raises(ConfigurationError, match="exists already"):
        init(tmp_path / "server", "localhost", now=NOW + timedelta(days=1))
    assert ring.key_pem(CA) == before
    with pytest.raises(ConfigurationError, match="restore it from a backup"):
        KeyRing(tmp_path).key(CA)
