"""An organization that only reports needs no torch. One that trains gets an error at the start."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedperf_client.node import daemon
from fedperf_client.release.policy import Policy, ReleaseMode
from fedperf_shared.releases.release import Schedule, SizeClass
from tests.unit.client.node.test_daemon import POLICY, SCHEDULE

REPORTING = """
import sys
from datetime import datetime, timedelta, UTC
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torch_geometric"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import fedperf_client.node.daemon as daemon
import numpy as np
from fedperf_client.node.reports import ReportMaker
from fedperf_client.home.config import Home
from fedperf_client.home.store import ExecutionStore
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.gate import ReleaseGate
from tests.fakes.released import release_now
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.noise import system_noise
from fedperf_client.release.policy import Policy
from fedperf_shared.identity import new_private_key
from fedperf_shared.releases.period import Period, SlotTimes, ReleaseCalendar
from fedperf_shared.releases.release import (
    ReleaseKind, ReportParameters, Schedule, SizeClass, Slot, SlotKey)
from fedperf_shared.wire.codec import decode_release
from tests.unit.client.executions import START, make_execution

hour = timedelta(hours=1)
key = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
times = (SlotTimes(hour, 3 * hour),)
table = ReleaseCalendar(Period(START, 24 * hour, 2), times, ())
schedule = Schedule(table, (Slot(key, ReportParameters(20.0, 1.5)),))
home = Home(Path(sys.argv[1]))
home.create("")
with ExecutionStore.open(home.store) as store:
    store.add(make_execution(number, finished_at=START - hour) for number in range(5))
asked = []

def compute(task, *, seconds=None):
    asked.append(task())
    return asked[-1]

ledger = PrivacyLedger.create(home.ledger(START), PrivacyBudget(2.0, 1e-6), schedule)
maker = ReportMaker(home, schedule, fetch=lambda slot: None, compute=compute)
release = lambda slot, noise: maker.release(slot, noise, seconds=60)
gate = ReleaseGate(ledger, system_noise, new_private_key())
signed = release_now(gate, key, release, at=START + hour)
assert decode_release(signed.payload).slot == key
assert asked[0].any()
with daemon._worker_processes(schedule, Policy(size_class=SizeClass.LARGE, nominal_workloads=5000)):
    pass
daemon.public_preview(schedule, ledger.budget, key, charged=())
"""


@pytest.mark.slow
def test_residual_report_is_computed_without_torch(tmp_path: Path) -> None:
    code = [sys.executable, "-c", REPORTING, str(tmp_path / "home")]
    subprocess.run(code, check=True)


@pytest.mark.parametrize("mode", ReleaseMode)
def test_model_rounds_without_torch_are_refused_unless_mode_is_never(
    monkeypatch: pytest.MonkeyPatch, mode: ReleaseMode
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    policy = Policy(size_class=SizeClass.LARGE, nominal_workloads=5000, model_update=mode)
    if mode is ReleaseMode.NEVER:
        with daemon._worker_processes(SCHEDULE, policy):
            return
    with (
        pytest.raises(daemon.TrainingNotInstalledError) as refused,
        daemon._worker_processes(SCHEDULE, policy),
    ):
        pass
    assert refused.value.exit_code == 3
    assert str(refused.value).count("\n") == 0
    assert "fedperf[train]" in str(refused.value)


def test_period_without_model_rounds_begins_without_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    reports = Schedule(SCHEDULE.calendar, SCHEDULE.slots[:1])
    with daemon._worker_processes(reports, POLICY):
        pass
