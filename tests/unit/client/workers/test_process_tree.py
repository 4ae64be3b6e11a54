"""Tests of process trees: killed children are gone when the call returns."""

import subprocess
import sys

import psutil

from fedperf_client.workers.child_process import ProcessTree

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
HOLDS_MUCH = """
import time
held = bytearray(b"x") * 400_000_000
print("ready", flush=True)
time.sleep(60)
"""


def test_kill_children_returns_after_children_are_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(child=HOLDS_MUCH)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        ProcessTree(parent.pid).kill_children()
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
