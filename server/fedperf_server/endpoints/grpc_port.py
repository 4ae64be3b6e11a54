"""A port of gRPC with TLS: taken, or refused with its address."""

import grpc

from fedperf_shared.errors import ConfigurationError


class GrpcPort:
    """A gRPC server at one port."""

    def __init__(
        self, server: grpc.Server, bind: str, port: int, credentials: grpc.ServerCredentials
    ) -> None:
        """Take the port for `server`.

        Raises:
            ConfigurationError: the port is taken.
        """
        address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
        try:
            server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigurationError(f"cannot listen on {address}: is the port taken?") from error
        self._server = server

    def start(self) -> None:
        """Serve until `stop`."""
        self._server.start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=1).wait()
