"""One request to a function behind HTTP, as on OpenFaaS, Knative or OSCAR.

Its wall time runs from sending to the last byte of the response. Where the response states how long
the function computed (`X-Duration-Seconds` of OpenFaaS, a metric of `Server-Timing`, W3C), the rest
counts as queue: waiting, starting the container, and the network. The function's resources are
unknown.

Refused before the clock starts are a token variable that is unset or unfit for a header, and a body
that cannot be read. Any later failure is an outcome with a reason. Reasons are written to files, so
a token in one, which the function may echo, is removed.
"""

import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from fedperf_client.workers.child_side import Json

_LONGEST_REASON = 300
_HIDDEN = "[token]"
_LATER_SECONDS = 10.0  # after the trial's own timeout, which ends the request with the trial
_COMPUTE_METRICS = frozenset({"compute", "exec", "execution", "function", "run", "app"})
_QUEUE_METRICS = frozenset({"queue", "queued", "wait", "waiting"})
_METRIC = re.compile(r"\s*([\w!#$%&'*+.^`|~-]{1,100})\s*(?:;[^,]{0,200})?")
_DURATION = re.compile(r";\s*dur\s*=\s*\"?([0-9.eE+-]{1,30})")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. `reason` explains an unexpected one and is empty otherwise."""

    reason: str = ""
    queue_seconds: float | None = None
    compute_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that is ready to leave."""

    client: httpx.Client
    request: httpx.Request
    expected_status: int
    token: str = field(default="", repr=False)

    @classmethod
    def prepare(cls, http: Json, directory: Path, *, seconds: float) -> "HttpCall":
        """Return the request that `http` describes; body files count from `directory`.

        Raises:
            ValueError: the token's variable holds none, or there is no such request.
            OSError: the body cannot be read.
        """
        headers = httpx.Headers(http["headers"])
        token = "" if http["token_env"] is None else _token(http["token_env"])
        if token:
            headers["Authorization"] = f"Bearer {token}"
        content = (http["body"] or "").encode()
        if http["body_file"] is not None:
            content = (directory / http["body_file"]).read_bytes()
        client = httpx.Client(timeout=seconds + _LATER_SECONDS)
        try:
            request = client.build_request(
                http["method"], http["url"], headers=headers, content=content
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            client.close()
            raise ValueError(f"no such request: {error}") from error
        return cls(client, request, http["expected_status"], token)

    def send(self) -> HttpResponse:
        """Send the call and read the whole response."""
        start = time.perf_counter()
        beginning = b""
        try:
            with self.client:
                response = self.client.send(self.request, stream=True)
                for part in response.iter_raw():
                    beginning = (beginning + part)[: _LONGEST_REASON + len(self.token)]
        except (httpx.HTTPError, OSError, ValueError) as error:
            return HttpResponse(self._shown(f"{type(error).__name__}: {error}"))
        queue, compute = split_of(response.headers, time.perf_counter() - start)
        if response.status_code != self.expected_status:
            body = " ".join(self._shown(beginning.decode(errors="replace")).split())
            reason = f"status {response.status_code} instead of {self.expected_status}. {body}"
            return HttpResponse(reason.strip(), queue, compute)
        return HttpResponse("", queue, compute)

    def _shown(self, text: str) -> str:
        """Return the text without the token, shortened."""
        hidden = text.replace(self.token, _HIDDEN) if self.token else text
        return hidden[:_LONGEST_REASON]


def split_of(headers: Mapping[str, str], seconds: float) -> tuple[float | None, float | None]:
    """Return queue and compute seconds, as far as a response after `seconds` states them."""
    metrics = _server_timing(headers.get("Server-Timing", ""))
    compute = next((metrics[name] for name in metrics if name in _COMPUTE_METRICS), None)
    queue = next((metrics[name] for name in metrics if name in _QUEUE_METRICS), None)
    if compute is None:
        compute = _seconds(headers.get("X-Duration-Seconds", ""))
    if queue is None and compute is not None:
        queue = max(0.0, seconds - compute)
    return queue, compute


def _token(variable: str) -> str:
    token = os.environ.get(variable, "")
    if not token:
        raise ValueError(f"the variable {variable} holds no token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError(
            f"the variable {variable} holds no token: one is of printable ASCII, without spaces "
            "or line breaks"
        )
    return token


def _server_timing(text: str) -> dict[str, float]:
    metrics = {}
    for entry in text[:10_000].split(","):
        name, duration = _METRIC.match(entry), _DURATION.search(entry)
        milliseconds = None if duration is None else _seconds(duration[1])
        if name is not None and milliseconds is not None:
            metrics[name[1].lower()] = milliseconds / 1000
    return metrics


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
