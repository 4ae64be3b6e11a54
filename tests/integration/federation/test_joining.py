"""Joining, membership and leaving over real sockets."""

import hashlib
import re
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from fedperf_client.commands.checks import Environment, Severity, examine
from fedperf_client.home.config import Home
from fedperf_client.node.enrollment import InvalidJoinUrlError, JoinRefusedError, Membership, join
from fedperf_client.node.exchange import ExchangeClient, ExchangeError
from fedperf_server.app.process import system_clock
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.identity import fingerprint, new_private_key
from tests.fakes.audit_log import verify_events
from tests.integration.federation.small_federation import (
    HOST,
    admit,
    calendar,
    free_ports,
    full_schedule,
    new_server,
    world,
)
from tests.unit.client.data_directories import fedperf, made_home


def test_join_shows_same_fingerprint_on_both_sides_and_keeps_name_on_server(
    tmp_path: Path,
) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        acme = admit(tmp_path, server.invite("Acme"), "acme", None)
        (member,) = server.operator.members()
        assert member.fingerprint == fingerprint(acme.key.public_key())
        assert member.name == "Acme"
        assert b"Acme" not in acme.membership.certificate
        assert acme.membership.organization_id == member.organization_id
        assert Membership.load(tmp_path / "acme") == acme.membership
        with acme.exchange() as exchange:
            assert exchange.status().model_version == 1
        with server.database.transaction() as session:
            assert verify_events(session) == 2


def test_invitation_used_twice_is_refused(tmp_path: Path) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme")
        admit(tmp_path, url, "acme", None)
        with pytest.raises(JoinRefusedError, match="used already"):
            join(url, new_private_key())


def test_join_with_unknown_or_expired_token_is_refused_in_one_line(tmp_path: Path) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme")
        with pytest.raises(JoinRefusedError, match="does not know this invitation") as refusal:
            join(url[:-4] + "0000", new_private_key())
        assert "\n" not in str(refusal.value)
        late = server.operator.add_organization("Late", lifetime=timedelta(seconds=-1)).url
        with pytest.raises(JoinRefusedError, match="expired"):
            join(late, new_private_key())


def test_join_with_certificate_other_than_pinned_is_refused(tmp_path: Path) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme")
        pin = url.split("#")[1].split(".")[0]
        port = server.config.enrollment_port
        pem = ssl.get_server_certificate((HOST, port))
        assert hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest() == pin
        with pytest.raises(JoinRefusedError, match="another certificate"):
            join(url.replace(pin, "0" * 64), new_private_key())
        assert server.operator.members() == []


def test_join_at_wrong_coordinator_port_suggests_port_of_the_invitation(tmp_path: Path) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme")
        here, other = server.config.enrollment_port, server.config.exchange_port
        with pytest.raises(JoinRefusedError, match="is it the port of the invitation"):
            join(url.replace(f":{here}/", f":{other}/"), new_private_key())


def test_join_with_host_not_in_certificate_names_the_valid_host(
    tmp_path: Path,
) -> None:
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme").replace(HOST, "localhost")
        says = f"not for 'localhost' but for {HOST}; check the host in the join URL"
        with pytest.raises(JoinRefusedError, match=re.escape(says)):
            join(url, new_private_key())


def test_join_of_joined_data_directory_is_refused_until_revocation(tmp_path: Path) -> None:
    home = made_home(tmp_path / "home")
    with world(new_server(tmp_path / "server", calendar())) as server:
        url = server.invite("Acme")
        joined = fedperf(home, "join", url)
        assert "fedperf-server org list" in joined.out
        assert "last contact (UTC): " in fedperf(home, "status").out
        before = Membership.load(home.identity)
        for each in (url, server.invite("Acme again")):
            again = fedperf(home, "join", each)
            assert again.code == 6
            assert "this home has joined already" in again.complaint()
        assert Membership.load(home.identity) == before
        server.operator.revoke("Acme")
        assert fedperf(home, "join", server.invite("Acme")).code == 0


def test_join_with_unreachable_coordinator_names_its_address(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(JoinRefusedError, match=f"no coordinator answers at {HOST}:{port}"):
        join(f"fedperf://{HOST}:{port}/#{'0' * 64}.{'0' * 48}", new_private_key())


@pytest.mark.parametrize("text", ["", "https://x:1/#a.b", "fedperf://x/#1.2", "fedperf://x:99999/"])
def test_join_with_invalid_url_is_refused(text: str) -> None:
    with pytest.raises(InvalidJoinUrlError):
        join(text, new_private_key())


@pytest.mark.slow
def test_doctor_distinguishes_joined_revoked_and_unreachable_coordinator(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.directory.mkdir(mode=0o700)

    def verdicts() -> dict[str, Severity]:
        found = examine(home, Environment(system_clock))
        return {each.check: each.verdict for each in found}

    with world(new_server(tmp_path / "server", calendar())) as server:
        admit(home.directory, server.invite("Acme"), "identity", None)
        assert (verdicts()["identity"], verdicts()["coordinator"]) == (Severity.OK, Severity.OK)
        server.operator.revoke("Acme")
        assert (verdicts()["identity"], verdicts()["coordinator"]) == (
            Severity.OK,
            Severity.PROBLEM,
        )
    assert verdicts()["coordinator"] is Severity.WARNING


def test_revoked_organization_is_refused_from_its_next_call(tmp_path: Path) -> None:
    table = calendar()
    with world(new_server(tmp_path / "server", table)) as server:
        acme = admit(tmp_path, server.invite("Acme"), "acme", full_schedule(table))
        with pytest.raises(InvalidInputError, match="is a member already"):
            server.invite("Acme")
        with acme.exchange() as exchange:
            exchange.status()
            server.operator.revoke("Acme")
            with pytest.raises(ExchangeError, match="does not know this organization"):
                exchange.status()
        with pytest.raises(InvalidInputError, match="no organization is called"):
            server.operator.revoke("Acme")
        again = admit(tmp_path, server.invite("Acme"), "acme", full_schedule(table))
        assert again.membership.organization_id != acme.membership.organization_id


def test_exchange_refuses_certificate_of_another_authority(tmp_path: Path) -> None:
    with (
        world(new_server(tmp_path / "one", calendar())) as one,
        world(new_server(tmp_path / "two", calendar())) as two,
    ):
        ours = admit(tmp_path / "a", one.invite("Acme"), "acme", None)
        theirs = admit(tmp_path / "b", two.invite("Acme"), "acme", None)
        mixed = Membership(
            theirs.membership.organization_id,
            theirs.membership.certificate,
            ours.membership.ca_certificate,
            ours.membership.coordinator_public_key,
            ours.membership.exchange_address,
            ours.membership.fleet_address,
        )
        with (
            ExchangeClient(mixed, theirs.key, timeout_seconds=2) as exchange,
            pytest.raises(ExchangeError, match="no coordinator with the right certificate"),
        ):
            exchange.status()
