"""Freezes the numbers of the product, so that two commits can be compared.

    python tests/frozen/freeze.py inputs DIR [--cases DIR]       # once
    python tests/frozen/freeze.py freeze OUT --inputs DIR        # of every commit
    python tests/frozen/freeze.py compare BEFORE AFTER

`--code CHECKOUT` runs the code of another checkout with this script, which needs none of it.
`freeze` writes one JSON file per section: what commands answer with `--json`, and how they end;
what leaves members of a year in memory, and what becomes of it, byte by byte; drawn schedules.
`compare` prints every value that differs and ends with 1. Numbers, names and hex count, sentences
(strings with a space) do not.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
PACKAGES = ("client", "server", "shared", "simulations")
ALL = "100000"

# --- what differs from run to run -----------------------------------------------------------

VOLATILE = {"fingerprint", "search_milliseconds"}
"""Keys of `--json` whose values are left out."""

VOLATILE_COLUMNS = {"public_key", "signature", "chain"}
"""Columns of databases that are left out: keys are drawn when a member joins."""

MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True)
class Normalization:
    """Replaces what differs from run to run: paths, moments of today's calendar, drawn keys."""

    paths: dict[str, str]
    today: datetime

    def __call__(self, value: object) -> Any:
        """Return `value`, a tree as of JSON, without what differs."""
        if isinstance(value, dict):
            return {
                self._text(key): self(each) for key, each in value.items() if key not in VOLATILE
            }
        if isinstance(value, list):
            return [self(each) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for path, name in self.paths.items():
            text = text.replace(path, name)
        return self._moment(text) if MOMENT.fullmatch(text) else text

    def _moment(self, text: str) -> str:
        """Moments from today to two years on come of a calendar that begins today."""
        moment = datetime.fromisoformat(text)
        days = (moment.replace(tzinfo=moment.tzinfo or UTC) - self.today).days
        return f"today+{days}d" if 0 <= days < 730 else text


# --- running ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """The programs of a checkout.

    Attributes:
        code: the checkout.
        python: interpreter whose environment has the dependencies.
        inputs: directory of `inputs`.
        scratch: directory for homes, deleted afterwards.
        site: directory of a `sitecustomize.py` that every program runs first.
        settings: more variables of their environment.
    """

    code: Path
    python: str
    inputs: Path
    scratch: Path
    site: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, program: str, *words: object, keep: Path | None = None, seconds: float = 900
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program, like `fedperf`; temporary directories stay in `keep`."""
        project = tomllib.loads((self.code / "pyproject.toml").read_text(encoding="utf-8"))
        module, function = project["project"]["scripts"][program].split(":")
        start = (
            f"import sys; sys.argv[0] = {program!r}; from {module} import {function}; {function}()"
        )
        return self.python_run("-c", start, *words, keep=keep, seconds=seconds)

    def python_run(
        self, *words: object, keep: Path | None = None, seconds: float = 900
    ) -> "subprocess.CompletedProcess[str]":
        """Run the interpreter with the packages of the checkout before all others."""
        site = HERE / "kept" if keep else self.site
        paths = [*([site] if site else []), *(self.code / each for each in PACKAGES)]
        environment = {
            **{key: each for key, each in os.environ.items() if not key.startswith("FEDPERF")},
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}",
            "FEDPERF_DATA": str(self.inputs / "public"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "TZ": "UTC",
            **self.settings,
            **({"FREEZE_KEEPS": str(keep)} if keep else {}),
        }
        return subprocess.run(
            [self.python, *map(str, words)],
            env=environment,
            cwd=self.scratch,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@dataclass(frozen=True)
class Home:
    """A directory that a program of the product is asked about."""

    product: Product
    directory: Path
    program: str = "fedperf"

    def ask(
        self, *words: object, otherwise: Sequence[object] = (), keep: Path | None = None
    ) -> Any:
        """Return how the command ends and what it answers with `--json`.

        `otherwise` is what a later version calls the command, where this one does not know it.
        """
        option = "--home" if self.program == "fedperf" else "--directory"
        done = self.product.run(self.program, option, self.directory, *words, "--json", keep=keep)
        if done.returncode == 2 and otherwise:
            return self.ask(*otherwise, keep=keep)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and answer.pop("schema", None) and set(answer) == {"rows"}:
            answer = answer["rows"]  # as it was printed before it had the number of a schema
        return {"exit": done.returncode, "json": answer}

    def make(self, *words: object) -> None:
        """Run a command that inputs need; raise what it says where it fails."""
        option = "--home" if self.program == "fedperf" else "--directory"
        done = self.product.run(self.program, option, self.directory, *words)
        if done.returncode:
            raise RuntimeError(f"{self.program} {' '.join(map(str, words))}: {done.stderr}")


def named(answers: Sequence[tuple[Sequence[object], Any]]) -> dict[str, Any]:
    """Return answers by the words that asked for them."""
    return {" ".join(map(str, words)): answer for words, answer in answers}


# --- sections --------------------------------------------------------------------------------


def schedules(product: Product, *, quick: bool) -> Any:
    """Slots and epsilons of drawn policies."""
    words = (HERE / "adapter.py", product.code, product.inputs, 20 if quick else 200)
    done = product.python_run(*words)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def findings(product: Product, *, quick: bool) -> Any:
    """What `diagnose` finds in all public logs and in every case."""
    home = Home(product, product.scratch / "no-home")
    logs, cases = product.inputs / "public" / "spark-eventlogs", product.inputs / "cases"
    found = {"public": home.ask("diagnose", logs, "--top", ALL)}
    if not quick:
        prices = product.inputs / "prices.toml"
        found["public with prices"] = home.ask("diagnose", logs, "--top", ALL, "--prices", prices)
    for case in sorted(cases.iterdir()) if cases.is_dir() else ():
        found[case.name] = {"diagnose": home.ask("diagnose", case, "--top", ALL)}
        if quick:
            continue
        found[case.name]["ingest"] = home.ask("ingest", case, "--dry-run")
        if (case / "before").is_dir():
            sides = ("--before", case / "before", "--after", case / "after")
            found[case.name]["compare"] = home.ask("compare", *sides)
    return found


def logs_home(product: Product, *, quick: bool) -> Any:
    """A home of public Spark logs."""
    home = Home(product, product.scratch / "spark")
    logs = product.inputs / "public" / "spark-eventlogs"
    found = _new_home(home, [logs], held_out=product.inputs / "polars.parquet", quick=quick)
    for words in ((), ("--deadline", "60s"), ("--prices", product.inputs / "prices.toml")):
        asked = ("advise", logs, "--top", "20", *words)
        found |= named([(asked, home.ask(*asked))])
    return found


def profiles_home(product: Product, *, quick: bool) -> Any:
    """A home of DuckDB profiles and of a history of runs on Polars."""
    home = Home(product, product.scratch / "profiles")
    places = [product.inputs / "duckdb", product.inputs / "polars.parquet"]
    return _new_home(home, places, held_out=product.inputs / "engines.parquet", quick=quick)


def engines_home(product: Product, *, quick: bool) -> Any:
    """A home of a history of runs on all engines that ship."""
    if quick:
        return {}
    home = Home(product, product.scratch / "engines")
    places = [product.inputs / "engines.parquet"]
    return _new_home(home, places, held_out=product.inputs / "polars.parquet", quick=quick)


def campaign_home(product: Product, *, quick: bool) -> Any:
    """A home in which a campaign of commands ran once."""
    directory = product.scratch / "campaign"
    shutil.copytree(product.inputs / "homes" / "campaign", directory)
    home, campaign = Home(product, directory), product.inputs / "campaign" / "campaign.toml"
    asked = [
        ("profile", campaign, "--out", product.scratch / "campaign-results"),
        ("predict", "--campaign", campaign, "--at", "rows=100,3M,workers=1,2,3,4,8"),
        ("predict", "--campaign", campaign, "--at", "rows=2000,40000,workers=1,3,16"),
        ("predict", "--campaign", campaign, "--at", "rows=8000,workers=2,4", "--deadline", "1s"),
    ]
    found: dict[str, Any] = {}
    for words in asked[: 2 if quick else None]:
        earlier = ["--set" if each == "--at" else each for each in words]  # as 0.4.0 calls it
        found |= named([(words, home.ask(*words, otherwise=earlier))])
    return found | _questions(home, quick=quick) | _facts(home, held_out=None, quick=quick)


def small_year(product: Product, *, quick: bool) -> Any:
    """A year in memory of an organization that releases reports."""
    del quick
    return _year(product, "small", workloads=120, members=1, epsilon="8.0")


def large_year(product: Product, *, quick: bool) -> Any:
    """A year in memory of an organization that releases model updates as well."""
    return {} if quick else _year(product, "large", workloads=300, members=2, epsilon="8.0")


def opened(product: Product, *, quick: bool) -> Any:
    """Directories that another commit made: what a new version says of them, and goes on with."""
    found: dict[str, Any] = {}
    for made in sorted((product.inputs / "homes").iterdir()):
        directory = product.scratch / "opened" / made.name
        shutil.copytree(made, directory)
        if made.name == "coordinator":
            found[made.name] = _coordinator(product, directory)
        elif made.name == "member":
            found[made.name] = _member(product, directory)
        else:
            home = Home(product, directory)
            found[made.name] = _questions(home, quick=True)
            if not quick:
                found[made.name] |= _facts(home, held_out=None, quick=True)
    return found


SECTIONS: dict[str, Callable[..., Any]] = {
    "schedules": schedules,
    "findings": findings,
    "spark": logs_home,
    "profiles": profiles_home,
    "engines": engines_home,
    "campaign": campaign_home,
    "small_year": small_year,
    "large_year": large_year,
    "opened": opened,
}


def _new_home(home: Home, places: Sequence[Path], *, held_out: Path, quick: bool) -> dict[str, Any]:
    """Everything that a new home answers that has read `places`."""
    found = {"init": home.ask("init", "--workloads", "300")}
    found["dry run"] = home.ask("ingest", *places, "--dry-run", "--jobs", "1")
    found["ingest"] = home.ask("ingest", *places, "--jobs", "1")
    found["ingest again"] = home.ask("ingest", *places, "--jobs", "1")
    found |= _questions(home, quick=quick)
    return found | _facts(home, held_out=held_out, quick=quick)


def _ids(home: Home, count: int) -> tuple[Any, list[str]]:
    """What `runs` says, and the ids of `count` runs that ended well, from all over the list."""
    runs = home.ask("runs", "--last", ALL)
    ids = sorted(each["id"] for each in runs["json"] or () if each["status"] == "ok")
    return runs, ids[:: max(1, len(ids) // count)][:count]


def _questions(home: Home, *, quick: bool) -> dict[str, Any]:
    """Answers about own executions, each on four clusters: the first is cold, the rest are warm."""
    runs, ids = _ids(home, 6 if quick else 22)
    kinds = [
        ("--cores", "1,2,4,8"),
        ("--nodes", "1,2,4,8"),
        ("--cores", "2,4,8,64", "--at", "rows=2x"),
        ("--cores", "1,2,4,8", "--deadline", "2s"),
        ("--cores", "1,2,4,8", "--platform", "duckdb"),
        ("--cores", "1,2,4,8", "--at", "rows=0.1x"),
    ]
    asked = [
        ("predict", "--execution", each, *kinds[number % len(kinds)])
        for number, each in enumerate(ids)
    ]
    asked += [("runs", "show", each) for each in ids[:: 6 if quick else 3]]
    asked += [
        ("advise", "--execution", each, "--cores", "1,2,4") for each in ids[:: 6 if quick else 5]
    ]
    return {"runs": runs} | named([(words, home.ask(*words)) for words in asked])


def _facts(home: Home, *, held_out: Path | None, quick: bool) -> dict[str, Any]:
    """Answers about the whole home."""
    found = {each: home.ask(each) for each in ("drift", "compare", "status", "budget")}
    found["models"] = home.ask("models", otherwise=["weights"])
    found["gain"] = home.ask("gain", otherwise=["evaluate"])
    if quick:
        return found
    found["compare since"] = home.ask("compare", "--since", "2021-06-01")
    if held_out is not None:
        words = ["--held-out", held_out]
        found["gain held out"] = home.ask("gain", *words, otherwise=["evaluate", *words])
    asked = [("release", "slots"), ("release", "list"), ("doctor",)]
    return found | named([(words, home.ask(*words)) for words in asked])


def _year(product: Product, size: str, *, workloads: int, members: int, epsilon: str) -> Any:
    """What a rehearsal answers, what left each member, and what the coordinator made of it."""
    home, kept = Home(product, product.scratch / f"{size}-year"), product.scratch / f"{size}-kept"
    kept.mkdir()
    found = {"init": home.ask("init", "--size", size, "--workloads", workloads)}
    policy = home.directory / "policy.toml"
    text = policy.read_text(encoding="utf-8")
    policy.write_text(re.sub(r"^epsilon = .*", f"epsilon = {epsilon}", text, flags=re.M))
    found["ingest"] = home.ask("ingest", product.inputs / "polars.parquet")
    calendar = product.inputs / "three_windows.toml"
    words = (
        "--calendar",
        calendar,
        "--joining-day",
        "2025-01-08",
        "--members",
        members,
        "--seed",
        7,
    )
    found["rehearse"] = home.ask("rehearse", *words, otherwise=["simulate", *words], keep=kept)
    [coordinator] = kept.glob("*/coordinator")
    for member in sorted(coordinator.parent.iterdir()):
        if member != coordinator:
            shutil.copy(policy, member / "policy.toml")
            found[member.name] = _member(product, member)
    (coordinator / "fedperf-server.toml").write_text(
        'host = "localhost"\n' + calendar.read_text(encoding="utf-8"), encoding="utf-8"
    )
    found["coordinator"] = _coordinator(product, coordinator)
    return found


def _member(product: Product, directory: Path) -> Any:
    """What stands in a member's ledgers, and what it says of them."""
    found: dict[str, Any] = {
        path.name: _tables(path) for path in sorted(directory.glob("*.sqlite"))
    }
    if directory.name.startswith("stand-in"):
        return found
    home = Home(product, directory)
    asked: list[Sequence[object]] = [("budget",), ("release", "list"), ("release", "slots")]
    asked += [("status",)]
    listed = home.ask("release", "list")["json"] or ()
    asked += [("release", "show", each["slot"]) for each in listed]
    return found | named([(words, home.ask(*words)) for words in asked])


def _coordinator(product: Product, directory: Path) -> Any:
    """What stands in a coordinator's database, and what it says of it."""
    home = Home(product, directory, "fedperf-server")
    found = {"coordinator.sqlite": _tables(directory / "coordinator.sqlite")}
    names = ("calendar", "list", "rounds", "models", "epochs", "drifts")
    later = {"list": ("org", "list"), "epochs": ("regimes",)}
    for each in names:
        found[each] = home.ask(each, otherwise=later.get(each, ()))
    words = ("synthesize", "--rows", "40", "--seed", "3")
    return found | named([(words, home.ask(*words))])


def _tables(path: Path) -> Any:
    """Every row of a database; long bytes by their hash."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        names = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        found = {}
        for name in sorted(names):
            rows = database.execute(f'SELECT * FROM "{name}"')  # noqa: S608 a name of its own
            columns = [each[0] for each in rows.description]
            found[name] = sorted(
                (_row(dict(zip(columns, row, strict=True))) for row in rows), key=json.dumps
            )
    return found


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _bytes(value) if isinstance(value, bytes) else value
        for key, value in row.items()
        if key not in VOLATILE_COLUMNS
    }


def _bytes(value: bytes) -> str:
    return value.hex() if len(value) <= 32 else f"{len(value)}:{hashlib.sha256(value).hexdigest()}"


# --- inputs ----------------------------------------------------------------------------------

THREE_WINDOWS = """\
[timetable]
period_start = 2025-01-06T00:00:00+00:00
window_seconds = 2419200.0
windows = 3
report_slots = [{ opens_after_seconds = 86400.0, replies_after_seconds = 172800.0 }, \
{ opens_after_seconds = 864000.0, replies_after_seconds = 950400.0 }]
model_slots = [{ opens_after_seconds = 1296000.0, replies_after_seconds = 1382400.0 }]
extra_slots = []
extra_windows = 0
first_slots = [{ opens_after_seconds = 259200.0, replies_after_seconds = 345600.0 }]
model_method = "tangent"
"""

PRICES = "core = 0.05\ngib = 0.006\n"

CAMPAIGN = """\
name = "frozen"

[[component]]
name = "load"
command = ["python", "job.py", "{rows}", "1"]

[[component]]
name = "work"
command = ["python", "job.py", "{rows}", "{workers}"]
after = ["load"]

[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = [1000, 2000, 4000, 8000]
workers = [1, 2, 4]

[run]
repetitions = 2
"""

JOB = """\
import sys, time
rows, workers = map(int, sys.argv[1:])
time.sleep(0.02 + rows / workers / 40_000)
"""


def make_inputs(product: Product, public: Path, cases: Path | None) -> None:
    """Make what all commits read: files, and directories of the commit that makes them."""
    inputs = product.inputs
    shutil.copytree(public / "spark-eventlogs", inputs / "public" / "spark-eventlogs")
    if cases is not None:
        shutil.copytree(cases, inputs / "cases")
    (inputs / "three_windows.toml").write_text(THREE_WINDOWS, encoding="utf-8")
    (inputs / "prices.toml").write_text(PRICES, encoding="utf-8")
    _calendars(product)
    _duckdb_profiles(inputs / "duckdb")
    _histories(product)
    for place in ("public", "cases", "duckdb"):
        _fix_times(inputs / place)
    _homes(product)


def _fix_times(place: Path) -> None:
    """Files are as old as their place in the list: what is read of a profile has that moment."""
    for number, path in enumerate(sorted(place.rglob("*"))):
        moment = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + 3600 * number
        os.utime(path, (moment, moment))


def _calendars(product: Product) -> None:
    server = Home(product, product.scratch / "server", "fedperf-server")
    server.make("init", "--host", "localhost", "--period-start", "2100-01-04")
    path = product.inputs / "future.toml"
    server.make("calendar", "--out", path)
    text = path.read_text(encoding="utf-8")
    (product.inputs / "dp_sgd.toml").write_text(text.replace('"tangent"', '"dp_sgd"'))


def _duckdb_profiles(place: Path) -> None:
    """Profiles of DuckDB: six shapes of queries, on four sizes, twice."""
    import duckdb

    place.mkdir()
    queries = {
        "scan": "SELECT count(*) FROM t WHERE v < 500",
        "group": "SELECT k, sum(v), avg(w) FROM t GROUP BY k",
        "sort": "SELECT * FROM t ORDER BY w, k LIMIT 100",
        "join": "SELECT a.k, count(*) FROM t a JOIN d USING (k) WHERE d.n > 10 GROUP BY a.k",
        "distinct": "SELECT count(DISTINCT v % 1000) FROM t",
        "window": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY w) r FROM t",
    }
    for rows in (2_000, 20_000, 100_000, 400_000):
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute(
                "CREATE TABLE t AS SELECT i % 97 AS k, (i * 7919) % 10007 AS v, "
                "(i * 104729) % 1000003 / 7.0 AS w FROM range(?) r(i)",
                [rows],
            )
            connection.execute("CREATE TABLE d AS SELECT i AS k, i * 3 AS n FROM range(97) r(i)")
            for number in range(2):
                for name, query in queries.items():
                    path = place / f"{name}-{rows}-{number}.json"
                    connection.execute("PRAGMA enable_profiling = 'json'")
                    connection.execute(f"PRAGMA profiling_output = '{path}'")
                    connection.execute(query).fetchall()
                    connection.execute("PRAGMA disable_profiling")


def _histories(product: Product) -> None:
    """Histories of runs that ship with fedperf, on all engines and on Polars alone."""
    home = Home(product, product.scratch / "calibrated")
    home.make("init")
    home.make("calibrate", "--executions", 160, "--max-rows", 30000)
    home.make("runs", "export", product.inputs / "engines.parquet")
    home.make("runs", "export", product.inputs / "polars.parquet", "--platform", "polars")


def _homes(product: Product) -> None:
    """Directories of this commit."""
    homes = product.inputs / "homes"
    spark, profiles = Home(product, homes / "spark"), Home(product, homes / "profiles")
    for home in (spark, profiles):
        home.make("init", "--workloads", "300")
    spark.make("ingest", product.inputs / "public" / "spark-eventlogs", "--jobs", "1")
    profiles.make("ingest", product.inputs / "duckdb", product.inputs / "polars.parquet")
    for home in (spark, profiles):
        [first, *_] = _ids(home, 1)[1]
        home.make("predict", "--execution", first, "--cores", "4,8")  # keeps what it has weighed
    place = product.inputs / "campaign"
    place.mkdir()
    (place / "campaign.toml").write_text(CAMPAIGN, encoding="utf-8")
    (place / "job.py").write_text(JOB, encoding="utf-8")
    campaign = Home(product, homes / "campaign")
    campaign.make("init")
    campaign.make("profile", place / "campaign.toml")
    _year(product, "small", workloads=120, members=1, epsilon="8.0")
    [coordinator] = product.scratch.glob("small-kept/*/coordinator")
    shutil.copytree(coordinator, homes / "coordinator")
    shutil.copytree(coordinator.parent / "own", homes / "member")


# --- comparing -------------------------------------------------------------------------------


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every path of a tree with its value; sentences are left out, empty ones are values."""
    if isinstance(tree, dict) and tree:
        for key, each in tree.items():
            yield from leaves(each, f"{path}/{key}")
    elif isinstance(tree, list) and tree:
        for number, each in enumerate(tree):
            yield from leaves(each, f"{path}/{number}")
    elif not (isinstance(tree, str) and " " in tree):
        yield path, tree


def differences(
    before: object, after: object, *, renamed: dict[str, str], within: float = 0.0
) -> Iterator[str]:
    """Yield a line for every value that differs.

    Args:
        before: a tree.
        after: another one.
        renamed: parts of paths of `before` that `after` calls otherwise.
        within: relative difference up to which two numbers are the same.
    """
    olds = {
        "/".join(renamed.get(part, part) for part in path.split("/")): value
        for path, value in leaves(before)
    }
    news = dict(leaves(after))
    sentences = {path for tree in (before, after) for path in _sentences(tree)}
    for path in sorted(olds.keys() | news.keys()):
        if path in sentences:
            continue
        if path not in news:
            yield f"{path}: {olds[path]!r} -> (gone)"
        elif path not in olds:
            yield f"{path}: (new) -> {news[path]!r}"
        elif not _same(olds[path], news[path], within):
            yield f"{path}: {olds[path]!r} -> {news[path]!r}"


def _sentences(tree: object, path: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for key, each in tree.items():
            yield from _sentences(each, f"{path}/{key}")
    elif isinstance(tree, list):
        for number, each in enumerate(tree):
            yield from _sentences(each, f"{path}/{number}")
    elif isinstance(tree, str) and " " in tree:
        yield path


def _same(old: object, new: object, within: float) -> bool:
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, int | float) and isinstance(new, int | float):
        return old == new or abs(old - new) <= within * max(abs(old), abs(new))
    return old == new


def compare(before: Path, after: Path, *, renamed: dict[str, str], within: float = 0.0) -> int:
    """Print what differs between two frozen trees; return how many values do."""
    count = 0
    names = sorted({path.name for place in (before, after) for path in place.glob("*.json")})
    if not names:
        raise SystemExit(f"{before}, {after}: no frozen tree")
    for name in names:
        sides = [place / name for place in (before, after)]
        missing = [side for side in sides if not side.is_file()]
        if missing:
            print(f"{name}: only in one of them, not compared")
            continue
        old, new = (json.loads(side.read_text(encoding="utf-8")) for side in sides)
        found = list(differences(old, new, renamed=renamed, within=within))
        for line in found:
            print(f"{name.removesuffix('.json')}{line}")
        compared = sum(1 for _ in leaves(new))
        print(f"{name}: {len(found)} of {compared} values differ", file=sys.stderr)
        count += len(found)
    return count


# --- command line ----------------------------------------------------------------------------


def freeze(product: Product, out: Path, names: Sequence[str], *, quick: bool, jobs: int) -> None:
    """Write a JSON file per section."""
    paths = {
        str(product.scratch): "SCRATCH",
        str(product.inputs): "INPUTS",
        str(product.code): "CODE",
    }
    now = datetime.now(UTC)
    normalized = Normalization(paths, now.replace(hour=0, minute=0, second=0, microsecond=0))
    out.mkdir(parents=True, exist_ok=True)

    def one(name: str) -> None:
        tree = normalized(SECTIONS[name](product, quick=quick))
        if tree:
            text = json.dumps(tree, indent=1, sort_keys=True)
            (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(f"{name}: {sum(1 for _ in leaves(tree))} values", file=sys.stderr)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, names))


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    parser = argparse.ArgumentParser(description="Freeze the numbers of the product and compare.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = argparse.ArgumentParser(add_help=False)
    run.add_argument("--code", type=Path, default=CHECKOUT, help="checkout whose code runs")
    run.add_argument("--python", default=sys.executable, help="interpreter with its dependencies")
    inputs = commands.add_parser("inputs", parents=[run], help="make what all commits read, once")
    inputs.add_argument("inputs", type=Path)
    inputs.add_argument("--cases", type=Path, help="directory of cases for diagnose")
    inputs.add_argument("--public", type=Path, default=os.environ.get("FEDPERF_DATA"))
    frozen = commands.add_parser("freeze", parents=[run], help="write the numbers of a commit")
    frozen.add_argument("out", type=Path)
    frozen.add_argument("--inputs", type=Path, required=True)
    frozen.add_argument("--quick", action="store_true", help="a part of it, in two minutes")
    frozen.add_argument("--only", help="sections, like spark,small_year; all by default")
    frozen.add_argument("--jobs", type=int, default=1, help="sections at a time")
    compared = commands.add_parser("compare", help="print what differs; ends with 1 where it does")
    compared.add_argument("before", type=Path)
    compared.add_argument("after", type=Path)
    compared.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    compared.add_argument("--within", type=float, default=0.0, help="relative, for numbers")
    options = parser.parse_args(words)
    if options.command == "compare":
        renamed = dict(each.split("=", 1) for each in options.renamed)
        differ = compare(options.before, options.after, renamed=renamed, within=options.within)
        return 1 if differ else 0
    with tempfile.TemporaryDirectory(prefix="frozen-") as scratch:
        product = Product(
            options.code.resolve(),
            options.python,
            options.inputs.resolve(),
            Path(scratch).resolve(),
        )
        if options.command == "inputs":
            options.inputs.mkdir(parents=True)
            make_inputs(product, options.public, options.cases)
        else:
            names = options.only.split(",") if options.only else list(SECTIONS)
            freeze(product, options.out, names, quick=options.quick, jobs=options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
