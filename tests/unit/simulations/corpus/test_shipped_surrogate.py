"""Tests of the shipped surrogate cost model: its distillation from the pretrained model."""

from pathlib import Path

from fedperf_engines.optimizer.additive_surrogate import SHAPES, load_surrogate
from fedperf_shared.model.checkpoint import save_checkpoint
from fedperf_simulations.corpus.pretraining import distil_shipped_head
from fedperf_simulations.corpus.training_set import Measurements
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.simulations.comparison_cases import DUCKDB, case, everywhere


def test_surrogate_distillation_uses_all_cases_and_is_deterministic_for_a_seed(
    tmp_path: Path,
) -> None:
    start = tmp_path / "start.safetensors"
    save_checkpoint(start, seeded_checkpoint())
    cases = tuple(case(f"c{rows}", {everywhere(DUCKDB): 1.0}, rows=rows) for rows in (1000, 3000))
    paths = [tmp_path / f"{name}.safetensors" for name in ("one", "again", "other")]
    for path, seed in zip(paths, (1, 1, 2), strict=True):
        measurements = Measurements(cases, (), {}, seed)
        report = distil_shipped_head(measurements, start_path=start, path=path)
        assert (report.workflows, report.bytes) == (2, path.stat().st_size)
    one, again, other = (load_surrogate(path).arrays for path in paths)
    assert all((one[name] == again[name]).all() for name in SHAPES)
    assert any((one[name] != other[name]).any() for name in SHAPES)
