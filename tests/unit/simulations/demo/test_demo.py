"""The demo in a small form, end to end, with the ordinary programs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import psutil
import pytest

from fedperf_shared.programs.command_line import INCOMPLETE

SIM = Path(sys.executable).with_name("fedperf-sim")

pytestmark = pytest.mark.slow


def left_running(out: Path) -> list[str]:
    """Command lines of programs that still work in `out`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(str(out)) for word in words):
            found.append(" ".join(words))
    return found


@pytest.mark.timeout(600)
def test_three_organizations_learn_together_with_one_command(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [str(SIM), "demo", "--quick", "--seed", "3", "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=590)
    summary = orjson.loads((out / "summary.json").read_bytes())
    assert done.returncode == (INCOMPLETE if summary["shortfall"] else 0), done.stderr
    assert not summary["lost"], summary["lost"]
    assert summary["promoted"] or "nothing was promoted" in done.stderr
    assert orjson.loads(done.stdout)["seed"] == summary["seed"] == 3
    alder, birch, cedar = summary["organizations"]
    assert [each["name"] for each in (alder, birch, cedar)] == ["alder", "birch", "cedar"]
    for each in (alder, birch, cedar):
        assert 0 < each["epsilon_spent"] <= each["epsilon_budget"] == 1
        assert each["bytes_out"] > 0
        assert each["slots_made"] == len(each["releases"]) > 0
        assert each["held_out"] >= 30
        assert all(value >= 1 for value in each["q_error"].values())
        assert each["live"] == 6
    kinds = {release["kind"] for release in cedar["releases"]}
    assert kinds == {"residual_report"}
    assert any(gap["what"] == "every model_update" for gap in cedar["slots_not_planned"])
    assert [each["round"] for each in summary["rounds"]] == [1, 2]
    assert all(each["replies"] == 2 for each in summary["rounds"])
    assert all(each["public_error"] != summary["start_error"] for each in summary["rounds"])
    # What the first window made is judged in the second; what the second made waits.
    start, judged, waiting = summary["versions"]
    assert start["standing"] == "promoted"
    assert judged["standing"] in {"promoted", "rejected", "candidate"}
    assert "waits" not in judged["reason"]
    assert waiting["standing"] == "candidate"
    assert "waits" in waiting["reason"]
    newest = judged["version"] if judged["standing"] == "promoted" else start["version"]
    assert {each["model_version"] for each in (alder, birch, cedar)} == {newest}
    choice = summary["choice"]
    assert choice["interval"][0] <= choice["predicted_seconds"] <= choice["interval"][1]
    assert choice["measured_seconds"] > 0
    assert len(choice["single_platform_seconds"]) >= 2
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert not left_running(out)


def test_an_interrupted_demo_leaves_nothing_running(tmp_path: Path) -> None:
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
