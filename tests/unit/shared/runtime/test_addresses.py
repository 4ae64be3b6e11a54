"""Tests of addresses: they are read as written, and no message repeats a secret of one."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedperf_client import cli
from fedperf_server.state.database import Database
from fedperf_shared.errors import FedperfError, InvalidInputError
from fedperf_shared.runtime.addresses import Address, parse_place, without_secrets
from tests.unit.client.data_directories import made_home
from tests.unit.shared.console_programs import run

SECRET = "Zq7/Kx+S3cret=="
WITH_SECRETS = {
    "S3 keys": f"s3://AKIAEXAMPLE:{SECRET}@bucket/logs",
    "S3 key alone": f"s3a://{SECRET}@bucket/logs",
    "S3 options": f"s3://bucket/logs?access_key=AKIAEXAMPLE&secret_key={SECRET}",
    "S3 signature": f"s3://bucket/logs?X-Amz-Signature={SECRET}&region=eu-west-1",
    "S3 endpoint": f"s3://bucket/logs?endpoint_override=http://me:{SECRET}@host:9000",
    "Google token": f"gs://{SECRET}@bucket/logs",
    "Google option": f"gs://bucket/logs?access_token={SECRET}",
    "Azure key": f"abfss://logs:{SECRET}@account.dfs.core.windows.net/prod",
    "Azure SAS": f"abfss://logs@account.dfs.core.windows.net/prod?sv=2026&sig={SECRET}",
    "server": f"http://me:{SECRET}@host:18080",
    "server token": f"https://{SECRET}@host/history/app-1/jobs/",
    "server option": f"https://host:18080/?token={SECRET}",
    "no port": f"http://me:{SECRET}@host:port/",
    "quote": f"s3://AKIAEXAMPLE:it's{SECRET}@bucket/logs",
    "question mark": f"s3://AKIAEXAMPLE:a?{SECRET}@bucket/logs",
    "other store": f"wasbs://logs:{SECRET}@account/prod?sig={SECRET}",
    "bare option": f"https://host:18080/?{SECRET}",
    "invitation": "fedperf://host:9092/#ab12.S3cret",
    "hdfs": f"hdfs://me:{SECRET}@host/logs",
    "ftp": f"ftp://me:{SECRET}@host/logs",
    "database": f"postgresql+psycopg://fed:{SECRET}@127.0.0.1:9/fedperf?password={SECRET}",
}
"""Addresses of every opener, and a database URL, with secrets in every place."""

COMMANDS = (
    *(("ingest",), ("advise",), ("predict",), ("ingest", "--dry-run", "--json")),
    ("compare", "--after", "nowhere", "--before"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_home(tmp_path_factory.mktemp("home")).directory


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_message_about_an_address_repeats_no_secret(name: str) -> None:
    address = WITH_SECRETS[name]
    assert "S3cret" not in without_secrets(f"cannot open {address}: gone")
    with pytest.raises(InvalidInputError) as refused:
        parse_place(address)
    assert "S3cret" not in str(refused.value)
    assert "AKIA" not in str(refused.value)


@pytest.mark.parametrize("name", WITH_SECRETS)
def test_command_with_a_secret_in_an_address_prints_none(name: str) -> None:
    for before in ("diagnose", "diagnose nowhere --prices"):
        ended = run(cli.main, *before.split(), WITH_SECRETS[name])
        assert ended.code == 3
        assert "S3cret" not in ended.out + ended.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", ["S3 keys", "Azure SAS", "server"])
def test_any_command_with_a_secret_in_an_address_prints_none(
    home: Path, command: tuple[str, ...], name: str
) -> None:
    ended = run(cli.main, "--home", home, *command, WITH_SECRETS[name])
    assert ended.code == 3
    assert "S3cret" not in ended.out + ended.err


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_SECRETS)
def test_configuration_with_a_secret_in_an_address_is_refused_without_it(
    tmp_path: Path, name: str
) -> None:
    made = made_home(tmp_path)
    made.config.write_text(f'watch_paths = ["{WITH_SECRETS[name]}"]')
    for command in (["doctor"], ["doctor", "--json"]):
        ended = run(cli.main, "--home", made.directory, *command)
        assert ended.code != 0
        assert "S3cret" not in ended.out + ended.err


@pytest.mark.parametrize("url", [WITH_SECRETS["database"], f"postgresql+psycopg://a:{SECRET}@h:x/"])
def test_database_that_cannot_be_opened_names_no_password(url: str) -> None:
    with pytest.raises(FedperfError) as refused:
        Database(url)
    assert "S3cret" not in str(refused.value)


def test_parse_place_returns_paths_and_addresses() -> None:
    assert parse_place("logs/s3") == Path("logs/s3")
    assert parse_place("C:/logs") == Path("C:/logs")
    assert parse_place("S3A://bucket//a%20b/?region=eu-west-1") == Address(
        "s3a", "bucket", "a b", (("region", "eu-west-1"),)
    )
    assert str(parse_place("abfss://logs@account.dfs/prod/")) == "abfss://logs@account.dfs/prod"
    shown = parse_place("https://host/gate/history/app-7/1/stages/?id=3")
    assert shown == Address("https", "host", "gate/history/app-7/1/stages")


names = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20)


@given(st.sampled_from(["s3", "gs"]), names)
def test_address_as_text_is_parsed_as_the_same_address(scheme: str, name: str) -> None:
    assume(name == name.strip("/") and ":" not in name)
    address = Address(scheme, "bucket", "logs", (("endpoint_override", "127.0.0.1:9"),)) / name
    assert parse_place(str(address)) == address


@given(st.text())
def test_text_without_an_address_stays_as_it_is(text: str) -> None:
    assume(":/" not in text)
    assert without_secrets(text) == text
    assert without_secrets(without_secrets(f"s3://{text}")) == without_secrets(f"s3://{text}")
