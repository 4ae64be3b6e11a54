"""Traces the four walks of ARCHITECTURE.md: which functions of which files run.

    python -m tests.shape.walks [--code CHECKOUT] [--walks 14] [--json] [--list]

Commands run as processes; every named function of client, server and shared that is called counts,
in child processes as well, but not what modules call while they are imported. A report slot and a
model round are lived in memory (`fedperf simulate`), so Flower and gRPC are not part of them.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.frozen.freeze import CHECKOUT, JOB, THREE_WINDOWS, Home, Product

PRODUCT = ("client", "server", "shared")
NOT_THE_WALK = ("fedperf_memory",)
"""Packages that move time and messages in a year in memory."""

LOG = Path("spark-eventlogs/qualification/udf_func_eventlog")
"""Nine queries."""

NIGHTLY = CHECKOUT / "tests" / "cases" / "nightly" / "executions.parquet"
"""One workload: too few for a rehearsal to judge answers, which are walk 1."""

CAMPAIGN = """\
name = "walked"

[[component]]
name = "total"
command = ["python", "job.py", "{rows}", "{workers}"]

[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = [1000, 2000, 4000]
workers = [1, 2]
"""


@dataclass
class Walk:
    """Calls of functions, by file and name."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def row(self) -> dict[str, int]:
        """Files, functions and calls."""
        files = {file for file, _ in self.calls}
        return {"files": len(files), "functions": len(self.calls), "calls": self.calls.total()}

    def __or__(self, other: "Walk") -> "Walk":
        """Return one after the other."""
        return Walk(self.calls + other.calls)


def traced(product: Product, name: str, run: Callable[[Product], object]) -> Walk:
    """Return the functions that `run` calls."""
    out = product.scratch / f"trace-{name}"
    out.mkdir()
    packages = os.pathsep.join(f"{product.code / each}{os.sep}" for each in PRODUCT)
    settings = {"WALKS_OUT": str(out), "WALKS_PACKAGES": packages}
    site = Path(__file__).resolve().parent / "traced"
    run(replace(product, site=site, settings=settings))
    walk = Walk()
    for path in out.glob("*.json"):
        for file, function, line, count in json.loads(path.read_text(encoding="utf-8")):
            is_named = "<" not in function.rpartition(".")[2]
            if is_named and not any(each in file for each in NOT_THE_WALK):
                place = str(Path(file).relative_to(product.code))
                walk.calls[place, f"{function}:{line}"] += count
    if not walk.calls:
        raise RuntimeError(f"{name}: nothing of {packages} was called")
    return walk


def walks(product: Product, numbers: str) -> Iterator[tuple[str, Walk]]:
    """Yield the walks of `numbers`, such as "14", with their names."""
    if "1" in numbers:
        yield from _log_to_prediction(product)
    if "2" in numbers:
        yield "2  a report slot", traced(product, "2", _year(product, "small", "model_update"))
    if "3" in numbers:
        yield "3  a model round", traced(product, "3", _year(product, "large", "residual_report"))
    if "4" in numbers:
        yield "4  a campaign", _campaign(product)


def _log_to_prediction(product: Product) -> Iterator[tuple[str, Walk]]:
    home = Home(product, product.scratch / "home")
    home.make("init")
    ingest = traced(product, "1a", _command(home, "ingest", "--jobs", "1", product.inputs / LOG))
    runs = home.ask("runs", "--status", "ok")["json"]
    question = _command(home, "predict", "--execution", runs[0]["id"], "--cores", "4,8")
    first = traced(product, "1b", question)
    yield "1a ingest", ingest
    yield "1b predict, first", first
    yield "1c predict, cached", traced(product, "1c", question)
    yield "1  a log to a prediction", ingest | first


def _campaign(product: Product) -> Walk:
    home = Home(product, product.scratch / "campaign-home")
    home.make("init")
    file = product.scratch / "campaign.toml"
    file.write_text(CAMPAIGN, encoding="utf-8")
    (product.scratch / "job.py").write_text(JOB, encoding="utf-8")
    profile = traced(product, "4a", _command(home, "profile", file))
    asked, columns = ("predict", "--campaign", file), "rows=3000,workers=4"

    def predict(product: Product) -> None:
        """Ask with the option's name of today, and where it is not known with that of 0.4.0."""
        again = Home(product, home.directory)
        again.ask(*asked, "--at", columns, otherwise=(*asked, "--set", columns))

    return profile | traced(product, "4b", predict)


def _command(home: Home, *words: object) -> Callable[[Product], object]:
    return lambda product: Home(product, home.directory).make(*words)


def _year(product: Product, size: str, never: str) -> Callable[[Product], object]:
    """Return a rehearsal of two members with few workloads; `never` leaves, the rest does."""
    home = Home(product, product.scratch / f"{size}-home")
    home.make("init", "--size", size, "--workloads", "120" if size == "small" else "24")
    home.make("ingest", NIGHTLY)
    policy = home.directory / "policy.toml"
    text = policy.read_text(encoding="utf-8").replace("epsilon = 1.0", "epsilon = 8.0", 1)
    policy.write_text(text.replace(f'{never} = "auto"', f'{never} = "never"'), encoding="utf-8")
    calendar = product.scratch / f"{size}.toml"
    calendar.write_text(THREE_WINDOWS.replace("windows = 3", "windows = 2"), encoding="utf-8")
    words = ("--calendar", calendar, "--joining-day", "2025-01-08", "--members", "1", "--json")

    def run(product: Product) -> None:
        done = Home(product, home.directory).ask("rehearse", *words, otherwise=("simulate", *words))
        if not (done["json"] or {}).get("releases"):
            raise RuntimeError(f"{size}: nothing left in the rehearsed year: {done}")

    return run


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    parser = argparse.ArgumentParser(description="Trace the four walks of ARCHITECTURE.md.")
    parser.add_argument("--code", type=Path, default=CHECKOUT, help="checkout whose code runs")
    parser.add_argument("--python", default=sys.executable, help="interpreter with dependencies")
    parser.add_argument("--public", type=Path, default=os.environ.get("FEDPERF_DATA"))
    parser.add_argument("--walks", default="1234", help="their numbers, like 14; all by default")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true", help="print every function as well")
    options = parser.parse_args(words)
    if options.public is None:
        parser.error("set FEDPERF_DATA, or --public, to the directory of the public data")
    with tempfile.TemporaryDirectory(prefix="walks-") as scratch:
        product = Product(
            options.code.resolve(), options.python, options.public, Path(scratch).resolve()
        )
        found = {}
        for name, walk in walks(product, options.walks):
            found[name] = walk.row
            if not options.json:
                print(f"{name:26}", *(f"{value:>7,} {key}" for key, value in walk.row.items()))
            for (file, function), count in sorted(walk.calls.items()) if options.list else ():
                print(f"    {file} {function} {count}")
    if options.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
