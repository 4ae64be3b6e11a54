"""A server of functions in its own process: OpenFaaS `/function/NAME`, OSCAR `/run/NAME`.

Run as a program it prints its port and serves requests until it is killed. `/run/NAME` requires
the bearer token "sesame". Functions by name:

- `echo` returns the request body.
- `slow` takes 0.2 s.
- `broken` returns status 500.
- `flaky` returns status 503 for the first request.
- `hang` never responds.
- `timed` returns its queue and compute time in `Server-Timing`.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "sesame"


class Functions(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    flaky_calls = 0

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _, route, name, *_ = [*self.path.partition("?")[0].split("/"), "", ""]
        start = time.perf_counter()
        if route not in ("function", "run"):
            self._answer(404, b"no such route")
        elif route == "run" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, b"who are you")
        else:
            status, content, headers = self._run(name, sent)
            headers.setdefault("X-Duration-Seconds", f"{time.perf_counter() - start:.6f}")
            self._answer(status, content, headers)

    def do_GET(self) -> None:
        self.do_POST()

    def _run(self, name: str, sent: bytes) -> tuple[int, bytes, dict[str, str]]:
        if name == "broken":
            return 500, b"<b>it broke</b>", {}
        if name == "flaky":
            Functions.flaky_calls += 1
            return (503 if Functions.flaky_calls == 1 else 200), b"", {}
        if name == "timed":
            return 200, b"", {"Server-Timing": 'queue;dur=125.5, compute;desc="it";dur=250'}
        if name in ("slow", "hang"):
            time.sleep(0.2 if name == "slow" else 600)
        return 200, sent, {}

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        del arguments


@contextmanager
def function_server() -> Iterator[str]:
    """Yield the address of a server that runs until the block ends."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Functions)
    print(server.server_address[1], flush=True)
    server.serve_forever()
