from pathlib import Path

import numpy as np
import pytest

from fedperf_shared.errors import InvalidInputError
from fedperf_simulations.data.c3o import (
    C3O,
    FEATURES,
    GREP,
    JOBS,
    PUBLISHED_SIZE,
    SGD,
    PublicJob,
    load,
)
from fedperf_simulations.data.datasets import MissingDataError
from tests.public_data import public_data


@pytest.fixture(scope="module")
def data() -> C3O:
    return load(public_data("c3o-experiments"))


def columns(**values: float) -> dict[str, np.ndarray]:
    return {name: np.array([value]) for name, value in values.items()}


def test_c3o_parts_have_their_published_sizes(data: C3O) -> None:
    assert (len(data.published), len(data.sort), len(data.slices)) == (48, 126, 756)
    assert len(set(data.published.organizations.tolist())) == 8
    sizes = [len(data.slices.of(name)) for name in data.new_participants]
    assert sorted(sizes) == [24] * 8 + [30] * 5 + [72] * 2 + [90] * 3


def test_c3o_parts_share_no_organization(data: C3O) -> None:
    parts = [set(each.organizations.tolist()) for each in (data.published, data.sort, data.slices)]
    assert sum(len(each) for each in parts) == len(set.union(*parts)) == 29


def test_c3o_features_and_run_times_are_within_bounds(data: C3O) -> None:
    for part in (data.published, data.sort, data.slices):
        assert part.features.shape == (len(part), FEATURES)
        assert np.abs(part.features).max() <= 1
        assert np.all(np.isfinite(part.physics))
        assert 10 < np.exp(part.log_seconds).min() < np.exp(part.log_seconds).max() < 20_000


def test_c3o_slice_is_one_job_on_one_machine_type(data: C3O) -> None:
    for name in data.new_participants:
        part = data.slices.of(name)
        assert len(set(part.jobs.tolist())) == len(set(part.machines.tolist())) == 1
        assert len(part) > PUBLISHED_SIZE


def test_c3o_loader_takes_the_median_of_repeats(tmp_path: Path) -> None:
    (tmp_path / "c3o-experiments").mkdir()
    heads = {
        "grep": "line_length\tlines\tp_occurrence",
        "kmeans": "features\tobservations\tk",
        "pagerank": "pages\tlinks\tconvergence_criterion",
        "sgd": "features\tobservations\titerations",
        "sort": "line_length\tlines",
    }
    for name, head in heads.items():
        job = JOBS[name]
        values = "\t".join(f"{low:g}" for low, _ in job.parameters.values())
        row = f"2\tm4\t16\t64000\t{job.megabytes[0]}\t{values}"
        lines = [
            f"instance_count\tmachine_type\tslots\tmemory\tdata_size_MB\t{head}\tgross_runtime"
        ]
        lines += [f"{row}\t{seconds}" for seconds in (100, 900, 101, 102, 20)]
        (tmp_path / "c3o-experiments" / f"{name}.tsv").write_text("\n".join(lines))
    read = load(tmp_path)
    assert np.exp(read.sort.log_seconds) == pytest.approx([101.0])
    assert [path.name for path in read.files] == [f"{name}.tsv" for name in JOBS]


def test_c3o_features_are_scaled_by_public_bounds() -> None:
    low = columns(slots=8, data_size_MB=10_000, line_length=100, lines=1e8, p_occurrence=0)
    high = columns(slots=96, data_size_MB=21_000, line_length=100, lines=2e8, p_occurrence=1)
    assert GREP.features(low)[0, [0, 2, 3, 4]].tolist() == [-1, 0, -1, -1]
    assert GREP.features(high)[0, [0, 2, 3, 4]].tolist() == [1, 0, 1, 1]


def test_c3o_physics_prior_is_startup_plus_data_read_once_per_pass() -> None:
    asked = columns(slots=16, data_size_MB=20_000, iterations=25)
    assert np.exp(SGD.physics(asked)) == pytest.approx([30 + 20_000 * 25 / (5 * 16)])
    assert np.exp(GREP.physics(asked)) == pytest.approx([30 + 20_000 / (5 * 16)])


def test_c3o_value_outside_public_bounds_is_refused() -> None:
    for slots, megabytes in ((200, 15_000), (16, 90_000), (float("nan"), 15_000)):
        asked = columns(
            slots=slots, data_size_MB=megabytes, line_length=100, lines=1e8, p_occurrence=0
        )
        with pytest.raises(InvalidInputError, match="public box"):
            GREP.features(asked)


@pytest.mark.parametrize("job", JOBS.values(), ids=lambda job: job.name)
def test_c3o_random_features_are_within_the_feature_box(job: PublicJob) -> None:
    low, high = job.feature_box
    points = job.random_features(np.random.default_rng(1), 500)
    assert np.all((points >= low) & (points <= high))
    assert np.all((low >= -1) & (high <= 1))


def test_c3o_loader_with_missing_data_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="FEDPERF_DATA"):
        load(None)
    with pytest.raises(MissingDataError, match=r"grep\.tsv"):
        load(tmp_path)
