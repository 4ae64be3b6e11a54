"""All sessions of a design: measured one after the other, kept, and joined into one file.

Each runs in a process of its own. A session that ended is renamed into its place in one step
with the engine's own logs, so that a killed command continues with the next one; a session
that failed as a whole is taken again by the next call. Refused: a directory that another
design was measured in.
"""

import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.sql import duckdb_session, spark_session
from fedperf_simulations.corpus.sql.session_draws import SessionDesign
from fedperf_simulations.corpus.sql.session_records import (
    SessionReading,
    sessions_in,
    write_runs,
)
from fedperf_simulations.corpus.sql.sessions import (
    LONGEST_SECONDS,
    RECORD_FILE,
    SqlSession,
    write_session,
)
from fedperf_simulations.corpus.sql.tables import prepare_tables
from fedperf_simulations.harness.terminal import bar

_PROGRAMS = {
    Platform.DUCKDB: duckdb_session.__name__,
    Platform.SPARK: spark_session.__name__,
}
_STARTING_SECONDS = 600.0
DISTURBED_CORES = 0.3
_SAID = "said.txt"
_DESIGN_FILE = "design.json"


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The contents of the sessions after a call of `measure_sessions`.

    Attributes:
        sessions: of the design.
        failed: of them without a record.
        executions: that were read.
        disturbed: of them beside more than `DISTURBED_CORES` of foreign load.
        failed_steps: steps that ended with an error, by its kind.
        skipped: records that gave no execution, by reason.
    """

    sessions: int
    failed: int
    executions: int
    disturbed: int
    failed_steps: Mapping[str, int]
    skipped: Mapping[str, int]


def measure_sessions(design: SessionDesign, out: Path, *, measured: Collection[str] = ()) -> None:
    """Run every session of the design that `out` lacks; safe to kill and repeat.

    Args:
        design: the sessions.
        out: where the engines' own logs are kept.
        measured: sessions that are known from elsewhere and not run again.

    Raises:
        ConfigurationError: another design was measured there.
    """
    _require_design(design, out)
    with bar(f"{design.kind} sessions", design.count) as advance:
        for session in design.sessions():
            if session.name not in measured and not (out / session.name).exists():
                for tables in session.tables:
                    prepare_tables(tables, out.parent / "data")
                _run(session, out)
            advance(session.name)


def join_sessions(
    design: SessionDesign, out: Path, path: Path, *, provenance: Mapping[str, str]
) -> SessionSummary:
    """Read all sessions that were finished and write their executions as one file.

    Sessions that a file at `path` holds and that are not in `out`, such as those that another
    machine measured, stay there.

    Raises:
        InvalidInputError: there are none.
        StorageError: the file cannot be written.
    """
    reading, failed, known = SessionReading(), 0, sessions_in(path)
    for session in design.sessions():
        if (out / session.name / RECORD_FILE).exists():
            reading.take(out / session.name)
        elif session.name not in known:
            failed += 1
    if not reading.runs:
        raise InvalidInputError(f"{out} holds no session with an execution")
    settings = orjson.dumps(asdict(design)).decode()
    write_runs(reading.runs, path, provenance={"settings": settings, **provenance})
    return SessionSummary(
        sessions=design.count,
        failed=failed,
        executions=len(reading.runs),
        disturbed=sum(run.host_busy_cores > DISTURBED_CORES for run in reading.runs),
        failed_steps=dict(reading.failed_steps),
        skipped=dict(reading.skipped),
    )


def _require_design(design: SessionDesign, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = out / _DESIGN_FILE
    # More sessions of the same draw may follow.
    wanted = orjson.dumps({**asdict(design), "count": None})
    if not file.exists():
        file.write_bytes(wanted)
    elif file.read_bytes() != wanted:
        raise ConfigurationError(
            f"{out} was begun with another design ({file.read_text(encoding='utf-8')}); "
            "repeat it or name another directory"
        )


def _run(session: SqlSession, out: Path) -> None:
    """Leave the session's directory whole, or with what its process said and no record."""
    unfinished = out / f"{session.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    write_session(session, unfinished)
    data = (out.parent / "data").resolve()
    command = [
        sys.executable,
        "-m",
        _PROGRAMS[session.engine],
        str(unfinished.resolve()),
        str(data),
    ]
    patience = _STARTING_SECONDS + LONGEST_SECONDS * sum(each.runs for each in session.steps)
    with (unfinished / _SAID).open("wb") as said:
        try:
            done = subprocess.run(command, stdout=said, stderr=said, timeout=patience, check=False)
        except subprocess.TimeoutExpired:
            return
    if done.returncode == 0:
        unfinished.replace(out / session.name)
