"""Kill releasing processes at random times and check the files they leave: `--kills 1000`.

A child process creates or opens a ledger. It takes slot after slot through reserve, draw, seal,
send and receipt, with the real gate, ledger and noise (reports, no torch). It logs the releases
that it draws and sends to its own files and syncs each line before the next step. The parent
kills it with SIGKILL and then checks, from the files alone, that

- every file opens, passes SQLite's own check, and counter and receipt agree with the ledger;
- no release of a slot was drawn, stored or sent without the slot's charge;
- no slot was drawn twice, and stored and sent bytes are the drawn ones, complete and signed;
- a completed step is never undone.

Children are forked, so each starts in milliseconds. The exit code is 0 if no check failed.
"""

import argparse
import hashlib
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dp_accounting  # noqa: F401  (here, so that a child finds it imported)
import opendp.prelude  # noqa: F401
from cryptography.hazmat.primitives.asymmetric import ec

from fedperf_client.contributions.mechanisms import NoiseSource
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.gate import ReleaseGate
from fedperf_client.release.ledger import PrivacyLedger, ReleaseState, SlotSpentError
from fedperf_client.release.ledger_files import ConfirmedRelease, read_confirmed
from fedperf_client.release.lifetime import LifetimeRecord, lifetime_path
from fedperf_client.release.noise import system_noise
from fedperf_client.release.policy import ReleaseMode
from fedperf_shared.errors import FedperfError
from fedperf_shared.identity import new_private_key, verify
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    NoisySum,
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import decode_release, encode_release
from tests.fakes.empty_reports import empty_report

START = datetime(2027, 1, 1, tzinfo=UTC)
BUDGET = PrivacyBudget(1.0, 1e-5)
WINDOWS = 400
KILLS_PER_LEDGER = 50
FROM_SLOTS = 0.85
"""Share of kills that wait until the child has reached its slots. Others may hit its start."""

STEPS = ("make", "reserve", "draw", "store", "hand out", "receipt")


def schedule() -> Schedule:
    """Return a schedule with enough slots for all kills on one ledger."""
    times = SlotTimes(timedelta(hours=1), timedelta(hours=2))
    parameters = ReportParameters(110.0, 1.5)
    keys = [SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0) for window in range(WINDOWS)]
    calendar = ReleaseCalendar(Period(START, timedelta(days=1), WINDOWS), (times,), ())
    return Schedule(calendar, tuple(Slot(key, parameters) for key in keys))


SCHEDULE = schedule()


@dataclass(frozen=True, slots=True)
class Place:
    """Directory of one ledger and of the logs that its processes write."""

    directory: Path

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.directory / "ledger.sqlite"

    def note(self, log: str, key: SlotKey, payload: bytes) -> None:
        """Append a synced line: the slot and the digest of its bytes."""
        line = f"{key.window} {hashlib.sha256(payload).hexdigest()}\n".encode()
        descriptor = os.open(self.directory / log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def notes(self, log: str) -> list[tuple[SlotKey, str]]:
        """Return the lines of a log, oldest first."""
        with suppress(FileNotFoundError):
            lines = (self.directory / log).read_text().splitlines()
            return [
                (SlotKey(ReleaseKind.RESIDUAL_REPORT, int(window), 0), digest)
                for window, digest in (line.split() for line in lines)
            ]
        return []


class BrokenPromiseError(FedperfError):
    """Raised when a kill left the files in a forbidden state."""


def release_all(place: Place, key: ec.EllipticCurvePrivateKey, ready: int) -> None:
    """Release every slot, from creating the ledger to the last receipt, until killed.

    Writes one byte to the descriptor `ready` before the first slot.
    """
    if not place.ledger.exists():
        PrivacyLedger.create(place.ledger, BUDGET, SCHEDULE)
    ledger = PrivacyLedger.open(place.ledger)
    gate = ReleaseGate(ledger, system_noise, key)
    done = {each.key for each in ledger.entries() if each.state is ReleaseState.HANDED_OUT}
    os.write(ready, b"!")
    for slot in SCHEDULE.slots:
        if slot.key in done:
            continue
        with suppress(SlotSpentError):  # wasted by an earlier kill
            release_one(place, gate, ledger, slot.key)


def release_one(place: Place, gate: ReleaseGate, ledger: PrivacyLedger, key: SlotKey) -> None:
    """Take one slot through all its steps."""
    at = SCHEDULE.opens_at(key)

    def make(slot: Slot, noise: NoiseSource) -> NoisySum:
        drawn = empty_report(slot, noise)
        place.note("drawn", key, encode_release(drawn))
        return drawn

    gate.seal(key, make, at=at, mode=ReleaseMode.AUTO)
    sent = gate.dispatch(key, at=at, mode=ReleaseMode.AUTO)
    place.note("sent", key, sent.payload)
    digest = hashlib.sha256(sent.payload).digest()
    release_id = key.release_id(SCHEDULE.calendar.period)
    sequence = len(place.notes("sent"))
    receipt = ConfirmedRelease(release_id, digest, sequence, b"receipt")
    ledger.confirm(receipt)


def check(place: Place, key: ec.EllipticCurvePrivateKey) -> dict[SlotKey, int]:
    """Return the last completed step of every slot (index into STEPS). Raise if a check fails."""
    drawn, sent = place.notes("drawn"), place.notes("sent")
    twice = [each for each, count in Counter(slot for slot, _ in drawn).items() if count > 1]
    _require(not twice, f"drawn twice: {twice}")
    if not place.ledger.exists():
        _require(not drawn and not sent, "something was drawn without a ledger")
        return {}
    ledger = PrivacyLedger.open(place.ledger)
    _require(ledger.disagreement() is None, f"disagreement: {ledger.disagreement()}")
    record = LifetimeRecord.open(lifetime_path(place.directory))
    _require(record.disagreement() is None, f"lifetime: {record.disagreement()}")
    _require(len(record.periods()) == 1, "the period was not charged to the lifetime once")
    for path in place.directory.glob("*.sqlite*"):
        if path.suffix in (".sqlite", ".decisions"):
            _require_whole(path)
    entries = {each.key: each.state for each in ledger.entries()}
    _require({slot for slot, _ in drawn} <= entries.keys(), "drawn without a charge")
    _check_bytes(ledger, entries, dict(drawn), sent, key=key)
    confirmed = read_confirmed(place.ledger)
    _require(confirmed is None or confirmed.sequence <= len(sent), "a receipt for nothing")
    return {slot: _step(state, slot in dict(drawn)) for slot, state in entries.items()}


def _check_bytes(
    ledger: PrivacyLedger,
    entries: dict[SlotKey, ReleaseState],
    drawn: dict[SlotKey, str],
    sent: Sequence[tuple[SlotKey, str]],
    *,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    for slot, state in entries.items():
        stored = ledger.stored(slot)
        _require((stored is None) == (state is ReleaseState.RESERVED), f"{slot}: {state}")
        if stored is not None:
            verify(key.public_key(), stored.payload, stored.signature)
            _require(decode_release(stored.payload).slot == slot, f"{slot}: of another slot")
            digest = hashlib.sha256(stored.payload).hexdigest()
            _require(drawn.get(slot) == digest, f"{slot}: stored bytes were not drawn")
    for slot, digest in sent:
        _require(entries.get(slot) is ReleaseState.HANDED_OUT, f"{slot}: sent, not recorded")
        _require(drawn.get(slot) == digest, f"{slot}: other bytes were sent")


def _require_whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (answer,) = connection.execute("PRAGMA integrity_check").fetchone()
    _require(answer == "ok", f"{path.name}: {answer}")


def _step(state: ReleaseState, was_drawn: bool) -> int:
    if state is ReleaseState.RESERVED:
        return STEPS.index("draw" if was_drawn else "reserve")
    return STEPS.index("store" if state is ReleaseState.DRAWN else "hand out")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenPromiseError(what)


def kill_after(
    seconds: float, place: Place, key: ec.EllipticCurvePrivateKey, *, from_slots: bool
) -> float:
    """Fork a child that releases and kill it with SIGKILL.

    Args:
        seconds: life time of the child.
        place: directory of its ledger.
        key: key that signs its releases.
        from_slots: True if the life time counts from its first slot, False from its start.

    Returns:
        Seconds until its first slot, or 0 if `from_slots` is False.
    """
    reader, writer = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            release_all(place, key, writer)
            status = 0
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr)
        finally:
            os._exit(status)  # the child must not continue as its parent
    os.close(writer)
    if from_slots:
        os.read(reader, 1)  # also returns after the child has ended
    waited = time.monotonic() - started if from_slots else 0.0
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reader)
    _require(os.WIFSIGNALED(status), f"a child ended by itself with status {status}")
    return waited


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of kills, slots and completed steps."""

    kills: int
    slots: int
    sent: int
    interrupted: dict[str, int]
    slowest_start: float


def kill_many(kills: int, directory: Path, *, seed: int) -> Iterator[Tally]:
    """Kill and check repeatedly. Yields the tally of every ledger.

    Raises:
        FedperfError: a check failed.
    """
    moments, key, killed = random.Random(seed), new_private_key(), 0
    while killed < kills:
        place = Place(directory / str(killed))
        place.directory.mkdir()
        pace = _seconds_a_slot(Place(directory / f"pace-{killed}"), key)
        tally = kill_on(place, key, moments, pace=pace, kills=min(KILLS_PER_LEDGER, kills - killed))
        killed += tally.kills
        yield tally


def kill_on(
    place: Place,
    key: ec.EllipticCurvePrivateKey,
    moments: random.Random,
    *,
    pace: float,
    kills: int,
) -> Tally:
    """Kill processes on one ledger, at most `kills` times and while slots remain.

    Errors are those of `kill_many`.
    """
    met: Counter[str] = Counter()
    reached: dict[SlotKey, int] = {}
    slowest = 0.0
    while met.total() < kills and len(reached) < WINDOWS // 2:
        from_slots = moments.random() < FROM_SLOTS
        seconds = moments.uniform(0, 3 * pace)
        slowest = max(slowest, kill_after(seconds, place, key, from_slots=from_slots))
        now = check(place, key)
        lost = [slot for slot, step in reached.items() if now.get(slot, -1) < step]
        _require(not lost, f"taken back: {lost}")
        met[_where(now, place)] += 1
        reached = now
    return Tally(met.total(), len(reached), len(place.notes("sent")), dict(met), slowest)


def _where(now: dict[SlotKey, int], place: Place) -> str:
    """Return the last step that was completed before the kill."""
    if not now:
        return "make"
    last = max(now, key=lambda slot: slot.window)
    if now[last] < STEPS.index("hand out"):
        return STEPS[now[last]]
    sent, confirmed = place.notes("sent"), read_confirmed(place.ledger)
    is_sent = bool(sent) and sent[-1][0] == last
    release_id = last.release_id(SCHEDULE.calendar.period)
    is_confirmed = confirmed is not None and confirmed.release_id == release_id
    return "receipt" if is_confirmed else "send" if is_sent else "hand out"


def _seconds_a_slot(place: Place, key: ec.EllipticCurvePrivateKey) -> float:
    """Return the current seconds per slot, so that kills hit every step."""
    place.directory.mkdir()
    ledger = PrivacyLedger.create(place.ledger, BUDGET, SCHEDULE)
    gate = ReleaseGate(ledger, system_noise, key)
    release_one(place, gate, ledger, SCHEDULE.slots[0].key)
    started = time.monotonic()
    for slot in SCHEDULE.slots[1:5]:
        release_one(place, gate, ledger, slot.key)
    return (time.monotonic() - started) / 4


def main() -> int:
    """Run the requested number of kills and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="Where the files are; /dev/shm is quick.")
    options = parser.parse_args()
    met: Counter[str] = Counter()
    slots = sent = killed = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="kill-ledger-", dir=options.directory) as directory:
        try:
            for tally in kill_many(options.kills, Path(directory), seed=options.seed):
                killed, slots, sent = killed + tally.kills, slots + tally.slots, sent + tally.sent
                met.update(tally.interrupted)
                slowest = max(slowest, tally.slowest_start)
                print(f"{killed} kills", file=sys.stderr)
        except FedperfError as error:
            print(f"BROKEN after {killed} kills: {error}")
            return 1
    places = ", ".join(f"{name} {met[name]}" for name in sorted(met))
    print(
        f"{killed} kills (last step done: {places}), {slots} slots charged, {sent} sent: "
        "0 releases without a charge, 0 second draws, every file opened; "
        f"slowest start {slowest:.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
