"""The journal: append-only records before and after each trial, for one campaign and process."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedperf_campaigns.campaign.journal import (
    ComponentSpan,
    Journal,
    ResourceUse,
    TrialHistory,
    TrialKey,
    TrialOutcome,
    TrialStatus,
)
from fedperf_shared.errors import StorageError
from fedperf_shared.runtime.process import InUseError
from tests.unit.client.profiling.campaign.campaigns import MACHINE

NOW = datetime(2027, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
KEY = TrialKey(3, "whole", 0)
OUTCOME = TrialOutcome(
    TrialStatus.NOISY,
    "others \ud800 kept 2 cores busy",
    1.5,
    0.25,
    ResourceUse(1.25, 1 << 40, 5, 6, 7),
    (
        ComponentSpan("a", 0.0, 0.5, ResourceUse(0.5)),
        ComponentSpan("b", 0.5, 1.5, ResourceUse(), 0.25, 0.75),
    ),
    *(2.0, 0.0, 1.0, 1.5),
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "campaigns" / "j.sqlite", "a" * 64) as journal:
        yield journal


def begin(journal: Journal, key: TrialKey = KEY, attempt: int = 0) -> int:
    session = journal.begin_session(MACHINE, boot="b", at=NOW)
    return journal.begin(
        key, session=session, attempt=attempt, is_cold=True, token=f"t{attempt}", at=NOW
    )


def test_journal_restores_stored_trials(journal: Journal) -> None:
    number = begin(journal)
    (started,) = journal.trials()
    assert started.outcome is None
    journal.end(number, OUTCOME, at=NOW + timedelta(seconds=2))
    (trial,) = journal.trials()
    assert (trial.key, trial.attempt, trial.is_cold) == (KEY, 0, True)
    assert (trial.started, trial.ended) == (NOW, NOW + timedelta(seconds=2))
    assert trial.outcome is not None
    assert trial.outcome.reason == "others ? kept 2 cores busy"
    assert trial.outcome.spans == OUTCOME.spans
    assert trial.outcome.resources == OUTCOME.resources
    assert journal.sessions()[0].machine == MACHINE


def test_journal_stores_each_attempt_once(journal: Journal) -> None:
    number = begin(journal)
    with pytest.raises(StorageError):
        begin(journal)
    journal.end(number, OUTCOME, at=NOW)
    with pytest.raises(StorageError):
        journal.end(number, OUTCOME, at=NOW)
    with pytest.raises(StorageError):
        journal.end(number + 1, OUTCOME, at=NOW)


@pytest.mark.parametrize("table", ["campaign", "session", "started", "ended"])
def test_journal_is_append_only(journal: Journal, tmp_path: Path, table: str) -> None:
    journal.end(begin(journal), OUTCOME, at=NOW)
    other = sqlite3.connect(tmp_path / "campaigns" / "j.sqlite")
    column = {"campaign": "campaign_id", "session": "boot"}.get(table, "number")
    for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = {column}"):  # noqa: S608
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(statement)
    other.close()


def test_journal_is_locked_by_one_process_at_a_time(journal: Journal, tmp_path: Path) -> None:
    with (
        journal.locked(),
        Journal.open(tmp_path / "campaigns" / "j.sqlite", "a" * 64) as other,
        pytest.raises(InUseError),
        other.locked(),
    ):
        pass
    with journal.locked():
        pass


def test_journal_of_another_campaign_or_format_is_refused(journal: Journal, tmp_path: Path) -> None:
    del journal
    with pytest.raises(StorageError, match="another campaign"):
        Journal.open(tmp_path / "campaigns" / "j.sqlite", "b" * 64)
    (tmp_path / "text.sqlite").write_text("hello" * 1000)
    with pytest.raises(StorageError, match="not a store"):
        Journal.open(tmp_path / "text.sqlite", "a" * 64)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (a)").connection.close()
    with pytest.raises(StorageError, match="not a journal"):
        Journal.open(tmp_path / "other.sqlite", "a" * 64)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        Journal.open(tmp_path / "file" / "j.sqlite", "a" * 64)


def test_trial_lost_in_flight_is_unsettled_and_uses_no_retry(journal: Journal) -> None:
    begin(journal)
    history = TrialHistory(journal.trials(), retries=0)
    assert not history.is_settled(KEY)
    assert history.attempts(KEY) == 1
    assert history.spent_trials == 0
    assert not history.is_cold(KEY, "b")
    assert history.is_cold(KEY, "another boot")
    assert history.is_cold(TrialKey(3, "a", 0), "b")
    journal.end(begin(journal, attempt=1), OUTCOME, at=NOW)
    assert TrialHistory(journal.trials(), retries=0).is_settled(KEY)
    assert not TrialHistory(journal.trials(), retries=1).is_settled(KEY)
