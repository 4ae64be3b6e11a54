"""A membership with missing or damaged files: one error line, and no file is replaced."""

from pathlib import Path

import pytest

from fedperf_client.node.enrollment import KEY_FILE, KeyMissingError, Membership, load_or_create_key
from fedperf_client.node.exchange import ExchangeClient
from fedperf_shared.errors import ConfigurationError, StorageError
from fedperf_shared.identity import new_private_key
from tests.fakes.coordinator import membership_with
from tests.unit.client.data_directories import fedperf, made_home

MEMBERSHIP = membership_with(new_private_key())


@pytest.mark.parametrize("command", ["status", "daemon", "join fedperf://there:1/#x"])
def test_missing_private_key_is_reported_and_not_replaced(tmp_path: Path, command: str) -> None:
    home = made_home(tmp_path / "home")
    home.identity.mkdir()
    MEMBERSHIP.save(home.identity)
    ended = fedperf(home, *command.split())
    assert ended.code == 3
    assert f"no private key; restore {KEY_FILE} from a backup, or move" in ended.complaint()
    assert not (home.identity / KEY_FILE).exists()
    with pytest.raises(KeyMissingError):
        load_or_create_key(home.identity)


def test_membership_load_distinguishes_missing_from_incomplete_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="join with `fedperf join URL`"):
        Membership.load(tmp_path)
    MEMBERSHIP.save(tmp_path)
    (tmp_path / "coordinator.pem").unlink()
    with pytest.raises(
        ConfigurationError, match=r"a part .* only, without coordinator\.pem; restore"
    ):
        Membership.load(tmp_path)


def test_exchange_client_with_damaged_certificate_raises_storage_error() -> None:
    with pytest.raises(StorageError, match=r"certificate\.pem in the identity .* is damaged"):
        ExchangeClient(MEMBERSHIP, new_private_key())
