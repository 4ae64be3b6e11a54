"""Tests that installed programs sample the noise of releases from the system source only."""

import ast
from pathlib import Path

import fedperf_client
import fedperf_server
import fedperf_shared

PACKAGES = (fedperf_client, fedperf_server, fedperf_shared)
ALLOWED = {"release/noise.py", "contributions/mechanisms.py"}
"""Modules of the real noise source and of its protocol."""


def test_installed_packages_define_no_other_noise_source() -> None:
    """Seeded noise belongs to simulations, which client and server cannot import (contract)."""
    found = set()
    for package in PACKAGES:
        root = Path(package.__file__ or "").parent
        for module in root.rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and "discrete_gaussian" in _methods(node):
                    found.add(module.relative_to(root).as_posix())
    assert found == ALLOWED


def test_run_daemon_accepts_no_noise_argument() -> None:
    daemon = Path(fedperf_client.__file__ or "").parent / "node" / "daemon.py"
    functions = {
        node.name: {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        for node in ast.walk(ast.parse(daemon.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert functions["run_daemon"] == {"home", "clock", "stop"}
    assert not any("noise" in arguments for arguments in functions.values())


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
