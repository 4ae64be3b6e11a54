"""The registry of experiments and benchmarks: one module per claim, imported when it is run.

A module has a constant `EXPERIMENT`, an `Experiment` whose name is that of its entry.
"""

from dataclasses import dataclass
from enum import StrEnum, unique
from importlib import import_module

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.harness.experiment import Experiment


@unique
class ExperimentKind(StrEnum):
    """The verb of `fedperf-sim` that runs it: `run` or `bench`."""

    EXPERIMENT = "experiment"
    BENCH = "bench"


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment or benchmark.

    Attributes:
        name: what the command line calls it.
        kind: which command runs it.
        module: where it is.
    """

    name: str
    kind: ExperimentKind
    module: str

    @property
    def command(self) -> str:
        """The command of `fedperf-sim` that runs it."""
        return "run" if self.kind is ExperimentKind.EXPERIMENT else "bench"


ENTRIES: tuple[Entry, ...] = (
    Entry("public_start", ExperimentKind.EXPERIMENT, f"{__name__}.public_start"),
    Entry("report_channel", ExperimentKind.EXPERIMENT, f"{__name__}.report_channel"),
    Entry("first_release", ExperimentKind.EXPERIMENT, f"{__name__}.first_release"),
    Entry("private_training", ExperimentKind.EXPERIMENT, f"{__name__}.private_training"),
    Entry("private_sharing", ExperimentKind.EXPERIMENT, f"{__name__}.private_sharing"),
    Entry("profiling_models", ExperimentKind.EXPERIMENT, f"{__name__}.profiling_models"),
    Entry("campaigns", ExperimentKind.EXPERIMENT, f"{__name__}.campaigns"),
    Entry("joining_gain", ExperimentKind.EXPERIMENT, f"{__name__}.joining_gain"),
    Entry("intervals", ExperimentKind.EXPERIMENT, f"{__name__}.intervals.experiment"),
    Entry("platform_choice", ExperimentKind.EXPERIMENT, f"{__name__}.platform_choice.experiment"),
    Entry("drift", ExperimentKind.EXPERIMENT, f"{__name__}.drift.experiment"),
    Entry("scale", ExperimentKind.EXPERIMENT, f"{__name__}.scale"),
    Entry("privacy_audit", ExperimentKind.EXPERIMENT, f"{__name__}.privacy_audit"),
    Entry("ingest", ExperimentKind.BENCH, f"{__name__}.ingest.experiment"),
    Entry("optimizer", ExperimentKind.BENCH, f"{__name__}.optimizer.experiment"),
    Entry("prediction", ExperimentKind.BENCH, f"{__name__}.prediction"),
    Entry("store", ExperimentKind.BENCH, f"{__name__}.store.experiment"),
)


class UnknownExperimentError(InvalidInputError):
    """No experiment or benchmark has that name."""

    def __init__(self, kind: ExperimentKind, name: str, names: tuple[str, ...]) -> None:
        listed = ", ".join(names) or "none yet"
        super().__init__(f"no {kind} {name!r}; available: {listed}")
        self.name = name


def find(kind: ExperimentKind, name: str, entries: tuple[Entry, ...] | None = None) -> Entry:
    """Return the entry of that name.

    Raises:
        UnknownExperimentError: there is none. The message lists the available ones.
    """
    candidates = [each for each in (ENTRIES if entries is None else entries) if each.kind is kind]
    for each in candidates:
        if each.name == name:
            return each
    raise UnknownExperimentError(kind, name, tuple(each.name for each in candidates))


def named(name: str) -> Entry:
    """Return the entry of that name, of any kind.

    Raises:
        UnknownExperimentError: there is none.
    """
    kinds = [each.kind for each in ENTRIES if each.name == name]
    return find(kinds[0] if kinds else ExperimentKind.EXPERIMENT, name)


def load(entry: Entry) -> Experiment:
    """Import the entry's module and return its experiment."""
    experiment: Experiment = import_module(entry.module).EXPERIMENT
    return experiment
