"""Tests of `fedperf mcp` with a real client over its standard input and output."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from fedperf_client import cli
from fedperf_client.commands.assistant import Pseudonyms
from fedperf_client.home.config import Home
from tests.fakes.spark_logs import SparkLog, grouped, node
from tests.unit.client.data_directories import made_home
from tests.unit.shared.console_programs import contents, run

CANARY = "Canary7f3a9"
TOOLS = {"list_logs", "list_runs", "predict", "advise", "diagnose", "compare"}
PROGRAM = "from fedperf_client.cli import main; main()"

Call = Callable[..., Awaitable[Any]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A data directory with three runs of a query, all of whose names hold the canary."""
    home = made_home(tmp_path / "home")
    log = SparkLog(app_id=f"app-{CANARY}", app_name=f"{CANARY} report").begin()
    scan = node(f"Scan parquet {CANARY}.table", rows=1, description=f"Scan {CANARY}")
    for number in range(3):
        plan, at = grouped(scan), 1000 + 5000 * number
        log.start(number, plan, at=at, description=f"quarterly {CANARY}")
        log.job(number, {1: 1000, 2: 90, 3: 30}, at=at + 10, end=at + 1900)
        log.finish(number, at=at + 2000)
    log.start(9, grouped(scan), at=20_000).finish(9, at=21_000, error=f"no such table {CANARY}")
    (tmp_path / "logs").mkdir()
    path = log.write(tmp_path / "logs" / f"log-{CANARY}")
    assert run(cli.main, "--home", home.directory, "ingest", path).code == 0
    return home


def with_client(home: Home, use: Callable[[Any], Awaitable[None]], *options: str) -> None:
    """Connect a client of the protocol's own library to `fedperf mcp`, and use it."""
    client = pytest.importorskip("mcp", reason="needs the extra mcp")
    from mcp.client.stdio import stdio_client

    async def connect() -> None:
        program = client.StdioServerParameters(
            command=sys.executable,
            args=["-c", PROGRAM, f"--home={home.directory}", "mcp", *options],
            env=dict(os.environ),
        )
        async with (
            stdio_client(program) as (reader, writer),
            client.ClientSession(reader, writer) as session,
        ):
            await session.initialize()
            await use(session)

    asyncio.run(connect())


@pytest.mark.slow
@pytest.mark.parametrize("with_names", [False, True])
def test_every_tool_returns_json_and_shows_names_only_on_request(
    home: Home, *, with_names: bool
) -> None:
    async def use(session: Any) -> None:
        documents: dict[str, Any] = {}

        async def call(tool: str, **arguments: object) -> Any:
            result = await session.call_tool(tool, arguments)
            assert not result.is_error, result.content
            documents[tool] = result.structured_content
            return documents[tool]

        assert {each.name for each in (await session.list_tools()).tools} == TOOLS
        (log,) = (await call("list_logs"))["rows"]
        runs = (await call("list_runs", last=10))["rows"]
        known = (await call("list_runs", workload=runs[-1]["workload"]))["rows"]
        predicted = await call("predict", run=runs[-1]["id"], cores=[8, 16], input_rows="2x")
        await call("diagnose", log=log["log"])
        await call("advise", log=log["log"])
        await call("compare", since="2025-06-15T15:06:46")
        assert {len(runs), len(known)} == {4}
        assert [each["cores"] for each in predicted["predictions"]] == [8, 16]
        assert set(documents) == TOOLS
        quoting = {
            name for name, each in documents.items() if CANARY.encode() in orjson.dumps(each)
        }
        assert quoting == (
            {"list_logs", "list_runs", "advise", "diagnose"} if with_names else set()
        )
        failed = await session.call_tool("predict", {"run": f"no-{CANARY}"})
        assert failed.is_error
        assert (CANARY in failed.content[0].text) == with_names

    before = contents(home.directory)
    options = [f"--logs={home.directory.parent / 'logs'}", *(["--with-names"] * with_names)]
    with_client(home, use, *options)
    changed = {path for path, each in contents(home.directory).items() if before.get(path) != each}
    assert all("predictor" in str(path) for path in changed), changed


@pytest.mark.slow
def test_tools_read_no_log_outside_of_the_given_directories(home: Home, tmp_path: Path) -> None:
    (log,) = (tmp_path / "logs").iterdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(log)

    async def use(session: Any) -> None:
        for path in (log, tmp_path / "open" / ".." / "logs" / log.name, tmp_path / "open" / "link"):
            result = await session.call_tool("diagnose", {"log": str(path)})
            assert result.is_error
            assert "not below" in result.content[0].text

    with_client(home, use, f"--logs={tmp_path / 'open'}")


def test_publish_replaces_each_unlisted_text_by_one_random_id() -> None:
    names = Pseudonyms()
    document = {"application": "secret", "rows": [{"workload": "secret", "cores": 4}], "cost": None}
    published = names.publish(document)
    name = published["application"]
    assert name != "secret"
    assert published == {
        "application": name,
        "rows": [{"workload": name, "cores": 4}],
        "cost": None,
    }
    assert names.reveal(name) == "secret"
    assert Pseudonyms().publish(document) != published


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("source", "spark 3.5.1-secret"),
        ("conf", "--conf spark.app.name=the secret"),
        ("started_at", "secret"),
        ("status", "Secret"),
        ("new_fact", "ok"),
    ],
)
def test_publish_hides_texts_that_do_not_have_the_form_of_their_key(key: str, text: str) -> None:
    assert Pseudonyms().publish({key: text})[key].startswith("name-")


def test_publish_leaves_out_sentences_and_hides_names_of_columns() -> None:
    published = Pseudonyms().publish({"evidence": "t of secret", "columns": {"secret": 3}})
    assert list(published) == ["columns"]
    assert [*published["columns"].values()] == [3]
    assert "secret" not in published["columns"]
