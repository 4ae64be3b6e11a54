import hashlib
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.contributions.mechanisms import NoiseSource, noise_alone
from fedperf_client.node.exchange import confirmed
from fedperf_client.release.gate import MalformedReleaseError, Mechanism, ReleaseGate
from fedperf_client.release.ledger import (
    LedgerDisagreesError,
    PrivacyLedger,
    ReleaseState,
    SlotNotDueError,
    SlotNotPlannedError,
    SlotSpentError,
)
from fedperf_client.release.ledger_files import ConfirmedRelease, read_confirmed
from fedperf_client.release.policy import ReleaseMode
from fedperf_client.release.preview import Preview, next_slots, preview
from fedperf_shared.errors import InvalidInputError, PrivacyRefusedError
from fedperf_shared.exchange import Receipt, SignedReceipt
from fedperf_shared.identity import InvalidSignatureError, new_private_key, sign, verify
from fedperf_shared.releases.linear_queries import DIRECTIONS
from fedperf_shared.releases.period import ModelMethod, Period
from fedperf_shared.releases.release import (
    DirectedParameters,
    DirectedReport,
    LinearizedUpdate,
    ModelUpdate,
    NoisySum,
    ReportParameters,
    ResidualReport,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import (
    decode_release,
    decode_signed_receipt,
    encode_receipt,
    encode_signed_receipt,
)
from tests.fakes.cell_queries import DIRECTED
from tests.fakes.coordinator import membership_with
from tests.fakes.empty_reports import empty_report
from tests.fakes.released import release_now
from tests.fakes.residual_reports import residual_report
from tests.unit.client.contributions.seeded_noise import SeededNoise, seeded
from tests.unit.client.release.periods import (
    BUDGET,
    START,
    calendar,
    new_ledger,
    open_at,
    report_key,
    schedule,
    update_key,
)
from tests.unit.shared.console_programs import contents

EARLIER = Period(START - timedelta(days=365), timedelta(days=28), 6)


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return new_private_key()


@pytest.fixture
def ledger(tmp_path: Path) -> PrivacyLedger:
    return new_ledger(tmp_path)


@pytest.fixture
def gate(ledger: PrivacyLedger, key: ec.EllipticCurvePrivateKey) -> ReleaseGate:
    return ReleaseGate(ledger, seeded(), key)


class CountingMechanism:
    """Mechanism that returns an empty report and records the slots for which it is called."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []

    def __call__(self, slot: Slot, noise: NoiseSource) -> NoisySum:
        self.slots.append(slot)
        return empty_report(slot, noise)


def update_of(slot: Slot, noise: NoiseSource) -> NoisySum:
    return noise_alone(noise, slot, version=4)


def test_gate_with_repeated_request_returns_stored_bytes(
    gate: ReleaseGate, ledger: PrivacyLedger, key: ec.EllipticCurvePrivateKey
) -> None:
    mechanism = CountingMechanism()
    first = release_now(gate, report_key(0), mechanism, at=open_at(0))
    again = release_now(gate, report_key(0), mechanism, at=open_at(3))
    other_gate = ReleaseGate(PrivacyLedger.open(ledger.path), seeded(9), key)
    assert first == again == release_now(other_gate, report_key(0), mechanism, at=open_at(4))
    assert len(mechanism.slots) == 1
    assert [entry.state for entry in ledger.entries()] == [ReleaseState.HANDED_OUT]


def test_gate_signs_release_made_with_schedule_parameters(
    gate: ReleaseGate, key: ec.EllipticCurvePrivateKey
) -> None:
    mechanism = CountingMechanism()
    signed = release_now(gate, report_key(2), mechanism, at=open_at(2))
    verify(key.public_key(), signed.payload, signed.signature)
    assert mechanism.slots[0].parameters == ReportParameters(20.0, 1.5)
    report = decode_release(signed.payload)
    assert isinstance(report, ResidualReport)
    assert report.slot == report_key(2)


def test_gate_charges_the_slot_before_noise_is_sampled(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    seen: list[ReleaseState] = []

    def looking(slot: Slot, noise: NoiseSource) -> NoisySum:
        seen.extend(entry.state for entry in PrivacyLedger.open(ledger.path).entries())
        return update_of(slot, noise)

    release_now(gate, update_key(0), looking, at=open_at(0))
    assert seen == [ReleaseState.RESERVED]


def test_gate_with_refused_slot_samples_no_noise(gate: ReleaseGate, ledger: PrivacyLedger) -> None:
    mechanism = CountingMechanism()
    with pytest.raises(SlotNotPlannedError):
        release_now(gate, report_key(77), mechanism, at=open_at(0))
    with pytest.raises(SlotNotDueError):
        release_now(gate, report_key(0), mechanism, at=START)
    assert mechanism.slots == []
    assert ledger.entries() == ()


def test_gate_with_failing_mechanism_spends_slot_and_releases_nothing(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    def failing(slot: Slot, noise: NoiseSource) -> NoisySum:
        raise MalformedReleaseError("broken")

    with pytest.raises(MalformedReleaseError):
        release_now(gate, report_key(0), failing, at=open_at(0))
    with pytest.raises(SlotSpentError):
        release_now(gate, report_key(0), CountingMechanism(), at=open_at(0))
    assert ledger.stored(report_key(0)) is None
    assert ledger.spent(open_at(0)) > 0


def _of_another_slot(slot: Slot, noise: NoiseSource) -> NoisySum:
    assert isinstance(slot.parameters, ReportParameters)
    return residual_report(
        [], noise, slot=report_key(5), parameters=slot.parameters, reference_version=0
    )


def _of_another_kind(slot: Slot, noise: NoiseSource) -> NoisySum:
    return LinearizedUpdate(slot.key, 4, -20, noise.discrete_gaussian(DIRECTIONS, 5.0))


def _a_directed_one(slot: Slot, noise: NoiseSource) -> NoisySum:
    return DirectedReport(slot.key, 1, -20, noise.discrete_gaussian(16, 5.0))


def _too_short(slot: Slot, noise: NoiseSource) -> NoisySum:
    return ResidualReport(slot.key, 1, 0, -20, noise.discrete_gaussian(3, 5.0))


@pytest.mark.parametrize(
    "mechanism", [_of_another_slot, _of_another_kind, _a_directed_one, _too_short]
)
def test_gate_refuses_release_of_another_slot_kind_or_size(
    gate: ReleaseGate, ledger: PrivacyLedger, mechanism: Mechanism
) -> None:
    with pytest.raises(MalformedReleaseError):
        release_now(gate, report_key(0), mechanism, at=open_at(0))
    assert ledger.stored(report_key(0)) is None


@pytest.fixture
def staged(tmp_path: Path) -> PrivacyLedger:
    slots = (
        Slot(report_key(0), ReportParameters(20.0, 3.0)),
        Slot(DIRECTED, DirectedParameters(20.0, 60.0)),
    )
    return PrivacyLedger.create(
        tmp_path / "ledger.sqlite", BUDGET, Schedule(calendar(2, reports=2), slots)
    )


def test_gate_releases_sixteen_values_for_a_directed_slot(
    staged: PrivacyLedger, key: ec.EllipticCurvePrivateKey
) -> None:
    gate = ReleaseGate(staged, seeded(), key)
    at = staged.schedule.opens_at(DIRECTED)
    shown = preview_of(staged, DIRECTED, empty_report)
    signed = release_now(gate, DIRECTED, empty_report, at=at)
    report = decode_release(signed.payload)
    assert isinstance(report, DirectedReport)
    assert report.values.shape == (16,)
    assert len(signed.payload) == shown.payload_bytes
    assert shown.slot.parameters.noise_multiplier == 20.0
    assert shown.schema[1] == "values: 16 noisy integers"
    assert shown.epsilon == preview_of(staged, report_key(0), empty_report).epsilon


@pytest.mark.parametrize("size", [15, 17, 192])
def test_gate_refuses_directed_report_of_another_size(
    staged: PrivacyLedger, key: ec.EllipticCurvePrivateKey, size: int
) -> None:
    def wrong(slot: Slot, noise: NoiseSource) -> NoisySum:
        return DirectedReport(slot.key, 1, -20, noise.discrete_gaussian(size, 5.0))

    gate = ReleaseGate(staged, seeded(), key)
    with pytest.raises(MalformedReleaseError, match="16 int64 values"):
        release_now(gate, DIRECTED, wrong, at=staged.schedule.opens_at(DIRECTED))


def test_gate_refuses_dp_sgd_update(tmp_path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    def made(slot: Slot, noise: NoiseSource) -> ModelUpdate:
        del noise
        return ModelUpdate(slot.key, 1, 4, (np.zeros(2, np.float32),))

    ledger = new_ledger(tmp_path, method=ModelMethod.UNSPECIFIED)
    with pytest.raises(MalformedReleaseError, match="does not leave"):
        release_now(
            ReleaseGate(ledger, seeded(), key),
            update_key(0),
            made,  # type: ignore[arg-type]  # a release kind of an older version
            at=open_at(0),
        )
    assert ledger.stored(update_key(0)) is None


@pytest.mark.parametrize("width", [DIRECTIONS - 1, 0])
def test_gate_refuses_linearized_update_of_another_size_or_kind(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey, width: int
) -> None:
    def wrong(slot: Slot, noise: NoiseSource) -> NoisySum:
        return LinearizedUpdate(slot.key, 1, -20, noise.discrete_gaussian(width, 5.0))

    def other_kind(slot: Slot, noise: NoiseSource) -> NoisySum:
        return DirectedReport(slot.key, 1, -20, noise.discrete_gaussian(DIRECTIONS, 5.0))

    ledger = new_ledger(tmp_path)
    with pytest.raises(MalformedReleaseError, match="256 int64 values"):
        release_now(ReleaseGate(ledger, seeded(), key), update_key(0), wrong, at=open_at(0))
    with pytest.raises(MalformedReleaseError, match="made a release"):
        release_now(ReleaseGate(ledger, seeded(), key), update_key(1), other_kind, at=open_at(1))


def preview_of(ledger: PrivacyLedger, key: SlotKey, make_public: Mechanism) -> Preview:
    return preview(
        ledger.schedule,
        ledger.budget,
        key,
        charged={entry.key for entry in ledger.entries()},
        make_public=make_public,
        noise=SeededNoise(4),
    )


def test_preview_charges_nothing_and_has_the_size_of_the_release(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    release_now(gate, report_key(0), CountingMechanism(), at=open_at(0))
    before = contents(ledger.path.parent)
    shown = preview_of(ledger, report_key(1), empty_report)
    assert contents(ledger.path.parent) == before
    released = release_now(gate, report_key(1), CountingMechanism(), at=open_at(1))
    assert shown.payload_bytes == len(released.payload)
    assert shown.slot.parameters.noise_multiplier == 20.0
    assert shown.spent_after == ledger.spent(open_at(1)) > shown.spent > 0
    assert shown.replace_one_epsilon > shown.epsilon > shown.spent_after - shown.spent > 0
    assert "192 noisy integers" in shown.schema[1]


def test_preview_of_update_states_count_of_values_and_noise(ledger: PrivacyLedger) -> None:
    shown = preview_of(ledger, update_key(1), update_of)
    assert shown.schema[1:] == (f"values: {DIRECTIONS} noisy integers",)
    assert shown.slot.parameters.noise_multiplier == 40.0
    with pytest.raises(SlotNotPlannedError):
        preview_of(ledger, update_key(9), update_of)
    with pytest.raises(PrivacyRefusedError, match="no report"):
        preview_of(ledger, update_key(1), empty_report)


def test_next_slots_are_one_of_each_kind_that_can_still_be_released(ledger: PrivacyLedger) -> None:
    def upcoming(*charged: SlotKey, at: datetime) -> set[SlotKey]:
        return set(next_slots(ledger.schedule, charged=charged, at=at))

    assert upcoming(at=START) == {update_key(0), report_key(0)}
    assert upcoming(report_key(0), at=open_at(0)) == {update_key(1), report_key(1)}
    assert upcoming(at=ledger.schedule.calendar.period.end) == set()
    old = schedule(method=ModelMethod.UNSPECIFIED)
    assert next_slots(old, charged=(), at=START) == (report_key(0),)


COORDINATOR = new_private_key()
MEMBERSHIP = membership_with(COORDINATOR)


def receipt_of(
    payload: bytes,
    *,
    signer: ec.EllipticCurvePrivateKey = COORDINATOR,
    key: SlotKey | None = None,
    **changes: object,
) -> bytes:
    values: dict[str, object] = {
        "organization_id": MEMBERSHIP.organization_id,
        "release_id": (key or report_key(0)).release_id(calendar().period),
        "payload_sha256": hashlib.sha256(payload).digest(),
        "sequence": 1,
        "received_at": open_at(0),
    }
    content = encode_receipt(Receipt(**{**values, **changes}))  # type: ignore[arg-type]
    return encode_signed_receipt(SignedReceipt(content, sign(signer, content)))


def stored_receipt(
    ledger: PrivacyLedger, signed: bytes, *, key: SlotKey | None = None
) -> ConfirmedRelease:
    release = confirmed(decode_signed_receipt(signed), MEMBERSHIP)
    ledger.confirm(release, key=key)
    return release


def test_ledger_stores_receipt_only_with_coordinator_signature(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    released = release_now(gate, report_key(0), CountingMechanism(), at=open_at(0)).payload
    with pytest.raises(InvalidSignatureError):
        stored_receipt(ledger, receipt_of(released, signer=new_private_key()))
    with pytest.raises(InvalidInputError, match="sequence from 1"):
        stored_receipt(ledger, receipt_of(released, sequence=0))
    assert read_confirmed(ledger.path) is None
    kept = stored_receipt(ledger, receipt_of(released))
    assert read_confirmed(ledger.path) == kept
    assert ledger.disagreement() is None
    with pytest.raises(LedgerDisagreesError):
        stored_receipt(ledger, receipt_of(b"other"))
    assert ledger.disagreement() is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signer": new_private_key()}, "signature"),
        ({"organization_id": b"\2" * 16}, "another organization"),
        ({"organization_id": b""}, "another organization"),
        ({"key": report_key(99)}, "another slot or period"),
        ({"release_id": report_key(0).release_id(EARLIER)}, "another slot or period"),
        ({"key": report_key(1)}, "another slot or period"),
    ],
)
def test_receipt_of_another_signer_organization_period_or_slot_is_refused(
    ledger: PrivacyLedger, changes: dict[str, object], message: str
) -> None:
    before = contents(ledger.path.parent)
    signed = receipt_of(b"never drawn here", **changes)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=message):
        stored_receipt(ledger, signed, key=report_key(0))
    assert contents(ledger.path.parent) == before


def test_receipt_for_unrecorded_release_blocks_sealed_and_new_releases(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    gate.seal(report_key(0), CountingMechanism(), at=open_at(0), mode=ReleaseMode.AUTO)
    with pytest.raises(LedgerDisagreesError, match="fedperf reconcile"):
        stored_receipt(ledger, receipt_of(b"drawn before", key=update_key(0)))
    mechanism = CountingMechanism()
    with pytest.raises(LedgerDisagreesError, match="does not hold"):
        gate.dispatch(report_key(0), at=open_at(0), mode=ReleaseMode.AUTO)
    with pytest.raises(LedgerDisagreesError):
        release_now(gate, report_key(1), mechanism, at=open_at(1))
    assert mechanism.slots == []


def test_release_sealed_before_reconciliation_is_never_sent(
    gate: ReleaseGate, ledger: PrivacyLedger
) -> None:
    """Noise may have been sampled for its slot before.

    A release that was already sent is settled and may be sent again.
    """
    release_now(gate, report_key(0), CountingMechanism(), at=open_at(0))
    gate.seal(update_key(0), update_of, at=open_at(0), mode=ReleaseMode.AUTO)
    with pytest.raises(LedgerDisagreesError):
        stored_receipt(ledger, receipt_of(b"drawn before"))
    ledger.reconcile(open_at(0))
    with pytest.raises(SlotSpentError):
        gate.dispatch(update_key(0), at=open_at(0), mode=ReleaseMode.AUTO)
    gate.dispatch(report_key(0), at=open_at(0), mode=ReleaseMode.AUTO)
    release_now(gate, report_key(1), CountingMechanism(), at=open_at(1))
