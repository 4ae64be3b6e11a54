"""A wrong certificate, a wrong clock or an absent coordinator: one error line, no lost data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node.enrollment import Membership, load_or_create_key
from fedperf_client.node.exchange import ExchangeClient, RefusedByCoordinatorError
from fedperf_client.release.policy import policy_template
from fedperf_server import cli as server_cli
from fedperf_server.app.composition import store_first_version
from fedperf_server.app.process import serving
from fedperf_server.config import ServerConfig
from fedperf_server.state.database import Database
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.identity import new_private_key, sign
from fedperf_shared.model import pretrained
from fedperf_shared.releases import basis
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    ReleaseKind,
    ResidualReport,
    SignedRelease,
    SizeClass,
    SlotKey,
)
from fedperf_shared.wire import codec
from tests.fakes.rounds import tangent_avg, task_of
from tests.integration.federation.small_federation import full_schedule
from tests.integration.organizations.deployments import (
    join,
    make_executions,
    make_public_files,
    new_coordinator,
    new_home,
    now,
    operator,
    whole_second,
)
from tests.integration.organizations.programs import START
from tests.unit.shared.console_programs import Ended, contents, nothing_lost, run

FIRST = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
SOME = [SlotTimes(timedelta(0), timedelta(seconds=1))] * 2


def fedperf(home: Home, *arguments: object) -> Ended:
    return run(cli.main, "--home", home.directory, *arguments)


def fedperf_server(config: ServerConfig, *arguments: object) -> Ended:
    return run(server_cli.main, "--directory", config.directory, *arguments)


def table() -> ReleaseCalendar:
    return ReleaseCalendar(
        Period(whole_second(now()) - timedelta(seconds=5), timedelta(hours=1), 2),
        (SOME[0],),
        (SOME[1],),
    )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerConfig:
    public = make_public_files(tmp_path / "public")
    monkeypatch.setattr(pretrained, "PRETRAINED_PATH", public / START)
    return new_coordinator(tmp_path / "server", table())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    executions = make_executions(5, seed=1)
    home = new_home(tmp_path / "home", policy_template(SizeClass.SMALL, 800), executions)
    with ExecutionStore.open(home.store) as store:
        store.add(executions)
    return home


@contextmanager
def coordinator(
    config: ServerConfig, clock: Callable[[], datetime] = now
) -> Iterator[Callable[[Home], None]]:
    """Yield a function that lets an organization join the running coordinator."""
    database = Database(config.database_url)
    start = [*pretrained.load_pretrained_model().arrays.values()]
    store_first_version(database, GgfnFormat(), start, at=clock())
    database.close()

    task = task_of(tangent_avg(), evaluate=lambda arrays: float(len(arrays)))
    with (
        serving(config, task, clock=clock),
        operator(config) as tools,
    ):
        yield lambda home: join(home, tools.add_organization(home.directory.name).url)


@pytest.mark.slow
def test_join_url_with_another_certificate_is_refused_and_the_right_one_works(
    config: ServerConfig, home: Home
) -> None:
    # Coordinator and commands share this process: the coordinator's log is captured,
    # so that it does not mix with the output of commands.
    with capture_logs() as logs, coordinator(config), operator(config) as tools:
        url = tools.add_organization("one").url
        front, back = url.split("#")
        other = "0" * 64 + back[64:]
        before = contents(home.directory)
        ended = fedperf(home, "join", f"{front}#{other}")
        assert ended.code == 6
        assert "another certificate" in ended.complaint()
        assert nothing_lost(before, home.directory)
        (invited,) = fedperf_server(config, "org", "list", "--json").rows()
        assert invited["state"] == "invited"
        joined = fedperf(home, "join", url, "--json").json()
        (listed,) = fedperf_server(config, "org", "list", "--json").rows()
    assert isinstance(joined, dict)
    (said,) = [each for each in logs if each["event"] == "organization joined"]
    assert (said["name"], said["fingerprint"]) == ("one", joined["fingerprint"])
    assert joined["fingerprint"] == listed["fingerprint"]
    assert joined["calendar"] == "coordinator", "and says when the first release leaves by it"
    status = fedperf(home, "status", "--json").json()
    assert isinstance(status, dict)
    assert status["first_release"] == joined["first_release"]


@pytest.mark.slow
def test_daemon_refuses_coordinator_with_another_certificate(
    config: ServerConfig, home: Home, tmp_path: Path
) -> None:
    stranger = new_coordinator(tmp_path / "stranger", config.calendar)
    with coordinator(config) as admit:
        admit(home)
    membership = Membership.load(home.identity)
    replace(membership, exchange_address=stranger.exchange_address).save(home.identity)
    with coordinator(stranger):
        before = contents(home.directory)
        ended = fedperf(home, "daemon")
    assert ended.code == 6
    assert "right certificate" in ended.complaint()
    assert nothing_lost(before, home.directory)
    assert home.ledgers == ()


@pytest.mark.slow
@pytest.mark.parametrize(("hours", "side"), [(-1, "ahead of"), (1, "behind")])
def test_daemon_with_clock_skew_is_refused_before_any_charge(
    hours: float, side: str, config: ServerConfig, home: Home
) -> None:
    with coordinator(config) as admit:
        admit(home)
    before = contents(home.directory)
    with coordinator(config, clock=lambda: now() + timedelta(hours=hours)):
        ended = fedperf(home, "daemon")
    assert ended.code == 6
    assert f"s {side} the coordinator" in ended.complaint()
    assert nothing_lost(before, home.directory)
    assert home.ledgers == ()


@pytest.mark.slow
def test_daemon_with_unreachable_coordinator_names_its_address(
    config: ServerConfig, home: Home
) -> None:
    with coordinator(config) as admit:
        admit(home)
    before = contents(home.directory)
    ended = fedperf(home, "daemon")
    assert ended.code == 6
    assert config.exchange_address in ended.complaint()
    assert nothing_lost(before, home.directory)


def test_daemon_of_revoked_organization_suggests_new_invitation(
    config: ServerConfig, home: Home
) -> None:
    with coordinator(config) as admit:
        admit(home)
        assert fedperf_server(config, "org", "revoke", home.directory.name).code == 0
        ended = fedperf(home, "daemon")
    assert ended.code == 6
    assert "new invitation" in ended.complaint()


def report(values: NDArray[np.int64] | None = None, **changes: object) -> bytes:
    size = 2 * basis.CELLS
    plain = ResidualReport(FIRST, basis.BASIS_VERSION, 1, -20, np.zeros(size, dtype=np.int64))
    if values is not None:
        plain = replace(plain, values=values)
    return codec.encode_release(replace(plain, **changes))  # type: ignore[arg-type]


def one_value(value: int) -> NDArray[np.int64]:
    values = np.zeros(2 * basis.CELLS, dtype=np.int64)
    values[0] = value
    return values


def test_bad_reports_are_refused_counted_and_listed_for_the_operator(
    config: ServerConfig, home: Home
) -> None:
    """Reports hold no floats, so NaN cannot be encoded. Undecodable bytes are sent instead."""
    unit = 2**20
    bad = {
        "malformed": b"\xff" * 50,
        "size": report(np.zeros(7, dtype=np.int64)),
        "range": report(one_value(-10 * 12 * 5 * unit)),
        "grid": report(grid_exponent=900),
        "basis_version": report(basis_version=9),
        "reference_version": report(reference_version=77),
        "unknown_slot": report(slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, 1, 3)),
        "not_open": report(slot=SlotKey(ReleaseKind.RESIDUAL_REPORT, 1, 0)),
    }
    with coordinator(config) as admit:
        admit(home)
        membership, key = Membership.load(home.identity), load_or_create_key(home.identity)
        with ExchangeClient(membership, key) as exchange:
            exchange.declare_schedule(full_schedule(config.calendar))
            for reason, payload in bad.items():
                with pytest.raises(RefusedByCoordinatorError, match=reason):
                    exchange.submit(SignedRelease(payload, sign(key, payload)))
            forged = report()
            with pytest.raises(RefusedByCoordinatorError, match="signature"):
                exchange.submit(SignedRelease(forged, sign(new_private_key(), forged)))
            good = report()
            exchange.submit(SignedRelease(good, sign(key, good)))
    (row,) = fedperf_server(config, "org", "list", "--json").rows()
    assert row["accepted"] == 1
    assert row["refused"] == {f"report/{reason}": 1 for reason in (*bad, "signature")}
