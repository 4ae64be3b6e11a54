"""What every experiment and benchmark promises to `fedperf-sim`: a name, a claim, a module."""

import inspect

import pytest

from fedperf_simulations.experiments import ENTRIES, Entry, load
from fedperf_simulations.harness.experiment import ExperimentOutcome, Settings

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: each.name)


def test_experiments_are_told_apart_by_their_names() -> None:
    assert len({each.name for each in ENTRIES}) == len({each.module for each in ENTRIES})
    assert len({each.name for each in ENTRIES}) == len(ENTRIES)


@every_entry
def test_a_module_holds_the_experiment_of_its_entry(entry: Entry) -> None:
    experiment = load(entry)
    assert experiment.name == entry.name
    assert experiment.claim
    assert "\n" not in experiment.claim


@every_entry
def test_an_experiment_runs_by_its_settings_alone(entry: Entry) -> None:
    signature = inspect.signature(load(entry).run, eval_str=True)
    assert [each.annotation for each in signature.parameters.values()] == [Settings]
    assert signature.return_annotation is ExperimentOutcome
