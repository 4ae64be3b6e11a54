"""Tests of the snapshot: inference tick by tick equals inference from all releases at once."""

from dataclasses import replace

import numpy as np
import pytest

from fedperf_server.controllers.snapshot import CellLearner, RegimeReleases
from fedperf_server.inference.cell_directions import CellPosterior, QueryResponses, infer_cells
from fedperf_shared.releases.basis import CELLS
from tests.unit.server.inference.simulated_organizations import (
    REFERENCE,
    learned_in_stages,
    members,
)


@pytest.fixture(scope="module")
def year() -> RegimeReleases:
    """Return plain reports and two linear queries with responses."""
    truth = np.random.default_rng(3).normal(0.0, 0.3, CELLS)
    reports, query_responses, _ = learned_in_stages(
        members(truth, seed=3), plain=5.0, directed=(5.0, 5.0)
    )
    return RegimeReleases(tuple(reports), tuple(query_responses), REFERENCE)


def assert_same(found: CellPosterior, expected: CellPosterior) -> None:
    """Assert that all arrays are bitwise equal."""
    assert found.windows == expected.windows
    np.testing.assert_array_equal(found.correction.mean, expected.correction.mean)
    np.testing.assert_array_equal(found.correction.covariance, expected.correction.covariance)
    for name, own in expected.organizations.items():
        np.testing.assert_array_equal(found.organizations[name].covariance, own.covariance)


def test_cell_learner_incremental_inference_equals_batch_inference(year: RegimeReleases) -> None:
    first, second = year.query_responses
    nobody = replace(second, responses=())
    late = replace(first, responses=first.responses[:-1])
    learner = CellLearner()
    for known in (
        replace(year, query_responses=()),
        replace(year, query_responses=(late,)),
        replace(year, query_responses=(first, nobody)),
        year,
        replace(year, plain=year.plain[:-1]),
        replace(year, query_responses=(first,)),
        year,
    ):
        assert_same(learner.infer(known), CellLearner().infer(known))


def test_cell_learner_processes_each_answered_linear_query_once(
    year: RegimeReleases, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(
        plain: object, query_responses: tuple[QueryResponses, ...], **others: object
    ) -> CellPosterior:
        read.append(len(query_responses))
        return infer_cells(plain, query_responses, **others)  # type: ignore[arg-type]

    monkeypatch.setattr("fedperf_server.controllers.snapshot.infer_cells", counted)
    learner = CellLearner()
    for count in (0, 1, 2, 2):
        learner.infer(replace(year, query_responses=year.query_responses[:count]))
    assert read == [0, 1, 1, 0]
