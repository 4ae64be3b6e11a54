"""Encoded executions belong to the current pretrained model, not to an earlier one."""

from pathlib import Path

import numpy as np
import pytest

from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.encoding import home_encoder, load_encoded_executions
from fedperf_client.prediction.fetched_models import predictor
from fedperf_shared.execution import PlanOnCluster
from fedperf_shared.model.pretrained import load_pretrained_model
from tests.unit.client.executions import make_execution
from tests.unit.client.pretrained_model import install_start


def test_encoded_executions_are_recomputed_after_pretrained_model_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executions = [make_execution(number) for number in range(3)]
    asked = [PlanOnCluster(each.plan, each.cluster) for each in executions]
    seen = []
    with ExecutionStore.open(tmp_path / "executions.sqlite") as store:
        store.add(executions, home_encoder())
        for start in ("ships", "seeded"):
            if start == "seeded":
                install_start(tmp_path, monkeypatch)
            found = load_encoded_executions(store).pretrained_log_seconds
            np.testing.assert_allclose(found, predictor(load_pretrained_model())(asked), rtol=1e-5)
            seen.append(found)
    assert not np.allclose(seen[0], seen[1])
