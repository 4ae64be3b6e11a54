"""The head that ships is distilled from the start that ships, by a command."""

from pathlib import Path

import pytest

from fedperf_client.optimizer.head import SHAPES, load_head
from fedperf_simulations.shipped_head import distil_shipped_head
from tests.unit.client.executions import make_execution
from tests.unit.client.public import install_start


def test_some_workloads_teach_it_and_a_seed_gives_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_start(tmp_path, monkeypatch)
    executions = [make_execution(number, workload=f"w{number % 6}") for number in range(12)]
    paths = [tmp_path / f"{name}.safetensors" for name in ("one", "again", "other")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        report = distil_shipped_head(executions, seed=seed, workflows=4, path=path)
        assert (report.workflows, report.bytes) == (4, path.stat().st_size)
    one, again, other = (load_head(path).arrays for path in paths)
    assert all((one[name] == again[name]).all() for name in SHAPES)
    assert any((one[name] != other[name]).any() for name in SHAPES)
