"""A port of gRPC with TLS: taken, or refused with its address."""

import grpc

from fedperf_shared.errors import ConfigurationError


def listen(server: grpc.Server, bind: str, port: int, credentials: grpc.ServerCredentials) -> None:
    """Let `server` listen.

    Raises:
        ConfigurationError: the port is taken.
    """
    address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
    try:
        server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {address}: is the port taken?") from error
