"""Tests of the History Server opener against a server of this process that speaks its API."""

import io
import re
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest

from fedperf_client import cli
from fedperf_client.home.store import ExecutionStore
from fedperf_client.sources import history_server, open_source
from fedperf_client.sources.history_server import list_applications
from fedperf_client.sources.ingestion import LISTING_SECONDS, follow
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.addresses import Address, parse_place
from tests.fakes.spark_logs import sample
from tests.unit.client.data_directories import made_home
from tests.unit.shared.console_programs import run

LOG = b"\n".join(map(orjson.dumps, sample()))


def zipped(name: str, content: bytes = LOG) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def attempt(
    updated: int, number: str | None = None, *, completed: bool = True
) -> dict[str, object]:
    row: dict[str, object] = {"lastUpdatedEpoch": updated, "completed": completed}
    return row if number is None else {**row, "attemptId": number}


class Server(ThreadingHTTPServer):
    """A History Server with the answers that a test gives it, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, bytes | int | str] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def serves(self, *applications: dict[str, object]) -> None:
        base = "/api/v1/applications"
        self.answers[base] = orjson.dumps(applications)
        for each in applications:
            self.answers[f"{base}/{each['id']}"] = orjson.dumps(each)
            for one in each["attempts"]:  # type: ignore[attr-defined]
                number = f"/{one['attemptId']}" if "attemptId" in one else ""
                self.answers[f"{base}/{each['id']}{number}/logs"] = zipped(str(each["id"]))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.logins.append(self.headers["Authorization"])
        answer = self.server.answers.get(self.path.partition("?")[0], 404)
        if isinstance(answer, str):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
            return
        self.send_response(answer if isinstance(answer, int) else 200)
        self.end_headers()
        if isinstance(answer, bytes):
            self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("HOME", str(tmp_path))
    history_server._download.cache_clear()
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def listed(text: str) -> list[str]:
    address = parse_place(text)
    assert isinstance(address, Address)
    return [str(each) for each in list_applications(address)[0]]


def refusal(text: str) -> str:
    with pytest.raises(InvalidInputError) as refused:
        listed(text)
    return str(refused.value)


def test_server_lists_every_attempt_of_finished_applications_oldest_first(server: Server) -> None:
    server.serves(
        {"id": "app-2", "attempts": [attempt(30, "2"), attempt(10, "1")]},
        {"id": "app-1", "attempts": [attempt(20)]},
        {"id": "app-3", "attempts": [attempt(5, completed=False)]},
    )
    names = ["app-2/1", "app-1", "app-2/2"]
    assert listed(f"{server.address}/") == [f"{server.address}/history/{each}" for each in names]
    assert listed(f"{server.address}/history/app-2/jobs/") == [
        f"{server.address}/history/app-2/1",
        f"{server.address}/history/app-2/2",
    ]
    (one,) = listed(f"{server.address}/api/v1/applications/app-2/2/logs?id=3")
    assert one.endswith("/history/app-2/2")
    (running,) = listed(f"{server.address}/history/app-3")
    assert running.endswith("app-3")
    listed(f"{server.address}?minEndDate=2026-11-01")
    assert server.asked[-1] == "/api/v1/applications?minEndDate=2026-11-01"


def test_ingest_of_a_server_stores_each_attempt_once_and_skips_it_then(
    server: Server, tmp_path: Path
) -> None:
    home = made_home(tmp_path / "home").directory
    server.serves({"id": "app-1", "attempts": [attempt(10)]})
    first = run(cli.main, "--home", home, "ingest", server.address, "--json")
    assert first.code == 0, first.err
    facts = first.json()
    assert isinstance(facts, dict)
    assert (facts["new"] > 0, facts["unchanged"]) == (True, 0)
    assert facts["sources"][0]["source"] == f"{server.address}/history/app-1"
    downloads = sum(each.endswith("/logs") for each in server.asked)
    assert downloads == 1
    again = run(cli.main, "--home", home, "ingest", server.address, "--json").json()
    assert isinstance(again, dict)
    assert (again["read"], again["unchanged"]) == (0, 1)
    forced = run(cli.main, "--home", home, "ingest", server.address, "--again", "--json").json()
    assert isinstance(forced, dict)
    assert (forced["read"], forced["new"]) == (facts["read"], 0)
    server.serves({"id": "app-1", "attempts": [attempt(11)]})
    changed = run(cli.main, "--home", home, "ingest", server.address, "--json").json()
    assert isinstance(changed, dict)
    assert (changed["read"], changed["new"]) == (facts["read"], 0)


def test_diagnose_of_an_application_equals_that_of_its_log(server: Server, tmp_path: Path) -> None:
    server.serves({"id": "app-1", "attempts": [attempt(10)]})
    (tmp_path / "app-1").write_bytes(LOG)
    remote = run(cli.main, "diagnose", f"{server.address}/history/app-1", "--json")
    local = run(cli.main, "diagnose", tmp_path / "app-1", "--json")
    assert (remote.code, remote.out) == (0, local.out)


def test_follow_lists_a_server_again_only_after_a_while(server: Server, tmp_path: Path) -> None:
    server.serves({"id": "app-1", "attempts": [attempt(10)]})
    address, store = parse_place(server.address), tmp_path / "store"
    moments = {"now": 0.0}

    first = follow([address], {}, store, timer=lambda: moments["now"])
    assert first.taken.new > 0
    asked = len(server.asked)
    moments["now"] = LISTING_SECONDS - 1
    second = follow([address], first.states, store, timer=lambda: moments["now"])
    assert len(server.asked) == asked
    moments["now"] = LISTING_SECONDS + 1
    third = follow([address], second.states, store, timer=lambda: moments["now"])
    assert server.asked[asked:] == ["/api/v1/applications"]
    assert third.taken.executions == 0


def test_follow_keeps_the_problem_of_a_server_until_it_is_listed_again(
    server: Server, tmp_path: Path
) -> None:
    address, store = parse_place(server.address), tmp_path / "store"
    first = follow([address], {}, store, timer=lambda: 0.0)
    assert len(first.problems) == 1
    second = follow([address], first.states, store, timer=lambda: 1.0)
    assert second.problems == first.problems
    server.serves({"id": "app-1", "attempts": [attempt(10)]})
    third = follow([address], second.states, store, timer=lambda: LISTING_SECONDS + 1)
    assert (third.problems, third.taken.new > 0) == ((), True)
    with ExecutionStore.open(store) as opened:
        assert list(opened.sources()) == [f"{server.address}/history/app-1"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (404, "no Spark History Server answers there"),
        (401, "it wants a login; put them into ~/.netrc"),
        (403, "access was denied"),
        (500, "the server failed \\(HTTP 500\\)"),
        (b"<html>", "no Spark History Server answers there"),
        (b'{"a": 1}', "no Spark History Server answers there"),
        (b"[[]]", "no Spark History Server answers there"),
        (b'[{"id": 1, "attempts": [{}]}]', "no Spark History Server answers there"),
        ("file:///etc/passwd", "server failed|cannot be reached"),
    ],
)
def test_server_with_a_wrong_answer_is_refused_in_one_line(
    server: Server, answer: bytes | int | str, told: str
) -> None:
    server.answers["/api/v1/applications"] = answer
    message = refusal(server.address)
    assert re.search(told, message), message
    assert "\n" not in message


def test_application_that_does_not_exist_is_refused(server: Server) -> None:
    server.serves({"id": "app-1", "attempts": [attempt(1, "1")]})
    assert "there is no such application" in refusal(f"{server.address}/history/app-9")
    assert "no such attempt" in refusal(f"{server.address}/history/app-1/2")


@pytest.mark.parametrize("size", [0, 50, 200])
def test_log_that_was_cut_off_is_refused_in_one_line(server: Server, size: int) -> None:
    server.serves({"id": "app-1", "attempts": [attempt(1)]})
    server.answers["/api/v1/applications/app-1/logs"] = zipped("app-1")[:size]
    ended = run(cli.main, "diagnose", server.address)
    assert ended.code == 3
    assert f"{server.address}/history/app-1: " in ended.complaint()


def test_login_of_netrc_is_sent_to_the_server_and_not_to_where_it_redirects(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password S3cret\n")
    (tmp_path / ".netrc").chmod(0o600)
    server.answers["/api/v1/applications"] = f"http://localhost:{server.server_port}/elsewhere"
    server.answers["/elsewhere"] = b"[]"
    assert listed(server.address) == []
    assert [each is not None for each in server.logins] == [True, False]
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me pass S3cret\n")
    message = refusal(server.address)
    assert "~/.netrc" in message
    assert "S3cret" not in message


def test_dead_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_server, "_SILENCE_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        message = refusal(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - start < 10
    assert "cannot be reached" in message


def test_download_leaves_no_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    server.serves({"id": "app-1", "attempts": [attempt(1)]})
    address = parse_place(server.address)
    assert isinstance(address, Address)
    (place,), _ = list_applications(address)
    assert list(open_source(place).read())
    assert list((tmp_path / "scratch").iterdir()) == []
