"""Tests of C3O slices as tables: every repeat, and inputs that differ by nodes alone."""

from pathlib import Path

import numpy as np

from fedperf_simulations.data.c3o import load, slices
from tests.unit.simulations.public_files import NODES, REPEATS, with_c3o


def test_c3o_slices_match_those_of_the_feature_loader(tmp_path: Path) -> None:
    data = with_c3o(tmp_path)
    found, known = slices(data), load(data)
    assert tuple(each.name for each in found) == known.new_participants
    assert len(found) == 8
    assert not any(each.job == "sort" for each in found)
    for each in found:
        of_reader = known.slices.of(each.name)
        assert len(each) == len(of_reader) == 24
        np.testing.assert_allclose(
            np.sort(each.configurations.seconds), np.sort(np.exp(of_reader.log_seconds))
        )


def test_c3o_slice_configuration_has_all_repeats_and_their_median(tmp_path: Path) -> None:
    for each in slices(with_c3o(tmp_path)):
        medians = [float(np.median(repeats)) for repeats in each.repeats]
        np.testing.assert_array_equal(medians, each.configurations.seconds)
        assert {len(repeats) for repeats in each.repeats} == {REPEATS}


def test_c3o_slice_configurations_of_one_input_differ_only_in_nodes(tmp_path: Path) -> None:
    for each in slices(with_c3o(tmp_path)):
        inputs = each.inputs()
        assert sorted(np.concatenate(inputs).tolist()) == list(range(24))
        for places in inputs:
            assert sorted(each.nodes[places].tolist()) == list(NODES)
            rows = each.rows(places)
            varied = {name for name, values in rows.items() if len(set(values)) > 1}
            assert varied == {"instance_count"}
