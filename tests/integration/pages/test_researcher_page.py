"""Command lines of the researcher's page, on small inputs. `runners.py` lists the others."""

from pathlib import Path

import pytest

from fedperf_simulations.corpus import resource_cap
from tests.integration.pages.runners import walk
from tests.integration.pages.shell import Shell
from tests.pages import RESEARCHER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("line", [*walk(RESEARCHER)])
def test_command_of_researcher_page_succeeds(line: str, tmp_path: Path) -> None:
    groups = resource_cap.CONTROL_GROUPS / "cpu" / "cpu.cfs_quota_us"
    if "--cpu-limit" in line and not groups.is_file():
        pytest.skip("--cpu-limit needs control groups v1")
    Shell(tmp_path).run(line)
