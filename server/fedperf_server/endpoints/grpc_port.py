"""A port of gRPC with TLS: taken, or refused with its address."""

import grpc

from fedperf_server.config import FILE_NAME
from fedperf_shared.errors import ConfigurationError


class PortTakenError(ConfigurationError):
    """A port cannot be listened on."""

    def __init__(self, address: str, setting: str, reason: str = "is the port taken?") -> None:
        super().__init__(
            f"cannot listen on {address}: {reason}; {setting} in {FILE_NAME} chooses the port, "
            "bind the address"
        )


class GrpcPort:
    """A gRPC server at one port."""

    def __init__(
        self,
        server: grpc.Server,
        bind: str,
        port: int,
        credentials: grpc.ServerCredentials,
        *,
        setting: str,
    ) -> None:
        """Take the port for `server`.

        Args:
            server: with its services.
            bind: address to listen on.
            port: that it listens on.
            credentials: of TLS.
            setting: key of the configuration that chose the port.

        Raises:
            PortTakenError: the port is taken.
        """
        address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
        try:
            server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise PortTakenError(address, setting) from error
        self._server = server

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=1).wait()
