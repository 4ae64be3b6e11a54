from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedperf_server.rehearsal.buffer import newest_rows
from fedperf_server.rehearsal.synthetic_batch import (
    Catalogue,
    by_cell,
    cell_shares,
    draw_rows,
)
from fedperf_shared.errors import FedperfError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import ClusterConfig, PlanOnCluster
from fedperf_shared.releases.basis import CELLS, cell_of
from fedperf_shared.workflow.graph import Operator, Plan, Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform
from tests.unit.server.controllers.simulated_reports import simulated_report

CLUSTER = ClusterConfig(1, 2, 2**33)


def entry(platform: Platform, rows: float) -> PlanOnCluster:
    operators = (
        Operator(OperatorKind.TABLE_SOURCE, OperatorClass.RELATIONAL, (), rows, 8.0),
        Operator(OperatorKind.SORT, OperatorClass.RELATIONAL, (0,), rows, 8.0),
    )
    return PlanOnCluster(Plan.on_one_platform(Workflow(operators), platform), CLUSTER)


def catalogue() -> Catalogue:
    platforms = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS)
    return by_cell(entry(p, rows) for p in platforms for rows in (10.0, 5e3, 5e4, 5e5, 5e6))


def one_second(entries: Sequence[PlanOnCluster]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.zeros(len(entries))


def draw(seed: int = 0, rows: int = 200) -> tuple[SyntheticRow, ...]:
    return draw_rows(
        np.ones(CELLS) / CELLS,
        catalogue(),
        rows=rows,
        predict=one_second,
        correction=np.arange(CELLS, dtype=np.float64),
        seed=seed,
    )


def test_synthetic_rows_are_public_plans_labelled_with_corrected_predictions() -> None:
    known = {each for entries in catalogue().values() for each in entries}
    rows = draw()
    assert len(rows) == 200
    for row in rows:
        assert PlanOnCluster(row.plan, row.cluster) in known
        assert row.log_seconds == cell_of(row.plan).index
        assert row.segment is cell_of(row.plan).platform


def test_draw_rows_is_deterministic_for_a_seed_and_differs_between_seeds() -> None:
    assert draw(seed=3) == draw(seed=3)
    assert draw(seed=3) != draw(seed=4)


def test_cell_shares_concentrate_on_cells_filled_by_reports() -> None:
    rng = np.random.default_rng(0)
    report = simulated_report(rng, np.zeros(CELLS), cells=2, workloads=1000, noise_multiplier=0.1)
    shares = cell_shares([report], reference_version=1)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[:2].sum() > 0.95


def test_cell_shares_without_reports_are_zero_and_draw_no_rows() -> None:
    nothing = cell_shares([], reference_version=1)
    np.testing.assert_array_equal(nothing, 0.0)
    rows = draw_rows(
        nothing,
        catalogue(),
        rows=10,
        predict=one_second,
        correction=np.zeros(CELLS),
        seed=0,
    )
    assert rows == ()


def test_cell_shares_of_several_reports_are_the_mean_of_single_reports() -> None:
    rng = np.random.default_rng(1)
    reports = [
        simulated_report(rng, np.zeros(CELLS), organization=name, noise_multiplier=0.1)
        for name in ("a", "b")
    ]
    alone = [cell_shares([each], reference_version=1) for each in reports]
    together = cell_shares(reports, reference_version=1)
    np.testing.assert_allclose(together, np.mean(alone, axis=0), atol=1e-12)


def test_cell_shares_of_unused_platforms_are_zero_despite_noise() -> None:
    rng = np.random.default_rng(3)
    per_platform = CELLS // 6
    for _ in range(20):
        reports = [
            simulated_report(rng, np.zeros(CELLS), organization=name, cells=per_platform)
            for name in ("a", "b", "c")
        ]
        shares = cell_shares(reports, reference_version=1)
        assert shares[:per_platform].sum() == pytest.approx(1.0)


def test_cell_shares_withstand_one_organization_denying_a_platform() -> None:
    """All reports together show the platform, but none does alone.

    The dishonest organization makes another platform visible.
    """
    rng = np.random.default_rng(4)
    honest = [
        simulated_report(rng, np.zeros(CELLS), organization=name, cells=4, workloads=14)
        for name in map(str, range(16))
    ]
    liar = simulated_report(rng, np.zeros(CELLS), organization="liar", cells=4)
    per_platform, values = CELLS // 6, liar.report.values.copy()
    values[:per_platform], values[per_platform : 2 * per_platform] = -(10**12), 10**12
    denied = replace(liar, report=replace(liar.report, values=values))
    assert cell_shares([*honest, denied], reference_version=1)[:4].sum() > 0.5


def test_cell_shares_weight_organizations_equally_whatever_their_workload_count() -> None:
    rng = np.random.default_rng(2)
    truth = np.zeros(CELLS)
    small = simulated_report(rng, truth, organization="a", cells=1, workloads=200)
    large = simulated_report(rng, truth, organization="b", cells=20, workloads=20_000)
    shares = cell_shares([small, large], reference_version=1)
    assert 0.4 < shares[0] < 0.6


@pytest.mark.parametrize("bad", [np.array([np.nan] * 10), np.zeros(3)])
def test_draw_rows_with_invalid_predictions_is_refused(
    bad: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> None:
    with pytest.raises(FedperfError, match="10 rows"):
        draw_rows(
            np.ones(CELLS),
            catalogue(),
            rows=10,
            predict=lambda entries: bad,
            correction=np.zeros(CELLS),
            seed=0,
        )


def test_newest_rows_keeps_latest_rows_per_segment_up_to_capacity() -> None:
    old, new = draw(seed=1), draw(seed=2, rows=60)
    rows = newest_rows((*old, *new), capacity=20)
    counts = Counter(row.segment for row in rows)
    assert set(counts.values()) == {20}
    for segment in counts:
        kept = [row for row in rows if row.segment is segment]
        came = [row for row in (*old, *new) if row.segment is segment]
        assert kept == came[-20:]
