from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedperf_client.contributions.local_sums import LabelledGraph, workload_residuals
from fedperf_client.contributions.mechanisms import sum_residuals
from fedperf_client.release.preview import EXAMPLE_SLOWDOWN, example_jobs
from fedperf_shared.model.inference import GgfnArrays
from tests.unit.client.pretrained_model import seeded_checkpoint


def example_history(jobs: Sequence[LabelledGraph]) -> list[LabelledGraph]:
    """Return ten workloads for each of the jobs."""
    return [
        replace(each, workload=f"{each.workload} {copy}") for each in jobs for copy in range(10)
    ]


def test_example_jobs_have_stated_slowdown_and_lie_in_many_cells() -> None:
    start = seeded_checkpoint()
    labelled = example_history(example_jobs(start))
    workloads = workload_residuals(GgfnArrays.of(start), labelled)
    residuals = np.concatenate([each.residuals for each in workloads])
    assert np.allclose(residuals, np.log(EXAMPLE_SLOWDOWN), atol=1e-4)
    cells = Counter(each.cell for each in labelled)
    assert set(cells.values()) == {10}
    assert len(cells) == 24
    assert len(workloads) == len(labelled)


def test_sum_of_residuals_grows_linearly_with_copies_of_a_job() -> None:
    start = seeded_checkpoint()
    model, jobs = GgfnArrays.of(start), example_jobs(start)[:2]
    once = sum_residuals(workload_residuals(model, jobs), clip=1.0)
    whole = sum_residuals(workload_residuals(model, example_history(jobs)), clip=1.0)
    np.testing.assert_array_equal(whole, 10 * once)
    assert once.any()
