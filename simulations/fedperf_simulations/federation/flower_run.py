"""A run of the federation on Flower's simulation engine, by `flwr run` as a Flower user does it.

A SuperLink of our own starts before the run and stops after it; its home is a folder of the run.
The candidates are read from the coordinator's database.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx

from fedperf_server.state.database import Database
from fedperf_shared.model.architecture import Weights
from fedperf_simulations.federation.flower_app import EngineTraining
from fedperf_simulations.federation.flower_transport import EngineError
from fedperf_simulations.federation.linearized_training import versions_after

APP = Path(__file__).parents[2] / "flower_app"
"""The directory that travels: `flwr run` is given it."""

START_SECONDS = 120.0
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}


def engine_is_there() -> bool:
    """Whether Ray, which the engine runs on, is installed (the extra `sim`)."""
    return find_spec("ray") is not None


def engine_candidates(what: EngineTraining, *, members: int, place: Path) -> list[Weights]:
    """Weights after every step of `what`, lived by so many members on the engine.

    Args:
        what: is trained.
        members: nodes of the engine, each with one member.
        place: an empty folder, for coordinator, homes and logs.

    Raises:
        EngineError: the engine is not installed, or did not run to its end.
    """
    if not engine_is_there():
        raise EngineError("Flower's simulation engine needs Ray: pip install 'fedperf[sim]'")
    with _superlink(place) as environment:
        configuration = f'{what.as_configuration()} out="{place / "federation"}"'
        nodes = f"num-supernodes={members} client-resources-num-cpus=1"
        command = [_program("flwr"), "run", str(APP), "own", "--stream"]
        command += ["--run-config", configuration, "--federation-config", nodes]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (place / "run.log").write_text(ran.stdout + ran.stderr)
    config = what.training().config(place / "federation", organizations=members)
    if not config.directory.is_dir():
        raise EngineError(f"`flwr run` came to nothing; {place / 'run.log'} says why")
    with closing(Database(config.database_url)) as database:
        return versions_after(database)


@contextmanager
def _superlink(place: Path) -> Iterator[Mapping[str, str]]:
    """A SuperLink for simulations; the environment in which programs find it as `own`."""
    home, port = place / "flwr", _free_port()
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )
    beside = str(Path(sys.executable).parent)
    environment = os.environ | ENVIRONMENT | {"FLWR_HOME": str(home)}
    environment["PATH"] = f"{beside}{os.pathsep}{environment.get('PATH', '')}"
    command = [_program("flower-superlink"), "--insecure", "--simulation", "--port", str(port)]
    with (place / "superlink.log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _await(f"http://127.0.0.1:{port}/health", running)
        yield environment
    finally:
        running.terminate()
        running.wait()


def _await(url: str, running: "subprocess.Popen[bytes]") -> None:
    gives_up = time.monotonic() + START_SECONDS
    while time.monotonic() < gives_up and running.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    raise EngineError("the SuperLink did not start; superlink.log says why")


def _program(name: str) -> str:
    """A program that is installed beside the interpreter."""
    return str(Path(sys.executable).with_name(name))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
