"""The child process of trials: runs what it is told, one request after the other.

Requests and replies are lines of JSON over standard input and output. What an engine prints goes
to standard error, so it cannot garble a reply. The process imports only the engines that it was
started for and warms them up before the first request. When the parent is gone it ends at once,
its own children and its scratch directory with it.

The clock runs around the work alone: parsing the program before it and cleaning up
after it are not measured.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import queue
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import orjson
import psutil

from fedperf_client.profiling.trials.peak_memory import peak_bytes, reset_peak
from fedperf_shared.workflow.vocabulary import Platform


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """What engines say of a run.

    Attributes:
        seconds: wall time of the plan itself on a monotonic clock; opening the engines'
            sessions, which says nothing about the plan, is left out.
        segments: platform and wall seconds of every segment.
    """

    seconds: float
    segments: Sequence[tuple[Platform, float]]


_OUT_OF_MEMORY_ERRORS = frozenset({"OutOfMemoryException", "ArrowMemoryError"})
_LONGEST_REASON = 500


class Engines(Protocol):
    """What a worker runs; the real one is `EnginesOfPlatforms`, tests have their own."""

    def warm_up(
        self, platforms: Sequence[Platform], threads: int, memory_bytes: int | None
    ) -> None:
        """Import the engines and let each do something small."""
        ...

    def load(
        self,
        program: bytes,
        platforms: Sequence[Platform],
        data_directory: Path,
        threads: int,
        memory_bytes: int | None,
    ) -> Callable[[], EngineTimes]:
        """What is to be measured: the program, ready to run."""
        ...

    def count(self, program: bytes, data_directory: Path) -> dict[str, object]:
        """Statistics of every step and of the sources, as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class _Usage:
    """CPU time of the children, bytes moved by this process and them, so far.

    What a JVM and this process hand to each other counts as moved.
    """

    cpu_seconds: float
    read_bytes: int
    written_bytes: int


def serve(engines: Engines, arguments: Sequence[str]) -> None:
    """Answer requests until the parent closes the pipe.

    Args:
        engines: what runs the programs.
        arguments: `--platforms`, `--threads`, `--cores`, `--memory`, `--scratch` as the
            pool writes them.
    """
    options = _parse(arguments)
    replies = _take_standard_output()
    _settle(options.cores)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    engines.warm_up(options.platforms, options.threads, options.memory_bytes)
    gc.collect()
    gc.freeze()  # imported modules are not garbage: later collections take no time
    # Not earlier: a thread that waits for input would turn a failed warm-up into an abort.
    waiting = (sys.stdin.buffer, requests, options.scratch)
    threading.Thread(target=_receive, args=waiting, daemon=True).start()
    _reply(replies, {"ready": True})
    while True:
        reply = _answer(engines, requests.get(), options)
        _clean()
        _reply(replies, reply | {"resident_bytes": psutil.Process().memory_info().rss})


class EnginesOfPlatforms:
    """Runs programs with the engines of `fedperf_client.platforms`."""

    def warm_up(
        self, platforms: Sequence[Platform], threads: int, memory_bytes: int | None = None
    ) -> None:
        """Import the engines and let each do something small."""
        from fedperf_client.profiling.trials.warmup import warm_up

        warm_up(platforms, threads, memory_bytes=memory_bytes)

    def load(
        self,
        program: bytes,
        platforms: Sequence[Platform],
        data_directory: Path,
        threads: int,
        memory_bytes: int | None = None,
    ) -> Callable[[], EngineTimes]:
        """The program, ready to run; reading its data is part of the run."""
        from fedperf_client.platforms.executor import run_plan
        from fedperf_client.platforms.program import from_json

        parsed = from_json(program)

        def work() -> EngineTimes:
            result = run_plan(
                parsed,
                platforms,
                data_directory=data_directory,
                threads=threads,
                memory_bytes=memory_bytes,
            )
            timings = result.segment_timings
            return EngineTimes(result.seconds, [(each.platform, each.seconds) for each in timings])

        return work

    def count(self, program: bytes, data_directory: Path) -> dict[str, object]:
        """Statistics of every step and of the sources."""
        from fedperf_client.platforms.program import from_json
        from fedperf_client.platforms.statistics import count_rows
        from fedperf_client.workloads.sources import source_statistics

        parsed = from_json(program)
        steps = count_rows(parsed, data_directory=data_directory)
        sources = source_statistics(parsed, data_directory)
        return {
            "steps": [[each.rows, each.row_bytes, each.key_distinct_ratio] for each in steps],
            "sources": [
                sources.columns,
                sources.top_key_share,
                sources.distinct_ratio,
                sources.null_ratio,
            ],
        }


@dataclass(frozen=True, slots=True)
class _Options:
    platforms: tuple[Platform, ...]
    threads: int
    cores: tuple[int, ...]
    memory_bytes: int | None
    scratch: Path | None


def _parse(arguments: Sequence[str]) -> _Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--platforms", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cores", default="")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--scratch", type=Path)
    found = parser.parse_args(arguments)
    return _Options(
        platforms=tuple(Platform[name] for name in found.platforms.split(",") if name),
        threads=found.threads,
        cores=tuple(int(core) for core in found.cores.split(",") if core),
        memory_bytes=found.memory,
        scratch=found.scratch,
    )


def _take_standard_output() -> BinaryIO:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def _settle(cores: tuple[int, ...]) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    # When the machine runs out of memory, the kernel should choose the trial, not its parent.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _receive(source: BinaryIO, requests: "queue.SimpleQueue[bytes]", scratch: Path | None) -> None:
    for line in source:
        requests.put(line)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _reply(replies: BinaryIO, content: dict[str, object]) -> None:
    replies.write(orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))
    replies.flush()


def _answer(engines: Engines, line: bytes, options: _Options) -> dict[str, object]:
    try:
        request = orjson.loads(line)
        program = request["program"].encode()
        directory = Path(request["data_directory"])
        if request["task"] == "count":
            return {"status": "OK", **engines.count(program, directory)}
        platforms = [Platform(number) for number in request["platforms"]]
        threads, memory_bytes = options.threads, options.memory_bytes
        return _measure(engines.load(program, platforms, directory, threads, memory_bytes))
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> dict[str, object]:
    """Whatever an engine raises is an outcome."""
    lost = isinstance(error, MemoryError) or type(error).__name__ in _OUT_OF_MEMORY_ERRORS
    reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
    return {
        "status": "OUT_OF_MEMORY" if lost else "FAILED",
        "reason": reason.encode(errors="replace").decode(),
    }


def _measure(work: Callable[[], EngineTimes]) -> dict[str, object]:
    reset_peak()
    before = _usage_besides()
    ran: EngineTimes | None = None
    outcome: dict[str, object] = {"status": "OK"}
    # All threads of this process, to the nanosecond; `os.times` counts in ticks of 10 ms.
    cpu_start, start = time.process_time(), time.perf_counter()
    try:
        ran = work()
    except Exception as error:
        outcome = _failure(error)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    after = _usage_besides()
    return outcome | {
        "runtime_seconds": seconds if ran is None else ran.seconds,
        "cpu_seconds": cpu_seconds + max(0.0, after.cpu_seconds - before.cpu_seconds),
        "peak_memory_bytes": peak_bytes(),
        "read_bytes": max(0, after.read_bytes - before.read_bytes),
        "written_bytes": max(0, after.written_bytes - before.written_bytes),
        "segments": [[int(p), seconds] for p, seconds in (ran.segments if ran else ())],
    }


def _usage_besides() -> _Usage:
    """What the children used, and what this process and they moved."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = ended.ru_utime + ended.ru_stime
    me = psutil.Process()
    read_bytes, written_bytes = _moved(me)
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            cpu_seconds += times.user + times.system
            moved = _moved(child)
            read_bytes, written_bytes = read_bytes + moved[0], written_bytes + moved[1]
    return _Usage(cpu_seconds, read_bytes, written_bytes)


def _moved(process: psutil.Process) -> tuple[int, int]:
    """Bytes read and written so far, its ended children included; 0 where nobody counts."""
    if sys.platform != "linux":
        return 0, 0
    counters = process.io_counters()
    # What was asked for, also where the page cache answered: that belongs to the job,
    # what the disk had to deliver belongs to the state of the machine.
    return counters.read_chars, counters.write_chars


def _clean() -> None:
    """Give back what the last run left, so that the next starts as from new."""
    gc.collect()
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        pyarrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


if __name__ == "__main__":
    serve(EnginesOfPlatforms(), sys.argv[1:])
