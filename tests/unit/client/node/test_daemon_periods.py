"""A running daemon follows the calendar from one period to the next."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fedperf_client.home.config import Home
from fedperf_client.node.exchange import ExchangeError
from fedperf_client.node.participant import begin_next_period
from fedperf_client.release.ledger import PrivacyLedger
from fedperf_client.release.policy import policy_template
from fedperf_shared.releases.release import SizeClass
from fedperf_shared.runtime.failure_tracker import LONGEST_BACKOFF_SECONDS, FailureTracker
from tests.unit.client.node.test_daemon import HOUR, TABLE, Scene
from tests.unit.client.pretrained_model import install_start

NEXT = replace(TABLE, period=replace(TABLE.period, start=TABLE.period.end))


class Follower:
    """A daemon at the end of its period."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        scene.now = TABLE.period.end
        self.failures = FailureTracker(timer=scene.seconds)

    def look(self) -> tuple[PrivacyLedger | None, list[str]]:
        """Return the next period's ledger and the log lines about it."""
        scene = self.scene
        with capture_logs() as logs:
            found = begin_next_period(
                scene.ledger,
                scene.home,
                scene.exchange,
                now=scene.now,
                failures=self.failures,
            )
        said = [each for each in logs if each.get("what") == "the next period"]
        return found, [f"{each['event']}: {each.get('reason')}" for each in said]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    install_start(tmp_path, monkeypatch)
    home = Home(tmp_path / "home")
    home.create(policy_template(SizeClass.SMALL, 20_000))
    return Scene(home)


def test_next_period_begins_with_its_own_ledger_and_declared_schedule(
    scene: Scene,
) -> None:
    daemon = Follower(scene)
    scene.exchange.current_calendar = NEXT
    scene.now -= HOUR
    assert daemon.look() == (None, [])
    assert scene.exchange.calls == []
    scene.now += HOUR
    found, said = daemon.look()
    assert found is not None
    assert found.path == scene.home.ledger(NEXT.period.start)
    assert found.schedule.calendar.period == NEXT.period
    assert scene.exchange.declared == [found.schedule]
    assert said == []


def test_missing_next_period_is_logged_rarely_and_polled_with_backoff(
    scene: Scene,
) -> None:
    daemon = Follower(scene)
    said: list[str] = []
    for _ in range(720):
        found, lines = daemon.look()
        assert found is None
        said += lines
        scene.now += timedelta(seconds=5)
    assert "has no next one" in said[0]
    assert len(said) == 4
    assert len(scene.exchange.calls) <= 3600 / LONGEST_BACKOFF_SECONDS + 6
    scene.exchange.current_calendar = NEXT
    scene.now += timedelta(seconds=LONGEST_BACKOFF_SECONDS)
    found, lines = daemon.look()
    assert found is not None
    assert lines == ["works again: None"]


@pytest.mark.parametrize("fault", ["coordinator", "policy"])
def test_next_period_is_retried_after_coordinator_or_policy_error(scene: Scene, fault: str) -> None:
    daemon = Follower(scene)
    scene.exchange.current_calendar = NEXT
    policy = scene.home.policy.read_text()
    if fault == "coordinator":
        scene.exchange.fault = ExchangeError("away")
    else:
        scene.home.policy.write_text("")
    found, (line,) = daemon.look()
    assert found is None
    assert line.startswith("failing: ")
    assert not scene.home.ledger(NEXT.period.start).exists()
    scene.exchange.fault = None
    scene.home.policy.write_text(policy)
    scene.now += timedelta(seconds=30)
    assert daemon.look()[0] is not None
