"""The Exchange service over real sockets: storage, retrieval and refusals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from fedperf_client.node.exchange import (
    ClockSkewError,
    ExchangeClient,
    RefusedByCoordinatorError,
    read_receipt,
)
from fedperf_server.app.process import system_clock
from fedperf_server.membership.authority import SIGNING, KeyRing
from fedperf_server.state import registry, releases
from fedperf_server.state.database import PromotionRecord, RegimeRow, RegimeTrigger, VersionStatus
from fedperf_server.state.drift_regimes import declare
from fedperf_shared.exchange import Correction, SyntheticRow
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.identity import InvalidSignatureError, new_private_key
from fedperf_shared.releases import basis
from fedperf_shared.releases.period import ReleaseCalendar, from_unix_ms, to_unix_ms
from fedperf_shared.releases.release import (
    ReleaseKind,
    ReportParameters,
    ResidualReport,
    Schedule,
    SignedRelease,
    Slot,
    SlotKey,
)
from fedperf_shared.wire import codec
from fedperf_shared.workflow.vocabulary import Platform
from tests.fakes.coordinator import membership_with
from tests.fakes.plans import diamond
from tests.integration.federation.small_federation import (
    SHAPES,
    Organization,
    SmallFormat,
    World,
    admit,
    calendar,
    full_schedule,
    new_server,
    world,
)

FIRST = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Scene:
    server: World
    acme: Organization
    table: ReleaseCalendar


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    table = calendar()
    with world(new_server(tmp_path / "server", table)) as server:
        acme = admit(tmp_path, server.invite("Acme"), "acme", None)
        yield Scene(server, acme, table)


@pytest.fixture
def exchange(scene: Scene) -> Iterator[ExchangeClient]:
    with scene.acme.exchange() as client:
        yield client


def report(**changes: object) -> ResidualReport:
    values = np.zeros(2 * basis.CELLS, dtype=np.int64)
    plain = ResidualReport(FIRST, basis.BASIS_VERSION, 1, -20, values)
    return replace(plain, **changes)  # type: ignore[arg-type]  # tests name real fields


def hand_in(
    exchange: ExchangeClient, organization: Organization, content: ResidualReport
) -> SignedRelease:
    signed = organization.sign(codec.encode_release(content))
    exchange.submit(signed)
    return signed


def test_exchange_status_and_calendar_match_the_server(
    scene: Scene, exchange: ExchangeClient
) -> None:
    status = exchange.check_clock(system_clock())
    assert (status.model_version, status.basis_version) == (1, basis.BASIS_VERSION)
    assert status.reference_version == 1
    assert exchange.calendar() == scene.table


def test_exchange_clock_check_names_skew_and_direction(exchange: ExchangeClient) -> None:
    with pytest.raises(ClockSkewError, match=r"clock is \d+ s ahead of the coordinator's"):
        exchange.check_clock(system_clock() + timedelta(seconds=301))
    with pytest.raises(ClockSkewError, match="behind"):
        exchange.check_clock(system_clock() - timedelta(seconds=302))


def test_exchange_accepts_one_schedule_and_refuses_another(
    scene: Scene, exchange: ExchangeClient
) -> None:
    schedule = full_schedule(scene.table)
    exchange.declare_schedule(schedule)
    exchange.declare_schedule(schedule)
    with pytest.raises(RefusedByCoordinatorError, match="other_schedule_declared"):
        exchange.declare_schedule(Schedule(scene.table, schedule.slots[:1]))
    other = calendar(windows=3, start=scene.table.period.start)
    with pytest.raises(RefusedByCoordinatorError, match="other_timetable"):
        exchange.declare_schedule(full_schedule(other))
    with scene.server.database.transaction() as session:
        stored = releases.declared_schedule(
            session, scene.acme.membership.organization_id, scene.table.period
        )
    assert stored == schedule


def test_declared_schedule_with_unusable_numbers_is_refused_with_allowed_range(
    scene: Scene, exchange: ExchangeClient
) -> None:
    for parameters, allowed in (
        (ReportParameters(1e-170, 1.0), "noise_multiplier must be 0.001 to 1e+06"),
        (ReportParameters(1.0, 1e6), "residual_clip must be 0.01 to 10"),
    ):
        with pytest.raises(RefusedByCoordinatorError) as refused:
            exchange.declare_schedule(Schedule(scene.table, (Slot(FIRST, parameters),)))
        assert refused.value.code == f"not_declarable: {allowed}"
    exchange.declare_schedule(full_schedule(scene.table))


def test_report_submitted_twice_gets_the_same_receipt(
    scene: Scene, exchange: ExchangeClient
) -> None:
    exchange.declare_schedule(full_schedule(scene.table))
    signed = scene.acme.sign(codec.encode_release(report()))
    receipt = exchange.submit(signed)
    assert exchange.submit(signed) == receipt
    assert receipt.sequence == 1
    assert receipt.release_id == FIRST.release_id(scene.table.period)
    read = read_receipt(receipt.signed, scene.acme.membership)
    assert read.organization_id == scene.acme.membership.organization_id
    assert (read.release_id, read.sequence) == (receipt.release_id, receipt.sequence)
    with pytest.raises(InvalidSignatureError):
        read_receipt(receipt.signed, membership_with(new_private_key()))
    with scene.server.database.transaction() as session:
        (stored,) = releases.stored_reports(session, scene.table.period).values()
    assert stored.organization == scene.acme.membership.organization_id.hex()
    assert stored.report.slot == FIRST


def test_other_bytes_for_a_slot_are_counted_and_get_the_first_receipt(
    scene: Scene, exchange: ExchangeClient
) -> None:
    exchange.declare_schedule(full_schedule(scene.table))
    first = exchange.submit(scene.acme.sign(codec.encode_release(report())))
    values = np.zeros(2 * basis.CELLS, dtype=np.int64)
    values[0] = 1
    other = scene.acme.sign(codec.encode_release(report(values=values)))
    assert exchange.submit(other) == first
    with scene.server.database.transaction() as session:
        (stored,) = releases.stored_reports(session, scene.table.period).values()
        counted = releases.rejections(session)
    assert not stored.report.values.any()
    own = scene.acme.membership.organization_id
    assert counted == {(own, "report", "different_bytes"): 1}


def test_exchange_returns_only_own_receipts_of_the_period(
    scene: Scene, exchange: ExchangeClient, tmp_path: Path
) -> None:
    assert exchange.receipts() == ()
    exchange.declare_schedule(full_schedule(scene.table))
    first = exchange.submit(scene.acme.sign(codec.encode_release(report())))
    own = scene.acme.membership.organization_id
    update = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0).release_id(scene.table.period)
    earlier = FIRST.release_id(calendar(start=scene.table.period.start - YEAR).period)
    with scene.server.database.transaction() as session:
        for release_id in (earlier, update):
            releases.give_receipt(
                session,
                own,
                release_id,
                SignedRelease(b"taken", b""),
                key=KeyRing(scene.server.config.directory).key(SIGNING),
                at=system_clock(),
            )
    newest, again = exchange.receipts()
    assert (newest.release_id, newest.sequence) == (update, 3)
    assert again == first
    other = admit(tmp_path, scene.server.invite("Other"), "other", full_schedule(scene.table))
    with other.exchange() as client:
        assert client.receipts() == ()


def test_exchange_refuses_bad_reports_and_counts_each_reason(
    scene: Scene, exchange: ExchangeClient
) -> None:
    with pytest.raises(RefusedByCoordinatorError, match="no_schedule"):
        hand_in(exchange, scene.acme, report())
    exchange.declare_schedule(full_schedule(scene.table))
    with pytest.raises(RefusedByCoordinatorError, match="size"):
        hand_in(exchange, scene.acme, report(values=np.zeros(3, dtype=np.int64)))
    with pytest.raises(RefusedByCoordinatorError, match="malformed"):
        exchange.submit(scene.acme.sign(b"\xff\xff"))
    stranger = replace(scene.acme, key=new_private_key())
    with pytest.raises(RefusedByCoordinatorError, match="signature"):
        exchange.submit(stranger.sign(codec.encode_release(report())))
    with scene.server.database.transaction() as session:
        counted = releases.rejections(session)
        assert releases.stored_reports(session, scene.table.period) == {}
    assert {key[2]: count for key, count in counted.items()} == {
        "no_schedule": 1,
        "size": 1,
        "malformed": 1,
        "signature": 1,
    }


def test_exchange_status_has_correction_time_and_loads_no_checkpoint(
    scene: Scene, exchange: ExchangeClient
) -> None:
    asked: list[str] = []

    def seen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", seen)
    assert exchange.status().correction_published is None
    at = system_clock()
    with scene.server.database.transaction() as session:
        registry.publish_correction(session, Correction(1, 1, np.arange(3.0), np.eye(3)), at=at)
    asked.clear()
    assert exchange.status().correction_published == from_unix_ms(to_unix_ms(at))
    assert any("FROM model_version" in statement for statement in asked)
    assert not any(word in statement for statement in asked for word in ("checkpoint", "payload"))
    event.remove(Engine, "before_cursor_execute", seen)


def test_published_correction_and_synthetic_rows_can_be_fetched(
    scene: Scene, exchange: ExchangeClient
) -> None:
    assert exchange.correction() is None
    assert exchange.synthetic_rows() == ()
    mean, covariance = np.arange(3.0), np.eye(3)
    row = SyntheticRow(diamond(), ClusterConfig(1, 2, 1 << 30), 0.5, Platform.DUCKDB)
    with scene.server.database.transaction() as session:
        published = Correction(1, 1, mean, covariance)
        registry.publish_correction(session, published, at=system_clock())
        registry.publish_synthetic_rows(session, [row], at=system_clock())
    correction = exchange.correction()
    assert correction is not None
    np.testing.assert_array_equal(correction.mean, mean)
    np.testing.assert_array_equal(correction.covariance, covariance)
    (fetched,) = exchange.synthetic_rows()
    assert fetched == row


def test_exchange_serves_newest_promoted_model_or_a_requested_version(
    scene: Scene, exchange: ExchangeClient
) -> None:
    assert exchange.model().version == 1
    arrays = [np.zeros(shape, dtype=np.float32) for shape in SHAPES]
    with scene.server.database.transaction() as session:
        registry.add_version(session, SmallFormat(), arrays, at=system_clock())
    assert exchange.model().version == 1
    assert exchange.model(2).version == 2
    with scene.server.database.transaction() as session:
        good = PromotionRecord(
            version=2,
            status=VersionStatus.PROMOTED,
            reason="good",
            by_segment={},
            decided_at=system_clock(),
        )
        registry.decide(session, good)
    assert exchange.model().version == 2
    assert (exchange.status().model_version, exchange.status().reference_version) == (2, 1)
    with pytest.raises(RefusedByCoordinatorError, match="no_such_version"):
        exchange.model(9)


def test_exchange_status_lists_regime_at_once_and_its_reference_a_window_later(
    scene: Scene, exchange: ExchangeClient
) -> None:
    period = scene.table.period
    before = period.start - 2 * period.window
    arrays = [np.zeros(shape, dtype=np.float32) for shape in SHAPES]
    with scene.server.database.transaction() as session:
        registry.add_version(session, SmallFormat(), arrays, at=before, promoted=True)
        assert declare(session, period, RegimeTrigger.DECLARED, at=before).reference_version == 2
    status = exchange.status()
    assert (status.regime_starts, status.reference_version) == ((period.start,), 1)
    with scene.server.database.transaction() as session:
        row = session.query(RegimeRow).one()
        row.begins_at = period.start - period.window
    assert exchange.status().reference_version == 2
