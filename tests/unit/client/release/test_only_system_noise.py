"""No program of a client can draw anything but the system's noise for a release."""

import ast
from pathlib import Path

import fedperf_client
import fedperf_server
import fedperf_shared

PACKAGES = (fedperf_client, fedperf_server, fedperf_shared)
ALLOWED = {"release/noise.py", "contributions/mechanisms.py"}
"""The source of real noise, and the protocol that it keeps."""


def test_what_programs_install_has_one_source_of_noise() -> None:
    """Seeded ones are simulations', which neither client nor server imports (contract)."""
    found = set()
    for package in PACKAGES:
        root = Path(package.__file__ or "").parent
        for module in root.rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and "discrete_gaussian" in _methods(node):
                    found.add(module.relative_to(root).as_posix())
    assert found == ALLOWED


def test_the_daemon_takes_no_noise_from_outside() -> None:
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
