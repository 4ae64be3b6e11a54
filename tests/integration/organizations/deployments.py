"""Organizations and coordinators for system tests: real files, processes and sockets."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from fedperf_client.home.config import Home
from fedperf_client.node import enrollment as client_enrollment
from fedperf_client.node.enrollment import load_or_create_key
from fedperf_client.sources.history_file import write_history
from fedperf_server.config import ServerConfig, write_config
from fedperf_server.membership import authority
from fedperf_server.membership.authority import KeyRing
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.state.database import Database
from fedperf_shared.execution import Execution, ExecutionStatus, MeasuredPlan, Measurement
from fedperf_shared.model.public_plans import save_public_plans
from fedperf_shared.releases.period import ReleaseCalendar
from fedperf_simulations.model.ggfn import GGFN, save_model
from tests.integration.federation.small_federation import HOST, free_ports
from tests.integration.organizations.programs import PLANS, PUBLIC, RECORD, START
from tests.unit.client.prediction.synthetic import draw_questions, true_log_seconds

ROOT = Path(__file__).parents[3]
PUBLIC_PLANS = 40
USUAL_START = 3.5


def now() -> datetime:
    return datetime.now(UTC)


def make_public_files(directory: Path) -> Path:
    """Write a seeded, untrained model and some measured plans."""
    directory.mkdir(parents=True)
    save_model(directory / START, GGFN(seed=7), model_version=1)
    questions = draw_questions(np.random.default_rng(70), PUBLIC_PLANS)
    seconds = true_log_seconds(questions)
    save_public_plans(
        [
            MeasuredPlan(q.plan, q.cluster, float(s))
            for q, s in zip(questions, seconds, strict=True)
        ],
        directory / PLANS,
    )
    return directory


def make_executions(
    count: int, *, seed: int, workload: str = "workload", execution: str = "execution"
) -> list[Execution]:
    """Return `count` workloads of the synthetic prediction data, each executed once."""
    questions = draw_questions(np.random.default_rng(seed), count)
    seconds = np.exp(true_log_seconds(questions))
    return [
        Execution(
            execution_id=f"{execution}-{seed}-{number}",
            workload=f"{workload}-{seed}-{number}",
            plan=question.plan,
            cluster=question.cluster,
            status=ExecutionStatus.OK,
            measurement=Measurement(float(runtime), float(runtime), 10**6, 0, 0),
            finished_at=now() - timedelta(minutes=1) + timedelta(milliseconds=number),
        )
        for number, (question, runtime) in enumerate(zip(questions, seconds, strict=True))
    ]


def new_coordinator(
    directory: Path,
    table: ReleaseCalendar,
    *,
    host: str = HOST,
    quorum: int = 2,
    grace: float = 2.0,
) -> ServerConfig:
    """Create keys and configuration of a coordinator on free ports."""
    exchange, door, fleet = free_ports(3)
    config = ServerConfig(
        directory=directory,
        host=host,
        calendar=table,
        exchange_port=exchange,
        enrollment_port=door,
        fleet_port=fleet,
        quorum=quorum,
        grace=timedelta(seconds=grace),
        bind=host,
    )
    authority.init(directory, host, now=now())
    write_config(config)
    Database(config.database_url).close()
    return config


@contextmanager
def operator(config: ServerConfig) -> Iterator[Enrollment]:
    """Yield the operator's tools for a running coordinator."""
    database = Database(config.database_url)
    try:
        yield Enrollment(database, KeyRing(config.directory), config, clock=now)
    finally:
        database.close()


def new_home(
    directory: Path, policy: str, executions: Sequence[Execution], *, history: str = "history"
) -> Home:
    """Create an organization's data directory with a watched history."""
    home = Home(directory)
    home.create(policy)
    (directory / history).mkdir()
    write_history(directory / history / "jobs.parquet", executions)
    home.config.write_text(f'watch_paths = ["{history}"]\npoll_seconds = 0.5\n')
    return home


def join(home: Home, url: str) -> None:
    """Join in the way of `fedperf join URL`."""
    client_enrollment.join(url, load_or_create_key(home.identity)).save(home.identity)


@dataclass
class Program:
    """A running program and its output."""

    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self, *, patience: float = 20) -> int:
        """Terminate the program and return its exit code."""
        self.process.terminate()
        return self.process.wait(patience)


@dataclass
class Stage:
    """Starts programs and kills the remaining ones at the end."""

    directory: Path
    public: Path
    programs: list[Program] = field(default_factory=list)

    def start(self, program: str, *arguments: str, record: Path | None = None) -> Program:
        self.directory.mkdir(parents=True, exist_ok=True)
        output = self.directory / f"{len(self.programs)}-{program}.log"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command(program, *arguments),
                cwd=ROOT,
                env=environment(self.public, record),
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        self.programs.append(Program(process, output))
        return self.programs[-1]

    def close(self) -> None:
        for each in self.programs:
            if each.process.poll() is None:
                each.kill()

    def texts(self) -> str:
        return "\n".join(f"--- {each.output.name}\n{each.text()}" for each in self.programs)


def command(program: str, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tests.integration.organizations.programs",
        program,
        *arguments,
    ]


def environment(public: Path, record: Path | None = None) -> Mapping[str, str]:
    return {
        **os.environ,
        PUBLIC: str(public),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        **({RECORD: str(record)} if record else {}),
    }


def wait_until(holds: Callable[[], object], *, seconds: float, what: str) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {seconds:g} s in vain for: {what}")
        time.sleep(0.05)


def pace_of_machine() -> float:
    """Return the slowdown against a machine that starts a daemon in `USUAL_START` seconds.

    The minimum is 1. Calendars are stretched by it, so that programs are up in time.
    """
    began = time.monotonic()
    program = "import fedperf_client.node.daemon, fedperf_client.contributions.local_sums"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
    return round(max(1.0, (time.monotonic() - began) / USUAL_START), 1)


def sleep_until(moment: datetime) -> None:
    time.sleep(max(0.0, (moment - now()).total_seconds()))


def whole_second(moment: datetime) -> datetime:
    return datetime.fromtimestamp(math.ceil(moment.timestamp()), tz=UTC)
