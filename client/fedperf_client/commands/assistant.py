"""`fedperf mcp`: tools for an assistant, by the Model Context Protocol over stdin and stdout.

Each tool runs one command of `fedperf` with `--json` in a process of its own, so an assistant gets
what a person gets. fedperf sends nothing anywhere: what a tool returns goes to the assistant and
its provider, exactly and without noise.

**Names.** Names, paths, SQL texts and every other text of the organization are replaced by ids,
drawn at random and valid until the server ends. A text leaves as it is only under a key of
`_PUBLIC` whose values come from fedperf's own code, and only if it has the form that the key
allows. Any other text is an id, so a new fact is hidden until somebody lists it. Sentences, which
may quote names, are left out. `with_names` turns this off.

**Reading only.** The commands that tools run change no stored run, no policy, no key and no ledger.
`predict` may save the fitted predictor in the data directory. Logs are read below the given
directories only, because an assistant may be misled by what it reads.

Source: Model Context Protocol, specification 2025-06-18, "Tools".
"""

import asyncio
import re
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from fedperf_client.commands.program import LocalPath, home_of
from fedperf_client.sources import find_sources
from fedperf_shared.runtime.command_line import EXIT_CODES

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

TIMEOUT_SECONDS = 300
MOST_LOGS = 1_000

_WORDS = re.compile(r"[a-z0-9][a-z0-9 _,:;()/%.+-]{0,79}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+-]+")
_ENGINE = re.compile(r"[a-z]{2,16} \d{1,3}(\.[\dx]{1,4}){0,3}")
_CONF = re.compile(r"--conf spark\.[A-Za-z.]{1,80}=[\w.]{1,16}")
# The keys whose texts come from fedperf's code, and the form of these texts.
_PUBLIC = {
    **dict.fromkeys(
        ("symptom", "status", "regime", "remarks", "verdict", "timing_scope"),
        _WORDS,
    ),
    **dict.fromkeys(("started_at", "finished_at"), _TIME),
    **dict.fromkeys(("source", "sources_before", "sources_after"), _ENGINE),
    "conf": _CONF,
}
# Sentences for people, which may quote names. Figures beside them say the same.
_SENTENCES = frozenset(
    {"evidence", "advice", "changes", "failure", "sentence", "not_read", "notes"}
)
# Objects whose keys are names of the organization.
_NAMED_BY_KEY = frozenset({"columns", "measured", "as_newest_run", "cheapest", "cheapest_feasible"})

_INTRODUCTION = """\
fedperf predicts run times of data-analytics jobs from the logs of this organization, and finds what
slows them. Seconds, bytes and cores are exact. Names are random ids; give them back as they are.
P50 is the median, nine of ten runs stay below P90. `extrapolating` marks queries beyond what was
measured: say so."""


@dataclass(slots=True)
class Pseudonyms:
    """Random ids for private texts, until the process ends."""

    with_names: bool = False
    _ids: dict[str, str] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)

    def hide(self, text: str) -> str:
        """Return the id of a text, the same for the same text; an empty text stays."""
        if self.with_names or not text:
            return text
        if text not in self._ids:
            name = f"name-{secrets.token_hex(6)}"
            self._ids[text], self._texts[name] = name, text
        return self._ids[text]

    def reveal(self, name: str) -> str:
        """Return the text of an id; any other text stays."""
        return self._texts.get(name, name)

    def publish(self, value: Any, key: str = "") -> Any:  # noqa: ANN401 (any JSON)
        """Return a JSON value with ids for all texts that do not come from fedperf's code."""
        if self.with_names:
            return value
        if isinstance(value, dict):
            is_named = key in _NAMED_BY_KEY
            return {
                self.hide(name) if is_named else name: self.publish(each, "" if is_named else name)
                for name, each in value.items()
                if is_named or name not in _SENTENCES
            }
        if isinstance(value, list):
            return [self.publish(each, key) for each in value]
        if isinstance(value, str):
            allowed = _PUBLIC.get(key)
            return value if allowed and allowed.fullmatch(value) else self.hide(value)
        return value


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools: each returns the JSON of one command, or raises `ToolError` of `mcp`."""

    home: Path
    logs: tuple[Path, ...]  # directories and files that may be read
    names: Pseudonyms

    async def list_logs(self) -> dict[str, Any]:
        """List the Spark event logs that `diagnose` and `advise` can read."""
        paths = [path for path, _ in find_sources(self.logs, [])][:MOST_LOGS]
        return {"rows": [{"log": self.names.hide(str(path))} for path in paths]}

    async def list_runs(
        self, workload: str | None = None, status: str | None = None, last: int = 20
    ) -> dict[str, Any]:
        """List stored runs of jobs, the newest first, with their run times and resources.

        Args:
            workload: only those of this workload, as another tool named it.
            status: only those that ended so: ok, failed, timeout or out_of_memory.
            last: how many.
        """
        options = self._options(workload=workload, status=status, last=last)
        return await self._run("runs", *options)

    async def predict(
        self,
        run: str,
        cores: Sequence[int] = (),
        input_rows: str | None = None,
        deadline: str | None = None,
    ) -> dict[str, Any]:
        """Predict the run time of a stored run's job on other cores or input sizes.

        Args:
            run: the id of a run, from `list_runs`.
            cores: total cores to evaluate, such as 8, 16 and 32.
            input_rows: input rows, such as 2x (twice as many) or 5e6.
            deadline: such as 90s, 20m or 1.5h; every prediction then has its probability.
        """
        at = None if input_rows is None else f"rows={input_rows}"
        sizes = ",".join(map(str, cores)) or None
        options = self._options(execution=run, cores=sizes, at=at, deadline=deadline)
        return await self._run("predict", *options)

    async def advise(self, log: str, deadline: str | None = None) -> dict[str, Any]:
        """Recommend the number of Spark executors for the applications of a log.

        Args:
            log: from `list_logs`.
            deadline: such as 20m; the recommendation then meets it where one does.
        """
        return await self._run("advise", self._log(log), *self._options(deadline=deadline))

    async def diagnose(self, log: str) -> dict[str, Any]:
        """Find what slows the Spark jobs of a log; each finding bounds the seconds it may save.

        Args:
            log: from `list_logs`.
        """
        return await self._run("diagnose", self._log(log))

    async def compare(self, since: str | None = None) -> dict[str, Any]:
        """Find workloads that take longer since an upgrade, or since a date.

        Args:
            since: first day of the side after, such as 2026-03-01; an upgrade by default.
        """
        return await self._run("compare", *self._options(since=since))

    def _log(self, name: str) -> str:
        """Return the path that an id or a path names."""
        path = Path(self.names.reveal(name)).resolve()
        if not any(path.is_relative_to(each.resolve()) for each in self.logs):
            raise _failure(f"{name}: not below the directories of --logs")
        return str(path)

    def _options(self, **values: object) -> list[str]:
        """Return options with their values, without those that are None."""
        return [
            f"--{name}={self.names.reveal(str(value))}"
            for name, value in values.items()
            if value is not None
        ]

    async def _run(self, command: str, *arguments: str) -> dict[str, Any]:
        """Return the JSON of a command.

        Raises:
            ToolError: the command failed, or did not end in time. Its own message is left out
                where names are hidden, because it may quote one.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from fedperf_client.cli import main; main()",
            *(f"--home={self.home}", command, "--json", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
        except TimeoutError as error:
            raise _failure(f"{command} took over {TIMEOUT_SECONDS} s") from error
        finally:
            if process.returncode is None:
                process.kill()
        if not out:
            code = process.returncode or 0
            reason = EXIT_CODES.get(code, f"exit code {code}")
            if self.names.with_names:
                reason = err.decode(errors="replace").strip() or reason
            raise _failure(f"{command} failed: {reason}")
        document: dict[str, Any] = self.names.publish(orjson.loads(out))
        return document


def _failure(reason: str) -> Exception:
    from mcp.server.mcpserver.exceptions import ToolError

    return ToolError(reason)


def make_server(tools: Tools) -> "MCPServer[Any]":
    """Return the server of these tools."""
    from mcp.server.mcpserver import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer(
        "fedperf", version=version("fedperf"), instructions=_INTRODUCTION, log_level="ERROR"
    )
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in (
        *(tools.list_logs, tools.list_runs, tools.predict),
        *(tools.advise, tools.diagnose, tools.compare),
    ):
        server.tool(annotations=reading, structured_output=True)(tool)
    return server


def mcp(
    context: typer.Context,
    logs: Annotated[
        list[Path] | None,
        typer.Option(
            click_type=LocalPath(),
            help="Directory of logs that tools may read; repeatable. None by default.",
        ),
    ] = None,
    with_names: Annotated[
        bool, typer.Option("--with-names", help="Show names, paths and messages as they are.")
    ] = False,
) -> None:
    """Serve tools to an assistant over standard input and output (Model Context Protocol).

    What a tool returns goes to the assistant and its provider, exactly and without noise. fedperf
    itself sends nothing. Names, paths and texts of your jobs are random ids unless --with-names.
    Tools read runs and logs; they change no run, policy, key or ledger.
    """
    tools = Tools(home_of(context).directory, tuple(logs or ()), Pseudonyms(with_names))
    make_server(tools).run("stdio")
