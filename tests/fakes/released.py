"""A release that is sealed and sent at once."""

from datetime import datetime

from fedperf_client.release.gate import Mechanism, ReleaseGate
from fedperf_client.release.policy import ReleaseMode
from fedperf_shared.releases.release import SignedRelease, SlotKey


def release_now(gate: ReleaseGate, key: SlotKey, make: Mechanism, *, at: datetime) -> SignedRelease:
    """Seal and dispatch, for a kind that needs no approval."""
    gate.seal(key, make, at=at, mode=ReleaseMode.AUTO)
    return gate.dispatch(key, at=at, mode=ReleaseMode.AUTO)
