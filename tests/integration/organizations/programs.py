"""fedperf's real programs with a pretrained model made for the tests.

`python -m tests.integration.organizations.programs fedperf|fedperf-server ARGUMENTS`. The
directory in FEDPERF_TEST_PUBLIC holds the pretrained model and the plans. If FEDPERF_TEST_RECORD
names a directory, every byte that this process sends is written there before TLS encrypts it.
"""

import itertools
import os
import ssl
import sys
from pathlib import Path
from typing import Any

START, PLANS = "start.safetensors", "plans.binpb"
PUBLIC, RECORD = "FEDPERF_TEST_PUBLIC", "FEDPERF_TEST_RECORD"


def use_public_files(directory: Path) -> None:
    """Let both programs load the pretrained model and the plans in `directory`."""
    from fedperf_shared.model import pretrained, public_plans

    pretrained.PRETRAINED_PATH = directory / START
    public_plans.load_public_plans.__defaults__ = (directory / PLANS,)


def record_outgoing(directory: Path) -> None:
    """Copy all bytes sent by HTTP and by gRPC, one file per connection."""
    directory.mkdir(parents=True, exist_ok=True)
    _record_tls(directory)
    _record_grpc(directory)


def _record_tls(directory: Path) -> None:
    send = ssl.SSLSocket.send
    numbers = itertools.count()

    def recorded(self: ssl.SSLSocket, data: Any, flags: int = 0) -> int:
        if not hasattr(self, "recording"):
            name = f"http-{os.getpid()}-{next(numbers)}"
            self.recording = (directory / name).open("ab", buffering=0)  # type: ignore[attr-defined]
        sent = send(self, data, flags)
        self.recording.write(bytes(data)[:sent])  # type: ignore[attr-defined]
        return sent

    ssl.SSLSocket.send = recorded  # type: ignore[method-assign]


def _record_grpc(directory: Path) -> None:
    import grpc

    secure_channel = grpc.secure_channel
    numbers = itertools.count()

    class Recorder(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def __init__(self) -> None:
            name = f"grpc-{os.getpid()}-{next(numbers)}"
            self.file = (directory / name).open("ab", buffering=0)

        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            metadata = repr(details.metadata).encode()
            body = request.SerializeToString(deterministic=True)
            self.file.write(details.method.encode() + b"\n" + metadata + b"\n" + body + b"\n")
            return continuation(details, request)

    def recorded_channel(*arguments: Any, **options: Any) -> grpc.Channel:
        return grpc.intercept_channel(secure_channel(*arguments, **options), Recorder())

    grpc.secure_channel = recorded_channel


def main() -> None:
    program = sys.argv.pop(1)
    use_public_files(Path(os.environ[PUBLIC]))
    if record := os.environ.get(RECORD):
        record_outgoing(Path(record))
    if program == "fedperf":
        from fedperf_client.cli import main as run
    else:
        from fedperf_server.cli import main as run
    run()


if __name__ == "__main__":
    main()
