"""Tests of occupied ports: the error names the setting that chooses the port."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fedperf_server.endpoints.gateway import _listen
from fedperf_server.endpoints.grpc_ports import GrpcPort, PortTakenError
from fedperf_server.membership.authority import SERVER, init
from tests.unit.server.state.test_storage import NOW


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def exchange(directory: Path, port: int) -> object:
    ring = init(directory / "server", "127.0.0.1", now=NOW)
    credentials = grpc.ssl_server_credentials([(ring.key_pem(SERVER), ring.certificate(SERVER))])
    server = grpc.server(ThreadPoolExecutor(1))
    return GrpcPort(server, "127.0.0.1", port, credentials, setting="exchange_port")


def fleet(directory: Path, port: int) -> object:
    del directory
    return _listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("port_of", "setting"), [(exchange, "exchange_port"), (fleet, "fleet_port")]
)
def test_occupied_port_is_refused_as_input_error_naming_its_setting(
    tmp_path: Path, taken: int, port_of: Callable[[Path, int], object], setting: str
) -> None:
    with pytest.raises(PortTakenError, match=f"127.0.0.1:{taken}.*change {setting}") as refused:
        port_of(tmp_path, taken)
    assert refused.value.exit_code == 3
