"""The cost of taking in one source, in a program of its own, so that no other memory counts.

Usage: python -m fedperf_simulations.experiments.ingest.measurement SOURCE STORE REPEATS

The program prints JSON. It holds the CPU seconds of reading (the first time, and at best) and of
storing as well, the lines of an event log, and what was taken in. The peak of this process's memory
is the kernel's figure.
"""

import sys
import time
from pathlib import Path

import orjson

from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import SkippedRecord, open_source
from fedperf_client.sources.ingestion import ingest_source
from fedperf_client.sources.spark.event_log import lines
from fedperf_client.workers.child_side import peak_bytes


def main(source: Path, store: Path, repeats: int) -> None:
    """Read the source some times without storing anything, then take it in."""
    opened = open_source(source)
    reads = []
    for _ in range(repeats):
        start = time.process_time()
        skipped = sum(isinstance(each, SkippedRecord) for each in opened.read())
        reads.append(time.process_time() - start)
    with ExecutionStore.open(store) as executions:
        start = time.process_time()
        taken = ingest_source(source, executions)
        took = time.process_time() - start
    facts = {
        "events": sum(1 for _ in lines(source)),
        "first_read_cpu_seconds": reads[0],
        "read_cpu_seconds": min(reads),
        "take_in_cpu_seconds": took,
        "executions": taken.executions,
        "skipped": skipped,
        "peak_bytes": peak_bytes(),
    }
    sys.stdout.buffer.write(orjson.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
