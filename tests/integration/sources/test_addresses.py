"""Logs at addresses of real systems: S3 (moto), emulators of Google and Azure, a History Server.

Each system skips with a reason where it is not installed.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from fedperf_client import cli
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import find_sources, object_store
from fedperf_client.sources.history_file import write_history
from fedperf_shared.runtime.addresses import parse_place
from tests.fakes.duckdb_profiles import grouped
from tests.fakes.spark_logs import sample
from tests.unit.client.data_directories import made_home
from tests.unit.client.executions import make_execution
from tests.unit.shared.console_programs import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs the extra [s3]"),
]

# The public key of Azurite's public account.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "S3cret",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AZURE_STORAGE_KEY": AZURITE_KEY,
}
MANY = 10_000
LIST = """
import resource, sys
from fedperf_client.sources import find_sources
from fedperf_shared.runtime.addresses import parse_place
found = list(find_sources([parse_place(sys.argv[1])], []))
used = resource.getrusage(resource.RUSAGE_SELF)
# `ru_maxrss` would count what the process was forked from.
status = dict(line.split(":") for line in open("/proc/self/status"))
print(len(found), used.ru_utime + used.ru_stime, int(status["VmHWM"].split()[0]) * 1024)
"""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def started(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """Run a server until the block ends; it has started when its port answers."""
    process = subprocess.Popen(
        command,
        env=os.environ | ENVIRONMENT | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"{command[:3]} ended with {process.returncode}"
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@dataclass(frozen=True)
class Store:
    """An object store with a bucket `logs`."""

    system: Any  # of pyarrow.fs
    address: str  # of the bucket, without options
    options: str

    def at(self, path: str) -> str:
        return f"{self.address}/{path}?{self.options}"

    def write(self, path: str, content: bytes) -> None:
        with self.system.open_output_stream(f"logs/{path}") as stream:
            stream.write(content)


@contextmanager
def moto() -> Iterator[Store]:
    from pyarrow import fs

    if importlib.util.find_spec("moto") is None:
        pytest.skip("needs moto[server,s3], of the extra [emulators]")
    port = free_port()
    with started([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        end = f"127.0.0.1:{port}"
        system = fs.S3FileSystem(
            endpoint_override=end, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        options = f"endpoint_override={end}&scheme=http&region=us-east-1"
        yield Store(system, "s3://logs", options)


@contextmanager
def google() -> Iterator[Store]:
    from pyarrow import fs

    if importlib.util.find_spec("gcp_storage_emulator") is None:
        pytest.skip("needs gcp-storage-emulator, of the extra [emulators]")
    port = free_port()
    place = ["--host", "127.0.0.1", "--port", str(port), "--in-memory", "--default-bucket", "logs"]
    with started([sys.executable, "-m", "gcp_storage_emulator", "start", *place], port):
        end = f"127.0.0.1:{port}"
        system = fs.GcsFileSystem(anonymous=True, endpoint_override=end, scheme="http")
        yield Store(system, "gs://logs", f"endpoint_override={end}&scheme=http&anonymous=true")


@contextmanager
def azure() -> Iterator[Store]:
    from pyarrow import fs

    beside = Path(sys.prefix) / "node_modules/.bin"
    program = shutil.which("azurite-blob", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("needs azurite: npm install --prefix .venv azurite")
    port = free_port()
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    with started([program, *place, "--skipApiVersionCheck"], port):
        end = f"127.0.0.1:{port}"
        ends = dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), end)
        schemes = dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), "http")
        account = "devstoreaccount1"
        system = fs.AzureFileSystem(account, account_key=AZURITE_KEY, **ends, **schemes)
        yield Store(system, f"abfs://logs@{account}", f"endpoint_override={end}&scheme=http")


STORES: dict[str, Callable[[], Any]] = {"s3": moto, "gs": google, "abfs": azure}


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        with STORES[request.param]() as store:
            store.system.create_dir("logs")
            yield store


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new objects count as complete."""
    monkeypatch.setattr(object_store, "WAITING_SECONDS", -3600.0)


def facts_of(*arguments: object) -> dict[str, Any]:
    ended = run(cli.main, *arguments, "--json")
    assert ended.code == 0, ended.err
    found = ended.json()
    assert isinstance(found, dict)
    return found


@pytest.mark.usefixtures("at_once")
def test_logs_in_a_store_are_stored_and_diagnosed_as_local_ones(
    store: Store, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    (local / "rolling" / "eventlog_v2_app").mkdir(parents=True)
    events = list(map(orjson.dumps, sample()))
    (local / "log").write_bytes(b"\n".join(events))
    (local / "rolling" / "eventlog_v2_app" / "events_1_app").write_bytes(b"\n".join(events[:9]))
    (local / "rolling" / "eventlog_v2_app" / "events_2_app").write_bytes(b"\n".join(events[9:]))
    (local / "profile").write_bytes(orjson.dumps(grouped(1)))
    (local / "notes").write_text("no log")
    write_history(local / "h.parquet", [make_execution(number) for number in range(40)])
    shutil.make_archive(str(local / "packed"), "zip", local, "log")
    for path in local.rglob("*"):
        if path.is_file():
            store.write(f"prod/{path.relative_to(local)}", path.read_bytes())
    homes = [made_home(tmp_path / name).directory for name in ("a", "b")]
    places = (local, store.at("prod"))
    found = [
        facts_of("--home", home, "ingest", place, "--jobs", "1")
        for home, place in zip(homes, places, strict=True)
    ]
    for each in found:
        each["sources"] = sorted(
            (Path(row["source"].partition("?")[0]).name, row["read"]) for row in each["sources"]
        )
    assert found[0] == found[1]
    ids = []
    for home in homes:
        with ExecutionStore.open(home / "executions.sqlite") as opened:
            ids.append({each.execution_id for each in opened.executions()})
    assert ids[0] == ids[1]
    again = facts_of("--home", homes[1], "ingest", store.at("prod"), "--jobs", "1")
    assert (again["read"], again["unchanged"]) == (0, 5)
    one = [facts_of("diagnose", place) for place in (local / "log", store.at("prod/log"))]
    assert one[0] == one[1]


def test_object_that_was_just_written_waits(store: Store, tmp_path: Path) -> None:
    home = made_home(tmp_path).directory
    store.write("young/log", b"\n".join(map(orjson.dumps, sample())))
    for command in ("ingest", "diagnose"):
        for place in ("young/log", "young"):
            ended = run(cli.main, "--home", home, command, store.at(place))
            assert ended.code == 3
            assert "written less than a minute ago" in ended.complaint()


@pytest.mark.parametrize("place", ["nothing/here", "nothing"])
def test_missing_object_or_bucket_is_one_line(store: Store, tmp_path: Path, place: str) -> None:
    home = made_home(tmp_path).directory
    missing = store.at(place)
    if place == "nothing":
        missing = missing.replace("//logs", "//no-such-bucket")
    ended = run(cli.main, "--home", home, "ingest", missing)
    assert ended.code == 3
    assert ended.complaint().endswith(f"{missing}: no such bucket, folder or object")


def test_dead_store_is_given_up_in_time_and_named_without_keys(
    store: Store, tmp_path: Path
) -> None:
    home = made_home(tmp_path).directory
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (free_port(), silent.getsockname()[1]):
            address = f"{store.address}/x?endpoint_override=127.0.0.1:{port}&scheme=http"
            if store.address.startswith("gs"):
                address += "&anonymous=true"
            start = time.monotonic()
            ended = run(cli.main, "--home", home, "ingest", address)
            assert time.monotonic() - start < 30
            assert ended.code == 3
            assert "cannot be reached; check the network" in ended.complaint()
            assert not any(key in ended.err for key in ("S3cret", "AKIA", AZURITE_KEY))


def test_wrong_key_is_one_line_that_says_how_to_give_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = made_home(tmp_path).directory
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with moto() as store:
        store.system.create_dir("logs")
        end = dict(each.split("=") for each in store.options.split("&"))["endpoint_override"]
        httpx.post(f"http://{end}/moto-api/reset-auth", content="0")
        ended = run(cli.main, "--home", home, "ingest", store.at("prod"))
    assert ended.code == 3
    assert "access was denied; set AWS_PROFILE" in ended.complaint()
    assert "S3cret" not in ended.err


@pytest.mark.timeout(900)
def test_ten_thousand_objects_are_listed_within_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with moto() as store:
        store.system.create_dir("logs")
        with ThreadPoolExecutor(8) as pool:
            names = [f"many/{number % 100}/{number}" for number in range(MANY)]
            list(pool.map(partial(store.write, content=b"no log"), names))
        listed = subprocess.run(
            [sys.executable, "-c", LIST, store.at("many")],
            capture_output=True,
            check=True,
            text=True,
        )
    found, cpu_seconds, peak_bytes = map(float, listed.stdout.split())
    assert found == MANY
    assert cpu_seconds < 30
    assert peak_bytes < 200 * 2**20


def test_history_server_of_pyspark_gives_the_runs_of_its_logs(
    tmp_path: Path,
) -> None:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("needs Java and the extra [spark]")
    import pyspark

    spark, port, logs = Path(pyspark.__file__).parent, free_port(), tmp_path / "logs"
    logs.mkdir()
    job = Path(__file__).with_name("spark_job.py")
    subprocess.run(
        [sys.executable, job, str(logs), "zstd", "true"],
        check=True,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=240,
    )
    options = f"-Dspark.history.fs.logDirectory=file://{logs} -Dspark.history.ui.port={port}"
    command = [str(spark / "bin/spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
    environment = {"SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1"}
    address = f"http://127.0.0.1:{port}"
    with started(command, port, SPARK_HISTORY_OPTS=options, **environment):
        place = parse_place(address)
        for _ in range(300):  # it answers before it has read its logs
            if list(find_sources([place], [])):
                break
            time.sleep(0.2)
        homes = [made_home(tmp_path / name).directory for name in ("a", "b")]
        found = [
            facts_of("--home", home, "ingest", each)
            for home, each in zip(homes, (logs, address), strict=True)
        ]
        assert found[0]["new"] == found[1]["new"] > 0
        assert facts_of("--home", homes[1], "ingest", address)["unchanged"] == 1
        one = [facts_of("diagnose", each)["diagnoses"] for each in (logs, address)]
        assert len(one[0]) == len(one[1])
