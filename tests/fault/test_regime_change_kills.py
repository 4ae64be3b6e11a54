"""A coordinator that is killed between any two steps of a change of drift regime.

It must reach the same final state as a coordinator without kills. Three runs are compared:

- one without kills;
- one killed once before each writing transaction, which then stores nothing;
- one killed right after each transaction, before its caller gets the result.

Each kill loses everything that is not in the database.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import select, type_coerce
from sqlalchemy.types import NullType

from fedperf_server.controllers.drift import stored_drifts
from fedperf_server.rehearsal import buffer
from fedperf_server.state import registry
from fedperf_server.state.database import (
    BufferRow,
    Database,
    DatabaseTable,
    EventRow,
    ReceiptRow,
    RegimeTrigger,
    RoundOutcome,
)
from fedperf_server.state.drift_regimes import regimes
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_shared.releases.release import ReleaseKind, SlotKey
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.audit_log import verify_events
from tests.unit.server.controllers.restartable_coordinator import (
    TABLE,
    WINDOWS,
    Organization,
    World,
    founded,
)

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

NOT_COMPARED = {"signature", "chain", "seconds", "at"}
"""Excluded columns: random values, times and values derived from them. So are names in `_at`."""


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = founded(tmp_path_factory.mktemp("untouched") / "server")
    world.live(range(WINDOWS))
    assert world.kills == 0
    return world


def state(database: Database) -> dict[str, Counter[tuple[object, ...]]]:
    """Return all stored rows, without their timestamps."""
    found: dict[str, Counter[tuple[object, ...]]] = {}
    with database.transaction() as session:
        for name, table in DatabaseTable.metadata.tables.items():
            columns = [each for each in table.columns if not _is_when(each.name)]
            if name == ReceiptRow.__tablename__:  # the payload holds a timestamp
                columns = [each for each in columns if each.name != "payload"]
            as_stored = [type_coerce(each, NullType()) for each in columns]
            found[name] = Counter(map(tuple, session.execute(select(*as_stored)).all()))
    return found


def _is_when(column: str) -> bool:
    when = column.endswith("_at") and column not in {"begins_at", "epoch_begins_at"}
    return when or column in NOT_COMPARED


def test_shared_drift_begins_regime_with_extra_rounds_and_new_reference(untouched: World) -> None:
    with untouched.database.transaction() as session:
        (first, second) = regimes(session)
        (seen,) = stored_drifts(session, TABLE.period)
        results = closed_rounds(session, TABLE)
        looked_at = {each.version for each in registry.decisions(session)}
        kept = buffer.rows(session)
    assert (seen.drift.platform, seen.drift.shared, seen.drift.detected_in) == (
        Platform.POLARS,
        True,
        2,
    )
    assert second.begins_at == TABLE.period.window_start(3)
    assert second.cause is RegimeTrigger.SHARED_DRIFT
    held = [(each.slot.window, each.slot.index) for each in results]
    assert held == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0)]
    assert {each.outcome for each in results} == {RoundOutcome.NEW_VERSION}
    # The last version of each window was evaluated, except for the last window.
    assert looked_at == {2, 3, 4, 7}
    assert {row.segment for row in kept} == {Platform.POLARS, Platform.DUCKDB}
    for each in untouched.organizations:
        assert set(each.references.values()) == {first.reference_version, second.reference_version}
        assert each.references[3] == first.reference_version  # refers to the window before
        assert each.references[4] == second.reference_version


def test_rows_of_previous_regime_are_rehearsed_from_first_round_of_the_next(
    untouched: World,
) -> None:
    with untouched.database.transaction() as session:
        kept = len(buffer.rows(session))
    assert untouched.strategy.rows == [0, 0, 0, kept, kept, kept, kept]
    assert kept > 0


def lived(directory: Path, untouched: World, *, before: bool) -> World:
    """Run with a kill at every step. Organizations reuse the draws of the run without kills."""
    world = founded(directory / "server", organizations=untouched.organizations)
    world.fate.before, world.fate.after = before, not before
    world.live(range(WINDOWS))
    return world


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_coordinator_killed_at_every_step_reaches_the_same_state(
    untouched: World, tmp_path: Path, before: bool
) -> None:
    world = lived(tmp_path, untouched, before=before)
    assert world.kills >= untouched.fate.stored
    killed, whole = state(world.database), state(untouched.database)
    for name in whole:
        assert killed[name] == whole[name], name
    with world.database.transaction() as session:
        assert verify_events(session) == session.query(EventRow).count()
        assert session.query(BufferRow).count() == 1
    assert_asked_once(world.organizations)


def assert_asked_once(organizations: Sequence[Organization]) -> None:
    """Every update was requested with one and the same message, as without kills."""
    for each in organizations:
        updates = [slot for slot in each.drawn if slot.kind is ReleaseKind.MODEL_UPDATE]
        assert all(len(each.asked[slot]) == 1 for slot in updates)
        assert SlotKey(ReleaseKind.MODEL_UPDATE, 3, 2) in updates
