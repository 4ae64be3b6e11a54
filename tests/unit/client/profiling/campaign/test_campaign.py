"""The campaign's loop, with scripted trials and a scripted machine."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedperf_campaigns.campaign.campaign import (
    AllAtOnce,
    CampaignDependencies,
    CampaignRun,
    Sampler,
    make_sampler,
)
from fedperf_campaigns.campaign.definition import Campaign, Component, RunSettings
from fedperf_campaigns.campaign.grid import Value
from fedperf_campaigns.campaign.journal import Journal, TrialKey, TrialOutcome, TrialStatus
from fedperf_campaigns.campaign.summary import CampaignEnd, summarize
from fedperf_campaigns.campaign.trial_runner import (
    HostMonitor,
    InterferenceSample,
    TrialRunner,
    TrialStoppedError,
)
from tests.unit.client.profiling.campaign.campaigns import BUSY, MACHINE, QUIET, make_campaign

TWO = (
    '[[component]]\nname = "a"\ncommand = ["x"]\n'
    '[[component]]\nname = "b"\ncommand = ["x"]\nafter = ["a"]\n'
)
BOTH = 'components = "both"'
"""Two components, of which each alone and both together are targets."""

Ran = tuple[tuple[str, ...], tuple[Value, ...]]
OK = TrialOutcome(TrialStatus.OK, wall_seconds=1.0)
FAILED = TrialOutcome(TrialStatus.FAILED, "it broke", wall_seconds=0.5)


@dataclass
class World(TrialRunner, HostMonitor):
    """Trials whose outcome is a function of the configuration and the number of earlier trials."""

    outcome: Callable[[dict[str, Value], int], TrialOutcome] = lambda row, number: OK
    readings: Iterator[InterferenceSample] = field(default_factory=lambda: itertools.repeat(QUIET))
    boot: str = "boot 1"
    stop: threading.Event = field(default_factory=threading.Event)
    ran: list[Ran] = field(default_factory=list)
    told: list[bool] = field(default_factory=list)
    now: datetime = datetime(2027, 1, 1, tzinfo=UTC)

    def run(
        self,
        components: Sequence[Component],
        configuration: Mapping[str, Value],
        *,
        limits: RunSettings,
        token: str,
    ) -> TrialOutcome:
        del limits, token
        number = len(self.ran)
        self.ran.append((tuple(c.name for c in components), tuple(configuration.values())))
        if self.stop.is_set():
            raise TrialStoppedError("stopped")
        return self.outcome(dict(configuration), number)

    def begin(self) -> None:
        pass

    def end(self) -> InterferenceSample:
        return next(self.readings)

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def surroundings(self) -> CampaignDependencies:
        return CampaignDependencies(
            trials=self,
            host=self,
            machine=MACHINE,
            boot=self.boot,
            clock=self.clock,
            new_token=lambda: "t",
            stop=self.stop,
            on_trial=lambda trial, is_settled: self.told.append(is_settled),
        )


@dataclass
class Place:
    """A campaign and its journal on disk."""

    campaign: Campaign
    path: Path

    def run(self, world: World, sampler: Sampler | None = None) -> CampaignEnd:
        with Journal.open(self.path, self.campaign.campaign_id) as journal:
            chosen = sampler or make_sampler(self.campaign)
            run = CampaignRun(self.campaign, journal, world.surroundings())
            return run.to_the_end(chosen)

    def statuses(self) -> list[str]:
        with Journal.open(self.path, self.campaign.campaign_id) as journal:
            return [
                each.outcome.status.value if each.outcome else "lost" for each in journal.trials()
            ]

    def measured(self) -> list[TrialKey]:
        with Journal.open(self.path, self.campaign.campaign_id) as journal:
            return [each.key for each in journal.trials()]


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], Place]:
    def made(run: str, components: str | None = None) -> Place:
        extra = {} if components is None else {"components": components}
        return Place(make_campaign(tmp_path, run=run, **extra), tmp_path / "j.sqlite")

    return made


ScaleAndSize = Callable[..., Place]


def test_campaign_runs_each_configuration_once_per_block(place: ScaleAndSize) -> None:
    world, here = World(), place("repetitions = 2")
    stopped = here.run(world)
    assert not stopped.interrupted
    assert len(world.ran) == 8
    assert sorted(world.ran[:4]) == sorted(set(world.ran[:4]))
    assert here.statuses() == ["ok"] * 8


ACTIVE = '[sampling]\nstrategy = "active"\ntarget_mape = 0.05\npatience = 2'
LARGE_GRID = """
[grid]
size = "rows"
parallelism = "workers"
[grid.columns]
rows = { start = 1000, stop = 512000, doubling = true }
workers = [1, 2, 4, 8, 16]
"""


def by_law(row: dict[str, Value], number: int) -> TrialOutcome:
    """Return start-up time plus work that is divided among the workers."""
    rows, workers = float(row["rows"]), float(row["workers"])
    wobble = 1 + 0.01 * ((31 * number) % 7 - 3) / 3
    return replace(OK, wall_seconds=(2.0 + rows / 4000 / workers**0.8) * wobble)


@pytest.mark.slow
def test_active_campaign_stops_early_and_resumes_with_same_trials(tmp_path: Path) -> None:
    def campaign(name: str) -> Place:
        (tmp_path / name).mkdir()
        made = make_campaign(tmp_path / name, grid=LARGE_GRID, more=ACTIVE)
        return Place(made, tmp_path / name / "j.sqlite")

    whole, world = campaign("whole"), World(by_law)
    stopped = whole.run(world)
    assert "configurations left out is" in stopped.reason
    assert len(stopped.rows) < 25  # 50 in all
    broken = World()

    def eight_at_a_time(row: dict[str, Value], number: int) -> TrialOutcome:
        if number % 8 == 7:
            broken.stop.set()
        return by_law(row, number)

    broken.outcome = eight_at_a_time
    parts = campaign("parts")
    while parts.run(broken).interrupted:
        broken.stop.clear()
    assert parts.measured() == whole.measured()


def test_warm_up_trials_precede_first_repetition_and_are_not_counted(place: ScaleAndSize) -> None:
    world, here = World(), place("repetitions = 2\nwarmup = 2")
    here.run(world)
    assert here.statuses().count("warmup") == 8
    repetitions = [key.repetition for key in here.measured() if key.configuration == 0]
    assert repetitions == [-2, -1, 0, 1]
    assert world.ran[0] == world.ran[1] == world.ran[2]


def test_failed_trial_is_retried_and_then_final(place: ScaleAndSize) -> None:
    bad = {"rows": 100, "workers": 2}
    world = World(lambda row, number: FAILED if row == bad else OK)
    here = place("repetitions = 2\nretries = 2")
    stopped = here.run(world)
    assert here.statuses().count("failed") == 3
    assert here.statuses().count("ok") == 6
    with Journal.open(here.path, here.campaign.campaign_id) as journal:
        summary = summarize(here.campaign, journal.trials(), journal.sessions(), stopped)
    assert [each.key.repetition for each in summary.skipped] == [1]
    assert "failed for good" in summary.skipped[0].reason
    assert summary.statuses["skipped"] == 1


def test_failed_trial_with_successful_retry_loses_no_repetition(place: ScaleAndSize) -> None:
    world = World(lambda row, number: FAILED if number == 2 else OK)
    here = place("repetitions = 2\nretries = 1")
    here.run(world)
    assert sorted(here.statuses()) == ["failed"] + ["ok"] * 8
    assert world.told == [True, True, False] + [True] * 6


def test_trial_with_interference_is_repeated_once_and_remains_stored(place: ScaleAndSize) -> None:
    readings = itertools.chain([BUSY, BUSY, QUIET, BUSY], itertools.repeat(QUIET))
    world, here = World(readings=readings), place("repetitions = 1\nretries = 5")
    stopped = here.run(world)
    assert here.statuses()[:5] == ["noisy", "noisy", "ok", "noisy", "ok"]
    assert len(world.ran) == 4 + 2
    with Journal.open(here.path, here.campaign.campaign_id) as journal:
        summary = summarize(here.campaign, journal.trials(), journal.sessions(), stopped)
    assert all(each.seconds for each in summary.repeats)
    assert len(summary.flagged) == 3


def test_campaign_after_three_trials_with_interference_repeats_no_more(
    place: ScaleAndSize,
) -> None:
    world, here = World(readings=itertools.repeat(BUSY)), place("repetitions = 1\nretries = 5")
    here.run(world)
    assert here.statuses() == ["noisy"] * 5
    again = World()
    here.run(again)
    assert again.ran == []


def test_trial_with_interference_and_zero_retries_is_not_repeated(place: ScaleAndSize) -> None:
    world = World(readings=itertools.repeat(BUSY))
    here = place("repetitions = 1\nretries = 0")
    here.run(world)
    assert here.statuses() == ["noisy"] * 4


def test_finished_campaign_runs_no_more_trials(place: ScaleAndSize) -> None:
    here = place("repetitions = 2\nwarmup = 1")
    here.run(World())
    again = World()
    assert not here.run(again).interrupted
    assert again.ran == []


def test_resumed_campaign_runs_each_remaining_trial_once(place: ScaleAndSize) -> None:
    first, rest, whole = World(), World(), World()
    here, more = place(f"{BOTH}\nmax_trials = 4", TWO), place(BOTH, TWO)
    assert more.campaign.campaign_id == here.campaign.campaign_id
    assert "budget of 4 trials" in here.run(first).reason
    more.run(rest)
    replace(more, path=more.path.with_name("whole.sqlite")).run(whole)
    assert first.ran + rest.ran == whole.ran
    assert len(set(more.measured())) == len(whole.ran) > 12


def test_campaign_budget_of_seconds_counts_all_sessions(place: ScaleAndSize) -> None:
    here = place("repetitions = 2\nmax_wall_seconds = 3")
    first, second = World(), World()
    assert "budget of 3 seconds" in here.run(first).reason
    here.run(second)
    assert (len(first.ran), len(second.ran)) == (3, 0)


def test_campaign_with_spent_budget_is_not_complete(place: ScaleAndSize) -> None:
    for run, is_complete in (("max_trials = 3", False), ("", True)):
        here = place(f"repetitions = 1\n{run}")
        stopped = here.run(World())
        with Journal.open(here.path, here.campaign.campaign_id) as journal:
            summary = summarize(here.campaign, journal.trials(), journal.sessions(), stopped)
        assert not stopped.interrupted
        assert summary.is_complete is is_complete
        assert summary.statuses["skipped"] == (0 if is_complete else 1)


def test_campaign_budget_is_not_restored_by_clock_set_back(place: ScaleAndSize) -> None:
    world, here = World(), place("repetitions = 2\nmax_wall_seconds = 3")

    def outcome(row: dict[str, Value], number: int) -> TrialOutcome:
        world.now -= timedelta(hours=number == 0)
        return OK

    world.outcome = outcome
    assert "budget of 3 seconds" in here.run(world).reason
    assert len(world.ran) == 4


def test_campaign_stop_interrupts_replay_of_finished_trials(place: ScaleAndSize) -> None:
    here, chosen = place("repetitions = 1"), Greedy()
    here.run(World())
    world = World()
    world.stop.set()
    assert here.run(world, chosen).interrupted
    assert len(chosen.told) == 1


def test_stopped_campaign_loses_only_the_trial_in_flight(place: ScaleAndSize) -> None:
    here, world = place("repetitions = 1"), World()

    def outcome(row: dict[str, Value], number: int) -> TrialOutcome:
        if number == 2:
            raise TrialStoppedError("stopped")
        return OK

    world.outcome = outcome
    assert here.run(world).interrupted
    assert here.statuses() == ["ok", "ok", "lost"]
    rest = World()
    assert not here.run(rest).interrupted
    assert len(rest.ran) == 2
    assert here.statuses() == ["ok", "ok", "lost", "ok", "ok"]


def test_campaign_stopped_before_next_trial_starts_none(place: ScaleAndSize) -> None:
    here, world = place("repetitions = 1"), World()
    world.stop.set()
    assert here.run(world).interrupted
    assert here.statuses() == []


def test_first_trial_of_a_configuration_since_boot_is_cold(place: ScaleAndSize) -> None:
    here = place("repetitions = 2\nmax_trials = 4")
    here.run(World())
    more = place("repetitions = 2")
    more.run(World(boot="boot 2"))
    with Journal.open(more.path, more.campaign.campaign_id) as journal:
        cold = [each.is_cold for each in journal.trials()]
    assert cold == [True] * 8  # once per configuration and boot


def test_campaign_measures_components_alone_and_together(place: ScaleAndSize) -> None:
    world, here = World(), place(f"{BOTH}\nrepetitions = 1", TWO)
    here.run(world)
    assert {names for names, _ in world.ran} == {("a",), ("b",), ("a", "b")}
    assert len(world.ran) == 12
    orders = {tuple(n for n, row in world.ran if row == each) for _, each in world.ran}
    assert len(orders) > 1


class Greedy:
    """A sampler that follows the measured times and records its inputs."""

    def __init__(self) -> None:
        self.told: list[dict[int, float]] = []
        self.reason = "three are enough"

    def next(self, measured: Mapping[int, float], unavailable: frozenset[int]) -> int | None:
        del unavailable
        self.told.append(dict(measured))
        if not measured:
            return 2
        return None if len(measured) == 3 else (max(measured) + round(sum(measured.values()))) % 4


def test_resumed_campaign_passes_same_measurements_to_sampler(place: ScaleAndSize) -> None:
    def seconds(row: dict[str, Value], number: int) -> TrialOutcome:
        return TrialOutcome(TrialStatus.OK, wall_seconds=float(row["workers"]) * 1.5)

    here = place("repetitions = 2")
    world, whole = World(seconds), Greedy()
    here.run(world, AllAtOnce(whole, repetitions=2))
    here.path.unlink()
    cut = place("repetitions = 2\nmax_trials = 3")
    cut.run(World(seconds), AllAtOnce(Greedy(), repetitions=2))
    resumed, rest = Greedy(), World(seconds)
    stopped = here.run(rest, AllAtOnce(resumed, repetitions=2))
    assert resumed.told == whole.told
    assert len(rest.ran) == len(world.ran) - 3
    assert stopped.reason == "three are enough"
    assert len(stopped.rows) == 3
