"""A synthetic experiment in its own package, whose code and data a test may change."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedperf_simulations.harness import dependencies
from fedperf_simulations.harness.experiment import Experiment

NAME = "made_up_claims"

LAW = '''"""How errors fall."""

def error(case: int) -> float:
    """Of a case."""
    return 10.0 * case + 5.0
'''

CLAIM = '''"""What a made-up claim says."""

from pathlib import Path

from made_up_claims.law import error
from fedperf_simulations.harness.experiment import ExperimentOutcome, Target

COMPUTED = []


class MadeUp:
    name = "made_up"
    claim = "errors are small"

    def run(self, settings):
        def compute():
            COMPUTED.append(settings.seed)
            return [{"case": case, "error": error(case)} for case in range(3)]

        cases = settings.cases("errors", compute)
        mean = sum(case["error"] for case in cases) / len(cases)
        files = self.public_files(settings.data)
        return ExperimentOutcome(
            [{"mean": mean}], [Target("mean", 20.0, mean)], files, cases=cases
        )

    def public_files(self, data):
        return [data / "runs.csv"]
'''


@dataclass(frozen=True)
class MadeUpPackage:
    """Folder of the package, its data, and a record of its computations."""

    package: Path
    data: Path

    @property
    def experiment(self) -> Experiment:
        found: Experiment = importlib.import_module(f"{NAME}.claim").MadeUp()
        return found

    @property
    def computed(self) -> int:
        """Return how often a cell was computed."""
        return len(importlib.import_module(f"{NAME}.claim").COMPUTED)

    def change(self, module: str, old: str, new: str) -> None:
        """Edit a module. Modules that were imported before stay unchanged."""
        path = self.package / f"{module}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


def made_up_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpPackage:
    """Write the package and make it importable."""
    package = place / NAME
    package.mkdir()
    for module, text in {"__init__": "", "law": LAW, "claim": CLAIM}.items():
        (package / f"{module}.py").write_text(text)
    (place / "runs.csv").write_text("1,2\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setattr(dependencies, "PACKAGES", (*dependencies.PACKAGES, NAME))
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        monkeypatch.delitem(sys.modules, name)
    return MadeUpPackage(package, place)
