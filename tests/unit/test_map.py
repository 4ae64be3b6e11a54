"""Tests of the map of the modules that `make map` prints."""

import pytest

from tests.pages import ROOT
from tests.shape.modules import PACKAGES, main, module_lines


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_module_map_lists_every_module_with_a_sentence(package: str) -> None:
    modules = [path for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]
    lines = list(module_lines(package))
    assert len(lines) == len(modules)
    assert [line for line in lines if not line.endswith((".", "?", ":", "`"))] == []


def test_module_map_of_one_package_omits_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    main(["shared"])
    printed = capsys.readouterr().out
    assert printed.startswith("fedperf_shared/: ")
    assert "fedperf_client/" not in printed
