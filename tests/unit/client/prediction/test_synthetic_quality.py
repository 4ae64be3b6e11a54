"""Quality of synthetic rows against local executions: comparable scores and a caveat."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import numpy as np
import pytest

from fedperf_client import cli
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.node import enrollment
from fedperf_client.node import exchange as exchange_module
from fedperf_client.prediction import synthetic_quality as quality
from fedperf_client.prediction.synthetic_quality import CAVEAT, quality_of
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.exchange import SyntheticRow
from fedperf_shared.execution import Execution, ExecutionStatus
from fedperf_shared.releases.basis import cell_of
from tests.unit.client.executions import make_execution
from tests.unit.client.prediction.synthetic_executions import executions_of_world
from tests.unit.shared.console_programs import run


def rows_like(executions: Sequence[Execution], *, shift: float = 0.0) -> tuple[SyntheticRow, ...]:
    return tuple(
        SyntheticRow(
            each.plan,
            each.cluster,
            float(np.log(each.measurement.runtime_seconds)) + shift,
            cell_of(each.plan).platform,
        )
        for each in executions
        if each.measurement is not None
    )


@pytest.mark.slow
def test_synthetic_rows_from_same_distribution_score_higher_than_shifted_ones() -> None:
    own = executions_of_world(0, 80, "own")
    same = quality_of(own, rows_like(executions_of_world(1, 80, "other")))
    other = quality_of(own, rows_like(executions_of_world(1, 80, "other"), shift=6.0))
    assert same.column_shapes is not None
    assert other.column_shapes is not None
    assert same.column_shapes > other.column_shapes + 0.05
    assert (same.executions, same.synthetic_rows) == (80, 80)
    assert quality_of(own, rows_like(executions_of_world(1, 80, "other"))) == same


def test_synthetic_copies_have_zero_distance_and_scores_include_caveat() -> None:
    own = executions_of_world(0, 60, "own")
    copied = quality_of(own, rows_like(own))
    assert copied.closest_record == 0.0
    assert copied.column_shapes == 1.0
    assert copied.as_row()["caveat"] == CAVEAT
    assert "no evidence of privacy" in CAVEAT
    assert "do not publish" in CAVEAT


@pytest.mark.slow
def test_synthetic_quality_ignores_failed_executions_and_thins_long_histories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = executions_of_world(0, 40, "own")
    failed = make_execution(1, status=ExecutionStatus.FAILED)
    synthetic = rows_like(executions_of_world(1, 40, "other"))
    assert quality_of([*own, failed], synthetic) == quality_of(own, synthetic)
    monkeypatch.setattr(quality, "MOST_EXECUTIONS", 10)
    assert quality_of(own, synthetic).executions == 10


def test_synthetic_quality_of_uniform_history_computes_available_scores() -> None:
    own = [make_execution(number) for number in range(5)]
    found = quality_of(own, rows_like(own))
    assert found.score == 1.0
    assert found.column_shapes == 1.0


@pytest.mark.parametrize("own", [0, 1])
def test_synthetic_quality_with_too_few_executions_or_rows_is_refused(own: int) -> None:
    executions = executions_of_world(0, 10, "own")
    with pytest.raises(InvalidInputError, match="two executions and two synthetic rows"):
        quality_of(executions[:own], rows_like(executions))
    with pytest.raises(InvalidInputError, match="once reports have arrived"):
        quality_of(executions, rows_like(executions)[:own])


class FakeExchange:
    """A coordinator that publishes rows like another organization's history."""

    def __init__(self, membership: Any, key: Any) -> None:
        del membership, key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return

    def synthetic_rows(self) -> tuple[SyntheticRow, ...]:
        return rows_like(executions_of_world(1, 30, "other"))


def test_evaluate_synthetic_command_prints_scores_and_caveat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    assert run(cli.main, "--home", home.directory, "init").code == 0
    ended = run(cli.main, "--home", home.directory, "evaluate-synthetic", "--json")
    assert ended.code == 3  # not joined yet
    with ExecutionStore.open(home.store) as store:
        store.add(executions_of_world(0, 30, "own"))
    monkeypatch.setattr(exchange_module, "ExchangeClient", FakeExchange)
    monkeypatch.setattr(enrollment.Membership, "load", lambda path: SimpleNamespace())
    found = run(cli.main, "--home", home.directory, "evaluate-synthetic", "--json").json()
    assert isinstance(found, dict)
    assert (found["executions"], found["synthetic_rows"], found["caveat"]) == (30, 30, CAVEAT)
    assert "own" not in str({**found, "caveat": ""})
