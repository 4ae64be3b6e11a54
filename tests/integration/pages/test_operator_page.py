"""Command lines of the operator's page, in order, on one running coordinator."""

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.contributions.mechanisms import WorkloadResiduals
from fedperf_server.config import ServerConfig, load_config, write_config
from fedperf_server.state import registry
from fedperf_server.state.database import Database, PromotionRecord, VersionStatus
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.releases.basis import CELLS
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import (
    ReleaseKind,
    ReportParameters,
    Schedule,
    Slot,
    SlotKey,
)
from fedperf_shared.wire.codec import encode_release
from tests.fakes.residual_reports import residual_report
from tests.integration.federation.small_federation import admit, free_ports
from tests.integration.organizations.deployments import now, wait_until, whole_second
from tests.integration.pages.runners import walk, with_stand_ins
from tests.integration.pages.shell import PATIENCE, Shell
from tests.pages import OPERATOR, RESEARCHER, lines_of
from tests.unit.client.contributions.seeded_noise import SeededNoise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SERVES = "fedperf-server run"


@dataclass(frozen=True)
class Coordinator:
    """Events at a coordinator between the lines of its operator."""

    directory: Path

    def goes_on_after(self, line: str, said: str) -> None:
        """Perform the steps of others that follow this line of the operator."""
        if line.startswith("fedperf-server init"):
            self.is_edited()
        elif line.startswith("fedperf-server org add"):
            self.has_a_member(said)
        elif line == "fedperf-server models":
            self.promotes()

    @property
    def config(self) -> ServerConfig:
        return load_config(self.directory)

    def is_edited(self) -> None:
        """Set free ports and a calendar with a report that is due now."""
        exchange, door, fleet = free_ports(3)
        hour = timedelta(hours=1)
        period = Period(whole_second(now()) - hour, 2 * hour, 2)
        table = ReleaseCalendar(period, (SlotTimes(hour / 60, 2 * hour),), ())
        edited = replace(
            self.config,
            calendar=table,
            exchange_port=exchange,
            enrollment_port=door,
            fleet_port=fleet,
        )
        write_config(edited)

    def has_a_member(self, said: str) -> None:
        """Let the invited organization join and submit a report."""
        [url] = re.findall(r"fedperf://\S+", said)
        key = SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, 0)
        parameters = ReportParameters(noise_multiplier=1.4, residual_clip=3.0)
        report = residual_report(
            [WorkloadResiduals(np.array([cell]), np.array([0.5])) for cell in range(CELLS)] * 4,
            SeededNoise(1),
            slot=key,
            parameters=parameters,
            reference_version=1,
        )
        schedule = Schedule(self.config.calendar, (Slot(key, parameters),))
        acme = admit(self.directory.parent, url, "acme", schedule)
        with acme.exchange() as exchange:
            exchange.submit(acme.sign(encode_release(report)))
        database = Database(self.config.database_url)

        def rows_are_published() -> bool:
            with database.transaction() as session:
                return bool(registry.published_rows(session))

        wait_until(rows_are_published, seconds=PATIENCE, what="synthetic rows")
        database.close()

    def promotes(self) -> None:
        """Promote a version, as after a window with reports in its favour."""
        form, database = GgfnFormat(), Database(self.config.database_url)
        with database.transaction() as session:
            start = form.decode(registry.get_version(session, 1).checkpoint)
            registry.add_version(session, form, start, at=now(), public_error=1.2)
            good = PromotionRecord(
                version=2,
                status=VersionStatus.PROMOTED,
                reason="good",
                gain=0.1,
                gain_error=0.02,
                by_segment={},
                decided_at=now(),
            )
            registry.decide(session, good)
        database.close()


def test_commands_of_operator_page_succeed_in_order(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path / "server")
    shell = Shell(tmp_path, {"FEDPERF_SERVER_DIRECTORY": str(coordinator.directory)})
    [replay] = [
        with_stand_ins(line.text)
        for line in lines_of(RESEARCHER)
        if line.text.startswith("fedperf-sim replay")
    ]
    with ExitStack() as running:
        for line in walk(OPERATOR):
            if line == SERVES:
                running.enter_context(shell.background(line, until="serving"))
            else:
                coordinator.goes_on_after(line, shell.run(line))
    assert "version" in shell.run(replay)
