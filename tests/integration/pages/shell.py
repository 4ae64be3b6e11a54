"""A user's shell: a directory, an environment, and variables that are computed on use."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.organizations.deployments import Program, wait_until

PATIENCE = 300.0
"""Maximum seconds to wait for a program that is fast on an idle machine."""


@dataclass
class Shell:
    """Runs lines in bash with the programs that are installed next to this Python.

    Attributes:
        directory: working directory.
        environment: additions to the environment of the tests.
        variables: functions that compute `$NAME` when a line contains it.
    """

    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    def run(self, line: str) -> str:
        """Return the output of the line, which must succeed."""
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.directory,
            env=self._environment(line),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, (
            f"{line}\nended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
        return ended.stdout

    @contextmanager
    def background(self, line: str, *, until: str = "") -> Iterator[None]:
        """Run a line in the background until the block ends. It must then end well.

        The block begins when the line has printed `until`.
        """
        output = self.directory / f"{line}.log"
        with output.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.directory,
                env=self._environment(line),
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        program = Program(process, output)
        try:
            wait_until(lambda: until in program.text(), seconds=PATIENCE, what=line)
            yield
            assert process.poll() is None, program.text()
        finally:
            try:
                code = program.stop(patience=PATIENCE)
            finally:
                program.kill()
        assert code == 0, program.text()

    def _environment(self, line: str) -> Mapping[str, str]:
        found = {name: find() for name, find in self.variables.items() if f"${name}" in line}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "NO_COLOR": "1", **self.environment, "PATH": path, **found}
