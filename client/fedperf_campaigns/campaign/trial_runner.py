"""Runs one trial in a process of its own, watches it and the machine, and returns its outcome.

Invariant: for any behavior of a trial (crash, hang, allocate everything, start processes that
outlive it), the campaign gets a `TrialOutcome` and no process of the trial stays behind.

The kernel counts the resources of the trial's processes. Samples of the process tree, every 50 ms
and every 100 ms after the first second, add the memory that they held together and enforce the
limit. The campaign's process takes the samples, so it slows a trial down only where no core is
free. Output of components goes to a file that is emptied when it is too long, so no trial fills the
disk.

A trial is flagged as noisy where other programs or the machine's host took too many cores, or where
its time is far from its repeats. A noisy trial is still data. The thresholds are constants, so that
campaigns can be compared.
"""

import contextlib
import math
import os
import resource
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from fedperf_campaigns.campaign.definition import Component, RunSettings, component_message
from fedperf_campaigns.campaign.grid import Value
from fedperf_campaigns.campaign.journal import (
    RESOURCES,
    ComponentSpan,
    ResourceUse,
    TrialOutcome,
    TrialStatus,
)
from fedperf_client.workers.child_process import ChildFailedError, ChildProcess
from fedperf_client.workers.child_side import LONGEST_REASON, Json
from fedperf_client.workers.machine import InterferenceMonitor
from fedperf_shared.errors import FedperfError, StorageError

MAX_FOREIGN_SHARE = 0.1  # of the machine's cores, that others may keep busy, stolen time included
MAX_STOLEN_SHARE = 0.02  # of the machine's cores, that its own host may take
FEWEST_REPEATS = 3  # of the same configuration, before one can be far from them
_FAR_DEVIATIONS = 6.0
# Repeats that agree to the millisecond do not make one that is 1 % off a stranger.
_LEAST_FAR_LOG = math.log(1.25)

_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class InterferenceSample:
    """The load of the rest of the machine during a trial."""

    foreign_cores: float
    stolen_cores: float
    load_before: float
    load_after: float
    cores: int


class HostMonitor:
    """Measures interference during trials. Their processes are reaped before `end`."""

    def __init__(self) -> None:
        """Start no watch yet."""
        self._watch = InterferenceMonitor(own_seconds)
        self._moment, self._stolen, self._load = 0.0, 0.0, 0.0

    def begin(self) -> None:
        """Begin to watch a trial."""
        self._moment, self._stolen = time.monotonic(), _stolen_seconds()
        self._load = os.getloadavg()[0]
        self._watch.begin()

    def end(self) -> InterferenceSample:
        """End the watch. All processes of the trial have been reaped."""
        seconds = max(time.monotonic() - self._moment, 0.25)
        return InterferenceSample(
            foreign_cores=self._watch.busy_cores_since_begin(),
            stolen_cores=max(0.0, _stolen_seconds() - self._stolen) / seconds,
            load_before=self._load,
            load_after=os.getloadavg()[0],
            cores=os.cpu_count() or 1,
        )


def noise_reason(reading: InterferenceSample, seconds: float, repeats: Sequence[float]) -> str:
    """Return why a trial of `seconds` is flagged; empty where it is not.

    Args:
        reading: of the machine meanwhile.
        seconds: wall time, above 0.
        repeats: wall seconds of the other trials of the same configuration.
    """
    if not reading.foreign_cores <= MAX_FOREIGN_SHARE * reading.cores:
        return f"others kept {reading.foreign_cores:.2f} of {reading.cores} cores busy"
    if not reading.stolen_cores <= MAX_STOLEN_SHARE * reading.cores:
        return f"the machine's host took {reading.stolen_cores:.2f} of {reading.cores} cores"
    if is_far(seconds, repeats):
        return f"far from its repeats, whose median is {statistics.median(repeats):.4g} s"
    return ""


def is_far(seconds: float, repeats: Sequence[float]) -> bool:
    """Return whether a time is far outside of the others, by the median of their deviations."""
    if len(repeats) < FEWEST_REPEATS or not seconds > 0:
        return False
    logs = [math.log(each) for each in repeats]
    middle = statistics.median(logs)
    deviation = _MAD_TO_DEVIATION * statistics.median(abs(each - middle) for each in logs)
    return abs(math.log(seconds) - middle) > max(_LEAST_FAR_LOG, _FAR_DEVIATIONS * deviation)


def own_seconds() -> float:
    """Return CPU seconds of this process and of the trials' reaped processes."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime


def _stolen_seconds() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


TRIAL_COMMAND = (
    sys.executable,
    "-P",
    "-m",
    "fedperf_campaigns.campaign.trial_process",
)
# Marks the processes of a trial in their environment; opens nothing.
TOKEN_VARIABLE = "FEDPERF_TRIAL"

# From one sample of the process tree to the next, in the first second of a trial.
TICK_SECONDS = 0.05
_LATER_TICK_SECONDS = 0.1
_START_SECONDS = 300.0
_GRACE_SECONDS = 2.0
MOST_LOG_BYTES = 1 << 24  # of what a component printed, that are kept until the next sample


class TrialStoppedError(FedperfError):
    """A trial was ended because the campaign is to stop; it has no outcome."""


class TrialRunner:
    """Runs trials, one at a time, in a scratch directory that it empties."""

    def __init__(self, directory: Path, scratch: Path, *, stop: threading.Event) -> None:
        """Run nothing yet.

        Args:
            directory: where commands run and modules of callables lie.
            scratch: for the trials' own directories; made, and removed by `clear`. Commands
                get its absolute path, as they run elsewhere.
            stop: once set, the trial in flight is ended.
        """
        self._directory = directory
        self._scratch = scratch.absolute()
        self._stop = stop

    def clear(self) -> None:
        """Remove what trials left in the scratch directory, those of earlier runs too."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._scratch.is_dir():  # a trial may leave read-only directories
            _make_writable(self._scratch)
            shutil.rmtree(self._scratch, ignore_errors=True)

    def run(
        self,
        components: Sequence[Component],
        configuration: Mapping[str, Value],
        *,
        limits: RunSettings,
        token: str,
    ) -> TrialOutcome:
        """Run one trial and return its outcome. A failed trial is an outcome, not an exception.

        Args:
            components: that run, in the order of their dependencies.
            configuration: values by column.
            limits: the timeout and the memory cap at which it is stopped.
            token: marks its processes, so that they are found if this process is killed.

        Raises:
            TrialStoppedError: `stop` was set before it ended.
            StorageError: the scratch directory cannot be written.
        """
        self.clear()
        trial_directory, logs = self._scratch / "trial", self._scratch / "logs"
        try:
            for each in (trial_directory, logs):
                each.mkdir(parents=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"cannot write {self._scratch}: {error.strerror}") from error
        request = {
            "components": [
                component_message(each, configuration, trial_directory) for each in components
            ],
            "directory": str(self._directory),
            "logs": str(logs),
            "timeout_seconds": limits.timeout_seconds,
        }
        try:
            with (
                (logs / "trial.log").open("ab+") as log,
                ChildProcess(
                    TRIAL_COMMAND,
                    log=log,
                    env=os.environ | {TOKEN_VARIABLE: token},
                    ticks_seconds=(TICK_SECONDS, _LATER_TICK_SECONDS),
                    counts_root=False,
                    grace_seconds=_GRACE_SECONDS,
                ) as child,
            ):
                outcome = self._outcome(child, orjson.dumps(request), limits)
        finally:
            self.clear()
        if not outcome.status.is_data:
            kill_leftovers([token])  # what left the session, where its foster parent was killed
        if self._stop.is_set() and not outcome.status.is_data:
            raise TrialStoppedError("the trial in flight was ended")
        return outcome

    def _outcome(self, child: ChildProcess, request: bytes, limits: RunSettings) -> TrialOutcome:
        """Send the request and wait for the end."""

        def tick() -> None:
            _shorten(self._scratch / "logs")
            if self._stop.is_set():
                raise ChildFailedError("failed", "the campaign was stopped")

        def receive(seconds: float) -> Json:
            reply = child.receive(seconds, memory_bytes=limits.memory_bytes, on_tick=tick)
            return dict(orjson.loads(reply))

        startup, began, cpu_before = 0.0, None, 0.0
        try:
            child.send(request)
            ready = receive(_START_SECONDS)
            if "ready" not in ready:
                return TrialOutcome(TrialStatus.FAILED, str(ready.get("reason", "")))
            startup = ready["startup_seconds"]
            child.tree.peak_bytes = 0
            began, cpu_before = time.monotonic(), child.tree.cpu_seconds()
            reply = receive(limits.timeout_seconds)
        except ChildFailedError as lost:
            peak = child.tree.peak_bytes or None
            if began is None:
                return TrialOutcome(
                    TrialStatus(lost.status),
                    f"{lost.reason} before it was ready",
                    None,
                    startup,
                    ResourceUse(None, peak),
                )
            used = ResourceUse(child.tree.cpu_seconds() - cpu_before, peak)
            seconds = time.monotonic() - began
            return TrialOutcome(TrialStatus(lost.status), lost.reason, seconds, startup, used)
        status, reason = reply["status"], reply["reason"]
        if status == "killed":
            status, why = child.meaning_of_kill(limits.memory_bytes)
            reason = f"{reason} ({why})"
        return TrialOutcome(
            status=TrialStatus(status),
            reason=reason[:LONGEST_REASON],
            wall_seconds=reply.get("wall_seconds"),
            startup_seconds=startup,
            resources=_resources(reply, child.tree.peak_bytes),
            spans=tuple(
                ComponentSpan(
                    component=each["component"],
                    start_seconds=each["start_seconds"],
                    end_seconds=each["end_seconds"],
                    resources=ResourceUse(**{name: each.get(name) for name in RESOURCES}),
                    queue_seconds=each.get("queue_seconds"),
                    compute_seconds=each.get("compute_seconds"),
                )
                for each in reply["spans"]
            ),
        )


def kill_leftovers(tokens: Sequence[str]) -> int:
    """Kill processes of trials that were in flight when their campaign was killed."""
    killed = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(TOKEN_VARIABLE) in tokens:
                process.kill()
                killed += 1
    return killed


def _make_writable(directory: Path) -> None:
    for folder, names, _ in os.walk(directory):
        for path in (Path(folder) / name for name in names):
            if not path.is_symlink():  # which may lead to a directory that is not ours
                with contextlib.suppress(OSError):
                    path.chmod(0o700)


def _shorten(logs: Path) -> None:
    """Empty the files that are too long. Their writers append."""
    for log in logs.iterdir():
        with contextlib.suppress(OSError):
            if log.stat().st_size > MOST_LOG_BYTES:
                os.truncate(log, 0)


def _resources(reply: Json, sampled_peak: int) -> ResourceUse:
    """Return the resources of the whole trial; none where a part of it ran elsewhere."""
    spans = reply["spans"]
    if not reply.get("usage_is_seen"):
        return ResourceUse()
    exact = [each["peak_bytes"] for each in spans if each.get("peak_is_exact")]
    total = {
        name: sum(each.get(name, 0) for each in (*spans, reply["left"]))
        for name in ("cpu_seconds", "read_bytes", "written_bytes", "context_switches")
    }
    has_io = all("read_bytes" in each for each in spans)
    return ResourceUse(
        cpu_seconds=float(total["cpu_seconds"]),
        peak_bytes=max([sampled_peak, *exact])
        or max((each.get("peak_bytes", 0) for each in spans), default=0)
        or None,
        read_bytes=total["read_bytes"] if has_io else None,
        written_bytes=total["written_bytes"] if has_io else None,
        context_switches=total["context_switches"],
    )
