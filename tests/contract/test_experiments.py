"""Contract of every experiment and benchmark with `fedperf-sim`: a name, a claim and a module."""

import inspect

import pytest

from fedperf_simulations.experiments import ENTRIES, Entry, load
from fedperf_simulations.harness.experiment import ExperimentOutcome, Settings

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: each.name)


def test_experiment_entries_have_unique_names_and_modules() -> None:
    assert len({each.name for each in ENTRIES}) == len({each.module for each in ENTRIES})
    assert len({each.name for each in ENTRIES}) == len(ENTRIES)


@every_entry
def test_experiment_module_has_name_of_its_entry_and_one_line_claim(entry: Entry) -> None:
    experiment = load(entry)
    assert experiment.name == entry.name
    assert experiment.claim
    assert "\n" not in experiment.claim


@every_entry
def test_experiment_run_takes_only_settings_and_returns_an_outcome(entry: Entry) -> None:
    signature = inspect.signature(load(entry).run, eval_str=True)
    assert [each.annotation for each in signature.parameters.values()] == [Settings]
    assert signature.return_annotation is ExperimentOutcome
