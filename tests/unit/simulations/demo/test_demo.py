"""Tests of the demo in a small form, end to end, with the ordinary programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import psutil
import pytest

from fedperf_shared.runtime.command_line import INCOMPLETE

SIM = Path(sys.executable).with_name("fedperf-sim")

pytestmark = pytest.mark.slow


def left_running(out: Path) -> list[str]:
    """Return the command lines of processes that still work in `out`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(str(out)) for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.timeout(600)
def test_demo_command_runs_all_three_parts_and_writes_summary_and_report(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [str(SIM), "demo", "--quick", "--seed", "3", "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    summary = orjson.loads((out / "summary.json").read_bytes())
    assert done.returncode == (INCOMPLETE if summary["shortfall"] else 0), done.stderr
    assert not summary["lost"], summary["lost"]
    assert summary["year"]["promoted"] or "nothing was promoted" in done.stderr
    assert orjson.loads(done.stdout)["seed"] == summary["seed"] == 3
    without, three = summary["year"]["newcomer"]
    assert (without["own_runs"], three["own_runs"]) == (0, 3)
    assert without["alone"] is None
    for each in (without, three, *summary["year"]["machines"]):
        assert each["change"]["low"] <= each["change"]["percent"] <= each["change"]["high"]
    alder, birch, cedar = summary["organizations"]
    assert [each["name"] for each in (alder, birch, cedar)] == ["alder", "birch", "cedar"]
    for each in (alder, birch, cedar):
        assert 0 < each["epsilon_spent"] <= each["epsilon_budget"] == 1
        assert all(kind["bytes_out"] > 0 for kind in each["left"])
    assert {each["kind"] for each in alder["left"]} == {"residual_report", "tangent_update"}
    assert {each["kind"] for each in cedar["left"]} == {"residual_report"}
    assert any(gap["what"] == "every model_update" for gap in cedar["slots_not_planned"])
    [only] = summary["rounds"]
    assert only["replies"] == 2
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert not left_running(out)


def test_demo_interrupted_exits_with_130_and_stops_all_processes(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    demo = subprocess.Popen(
        [SIM, "demo", "--quick", "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not (out / "logs" / "alder.log").exists():
        time.sleep(0.1)
    os.kill(demo.pid, signal.SIGTERM)
    _, errors = demo.communicate(timeout=30)
    assert demo.returncode == 130, errors.decode()
    assert not left_running(out)
