import subprocess
import sys
from pathlib import Path

import pytest

from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import ClusterConfig
from fedperf_simulations.corpus import resource_cap
from fedperf_simulations.corpus.resource_cap import Cap, joining

HALF = Cap(0.5, 1_000_000_000)

needs_control_groups = pytest.mark.skipif(
    not (resource_cap.CONTROL_GROUPS / "cpu" / "cpu.cfs_quota_us").is_file(),
    reason="needs control groups v1",
)

BUSY = """
import pathlib, time
begun = time.process_time()
while time.process_time() < begun + 0.1:
    pass
own = (line.split(":") for line in open("/proc/self/cgroup").read().split())
(place,) = (path for _, controllers, path in own if "cpu" in controllers.split(","))
group = pathlib.Path(GROUPS, "cpu" + place)
quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
print(quota / period, int(stat["nr_throttled"]) > 0)
""".replace("GROUPS", repr(str(resource_cap.CONTROL_GROUPS)))

HUNGRY = "print(len(bytearray(1 << 29)))"


def groups() -> list[Path]:
    return sorted(resource_cap.CONTROL_GROUPS.glob("*/fedperf-*"))


def said(cap: Cap, program: str) -> str:
    with joining(cap, (sys.executable, "-c", program)) as command:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@needs_control_groups
@pytest.mark.parametrize("cores", [0.5, 0.25])
def test_resource_cap_limits_a_process_to_its_share_of_a_core(cores: float) -> None:
    assert said(Cap(cores, HALF.memory_bytes), BUSY) == f"{cores} True\n"


@pytest.mark.slow
@needs_control_groups
def test_resource_cap_kills_a_process_exceeding_its_memory() -> None:
    assert said(Cap(1.0, 1 << 28), HUNGRY) == ""
    assert said(Cap(1.0, 1 << 30), HUNGRY) == f"{1 << 29}\n"


@needs_control_groups
def test_resource_cap_removes_its_control_groups_afterwards() -> None:
    before = groups()
    with joining(HALF, ("true",)) as command:
        assert len(groups()) == len(before) + 2
        subprocess.run(command, check=True)
    assert groups() == before


def test_resource_cap_without_control_groups_raises_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_cap, "CONTROL_GROUPS", tmp_path)
    (tmp_path / "cpu").mkdir()
    with (
        pytest.raises(ConfigurationError, match="control groups v1"),
        joining(HALF, ("true",)),
    ):
        pytest.fail("nothing runs without its cap")
    assert not list(tmp_path.glob("memory/*"))


@pytest.mark.parametrize("cores", [0.0, 1.5, float("nan")])
def test_resource_cap_with_invalid_core_share_is_refused(cores: float) -> None:
    with pytest.raises(ConfigurationError, match="CPU limit"):
        Cap(cores, HALF.memory_bytes)


def test_resource_cap_with_too_little_memory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="256 MiB"):
        Cap(0.5, 1_000_000)


def test_resource_cap_describes_a_slower_machine_with_less_memory() -> None:
    machine = ClusterConfig(nodes=1, cores=1, memory_bytes=1 << 34, machine_speed=0.9)
    assert HALF.of(machine) == ClusterConfig(1, 1, HALF.memory_bytes, 0.45)
