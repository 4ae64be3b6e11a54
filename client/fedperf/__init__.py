"""fedperf: predict how long data-analytics jobs take, from an organization's own logs.

    import fedperf

    data = fedperf.open("fedperf-data", create=True)
    data.ingest("/var/log/spark-events")
    newest = data.runs(last=1)[0]
    data.predict(newest["id"], cores=[16, 32, 64], deadline="20m").to_frame()
    fedperf.diagnose("/var/log/spark-events")

Each function is the command of the same name and gives the facts of its `--json`, whose names and
units are stable. Results are tables: sequences of dictionaries that notebooks show as tables.
Nothing leaves this machine. The programs are `fedperf`, `fedperf-server` and `fedperf-sim`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fedperf_shared.errors import FedperfError as Error

if TYPE_CHECKING:
    import pandas

__all__ = ["DataDirectory", "Error", "Table", "diagnose", "open"]
__version__ = version("fedperf")

StrPath = str | PathLike[str]
# The facts that hold the rows of a command's JSON.
_ROWS = ("rows", "predictions", "diagnoses", "applications", "workloads", "sources", "plans")


class Table(Sequence[Mapping[str, Any]]):
    """The result of a command: its rows, and facts about all of them in `facts`.

    Seconds, bytes and shares say so in their names. A fact that is unknown is None.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
        self._rows, self.facts = tuple(rows), dict(facts)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> "Table": ...
    def __getitem__(self, place: int | slice) -> "Mapping[str, Any] | Table":
        """Return a row, or a table of some rows."""
        if isinstance(place, slice):
            return Table(self._rows[place], self.facts)
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows of {', '.join(self._columns())})"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as new dictionaries."""
        return [dict(row) for row in self._rows]

    def to_frame(self) -> "pandas.DataFrame":
        """Return the rows as a DataFrame of pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def _columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def _repr_html_(self) -> str:
        """Return the table for notebooks, without columns that are empty in every row."""
        from html import escape

        names = [
            name
            for name in self._columns()
            if any(row.get(name) not in (None, "", [], {}) for row in self._rows)
        ]
        head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
        lines = (
            "".join(f"<td>{escape(_text(row.get(name)))}</td>" for name in names)
            for row in self._rows
        )
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """An organization's data directory: its configuration, runs and models; see `open`.

    Several programs may use it at the same time. All methods raise `Error` with one line that says
    what is wrong and what to do.
    """

    path: Path

    def ingest(
        self,
        *logs: StrPath,
        dry_run: bool = False,
        jobs: int = 1,
        job: str | None = None,
        job_name: str | None = None,
        time: str | None = None,
        cores: str | None = None,
        nodes: str | None = None,
        input_size: str | None = None,
        columns: Sequence[str] | None = None,
        mapping: StrPath | None = None,
    ) -> Table:
        """Store runs from logs, tables and histories; a row per source. Repeating has no effect.

        Args:
            logs: files, directories, or addresses of them.
            dry_run: read without storing.
            jobs: processes to read with. With several a script needs the guard
                `if __name__ == "__main__":`, as `multiprocessing` does.
            job: of a table of past runs, the column of the job's name.
            job_name: name of the job of all rows of a table.
            time: column of run times, such as "seconds" or "elapsed:ms".
            cores: column of cores in all.
            nodes: column of machines.
            input_size: column of input sizes, such as "rows" or "input:gb".
            columns: further columns that describe the job.
            mapping: TOML file with these columns.
        """
        return self._run(
            "ingest",
            *logs,
            dry_run=dry_run,
            jobs=jobs,
            job=job,
            job_name=job_name,
            time=time,
            cores=cores,
            nodes=nodes,
            input_size=input_size,
            columns=None if columns is None else _listed(columns),
            mapping=mapping,
        )

    def jobs(self) -> Table:
        """Return the jobs of tables and campaigns, which `predict` takes by name; a row per job."""
        return self._run("jobs")

    def runs(
        self,
        *,
        workload: str | None = None,
        search: str | None = None,
        status: str | None = None,
        platform: str | None = None,
        since: str | None = None,
        until: str | None = None,
        last: int | None = None,
    ) -> Table:
        """Return the stored runs, newest first; arguments select as the options of the command."""
        return self._run(
            "runs",
            workload=workload,
            search=search,
            status=status,
            platform=platform,
            since=since,
            until=until,
            last=last,
        )

    def predict(
        self,
        job: StrPath,
        *,
        cores: Sequence[int] | None = None,
        nodes: Sequence[int] | None = None,
        at: Mapping[str, object] | None = None,
        deadline: str | None = None,
        platform: str | None = None,
        database: StrPath | None = None,
    ) -> Table:
        """Predict run times; a row per size, with median, interval and query regime.

        Args:
            job: name of a job of `jobs`, id of a stored run or its beginning, or a workflow file.
                With `database` a SELECT in a file that ends with .sql, a directory of these, or a
                dbt project.
            cores: total cores to evaluate.
            nodes: node counts to evaluate.
            at: input size, such as `{"rows": "2x"}`, or values of a job's columns, such as
                `{"workers": [4, 8]}`.
            deadline: such as "20m". Each row then has the probability of meeting it.
            platform: for the whole workflow.
            database: DuckDB database that the queries read. They are explained and never run.
        """
        sizes = [f"{name}={_listed(value)}" for name, value in (at or {}).items()]
        options = {"cores": _sizes(cores), "nodes": _sizes(nodes), "at": sizes}
        words = {"deadline": deadline, "platform": platform, "database": database}
        return self._run("predict", job, **options, **words)

    def advise(
        self,
        *logs: StrPath,
        deadline: str | None = None,
        by: str | None = None,
        prices: StrPath | None = None,
    ) -> Table:
        """Recommend executors for the applications of Spark logs; a row per application.

        Args:
            logs: Spark event logs, or directories of them.
            deadline: such as "20m".
            by: the same as a time of day, such as "06:00".
            prices: TOML file of prices.
        """
        return self._run("advise", *logs, deadline=deadline, by=by, prices=prices)

    def compare(
        self,
        *,
        since: str | None = None,
        before: StrPath | None = None,
        after: StrPath | None = None,
    ) -> Table:
        """Find regressions since an upgrade or a date, or between logs; a row per workload.

        Args:
            since: first day or time (UTC) of the side after.
            before: logs of the side before, with `after`, instead of stored runs.
            after: logs of the side after.
        """
        return self._run("compare", since=since, before=before, after=after)

    def drift(self) -> Table:
        """Return since when stored runs take longer or shorter; a row per drift."""
        return self._run("drift")

    def _run(self, command: str, *words: StrPath, **options: object) -> Table:
        return _run(self.path, command, *words, **options)


def open(path: StrPath | None = None, *, create: bool = False) -> DataDirectory:  # noqa: A001
    """Open a data directory.

    Args:
        path: the directory; by default that of the environment variable FEDPERF_HOME, or of the
            user.
        create: make it, with a configuration and a privacy policy, if it is not there.

    Raises:
        Error: it is not there, or its configuration is wrong.
    """
    from fedperf_client.commands.program import default_home
    from fedperf_client.home.config import Home

    home = Home(Path(path) if path is not None else default_home())
    if create and not home.config.exists():
        _run(home.directory, "init")
    home.load_config()
    return DataDirectory(home.directory)


def diagnose(*logs: StrPath, prices: StrPath | None = None, top: int | None = None) -> Table:
    """Find what slows Spark jobs, with evidence and the potential saving; a row per job.

    Args:
        logs: Spark event logs, directories of them, or zips.
        prices: TOML file of prices.
        top: number of jobs.
    """
    return _run(None, "diagnose", *logs, prices=prices, top=top)


def _run(home: Path | None, command: str, *words: StrPath, **options: object) -> Table:
    """Return the JSON of a command as a table; errors are raised, not printed."""
    from fedperf_client.cli import app
    from fedperf_shared.runtime.command_line import call

    facts = call(
        app,
        *(() if home is None else (f"--home={home}",)),
        command,
        "--json",
        *_words(options),
        "--",
        *map(str, words),
    )
    facts.pop("schema", None)
    rows = next((facts.pop(name) for name in _ROWS if isinstance(facts.get(name), list)), [facts])
    return Table(rows, facts)


def _words(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            yield option
        elif isinstance(value, list):
            yield from (f"{option}={each}" for each in value)
        elif value not in (None, False):
            yield f"{option}={value}"


def _sizes(values: Sequence[int] | None) -> str | None:
    return None if values is None else _listed(values)


def _listed(value: object) -> str:
    """Return a value, or several separated by commas."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(each) for each in value)
    return str(value)


def _text(value: object) -> str:
    """Return a value for people: floats by four digits, lists without brackets."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
