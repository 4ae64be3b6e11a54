"""A worker whose programs are small JSON objects that request misbehaviour."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from fedperf_engines.platforms.executor import RunResult, SegmentTiming
from fedperf_engines.trials.worker import EnginesOfPlatforms, serve
from fedperf_shared.workflow.vocabulary import Platform


class FakeEngines(EnginesOfPlatforms):
    def warm_up(
        self, platforms: Sequence[Platform], threads: int, memory_bytes: int | None
    ) -> None:
        self.memory_bytes = memory_bytes
        if Platform.FLINK in platforms:
            raise RuntimeError("no such engine here")
        print("engines print what they like")

    def load(
        self,
        program: bytes,
        platforms: Sequence[Platform],
        data_directory: Path,
        threads: int,
        memory_bytes: int | None,
    ) -> Callable[[], RunResult]:
        assert memory_bytes == self.memory_bytes
        ((task, value),) = orjson.loads(program).items()
        work = getattr(self, f"_{task}")

        def run() -> RunResult:
            start = time.perf_counter()
            work(value)
            seconds = time.perf_counter() - start
            timings = [SegmentTiming(each, (n,), 0.25) for n, each in enumerate(platforms)]
            return RunResult((), tuple(timings), seconds)

        return run

    def count(self, program: bytes, data_directory: Path) -> dict[str, object]:
        self.load(program, [Platform.DUCKDB], data_directory, 1, None)()
        return {"steps": [[3, 8.0, 0.5]], "sources": [2, 0.25, 0.5, 0.0]}

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _burn(self, seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def _allocate(self, megabytes: int) -> None:
        held = [bytearray(os.urandom(1) * 1_000_000) for _ in range(megabytes)]
        time.sleep(0.05)
        del held

    def _leak(self, megabytes: int) -> None:
        self.leaked = [bytearray(os.urandom(1) * 1_000_000) for _ in range(megabytes)]

    def _exit(self, code: int) -> None:
        print("about to leave", file=sys.stderr, flush=True)
        os._exit(code)

    def _kill(self, number: int) -> None:
        os.kill(os.getpid(), number)

    def _allocate_and_die(self, megabytes: int) -> None:
        self._leak(megabytes)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    def _fail(self, message: str) -> None:
        raise ValueError(message)

    def _memory_error(self, _: object) -> None:
        raise MemoryError("cannot allocate")

    def _print(self, text: str) -> None:
        print(text, flush=True)
        os.write(1, text.encode())

    def _start_child(self, seconds: float) -> None:
        with subprocess.Popen(["sleep", str(seconds)]):
            pass

    def _write(self, megabytes: int) -> None:
        path = Path(f"/tmp/{os.getpid()}.written")
        path.write_bytes(bytes(megabytes * 1_000_000))
        path.read_bytes()
        path.unlink()

    def _pid(self, _: object) -> None:
        raise ValueError(f"pid {os.getpid()}")

    def _memory(self, _: object) -> None:
        raise ValueError(f"told {self.memory_bytes}, in {tempfile.gettempdir()}")

    def _cores(self, _: object) -> None:
        raise ValueError(f"cores {sorted(os.sched_getaffinity(0))}")


if __name__ == "__main__":
    serve(FakeEngines())
