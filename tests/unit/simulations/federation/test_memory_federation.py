"""Tests of the memory backend: its timestamps, offline members and the reference model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.ledger import ReleaseState
from fedperf_memory.histories import (
    ContributionCache,
    HistoryCompute,
    SharedContributions,
    UnknownTaskError,
)
from fedperf_memory.memory_federation import (
    HOST,
    Clock,
    Federation,
    NewMember,
    calendar_times,
    memory_federation,
)
from fedperf_memory.seeded_noise import noise_of
from fedperf_server.app.composition import Task, predict_with
from fedperf_server.config import ServerConfig
from fedperf_server.rounds.linearized_avg import LinearizedAvg
from fedperf_server.state.registry import GgfnFormat
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes
from fedperf_shared.releases.release import ReleaseKind, ReportParameters, Schedule, Slot, SlotKey
from fedperf_shared.workflow.features import featurize
from fedperf_simulations.federation.linearized_training import MeasuredHistory
from tests.fakes.linearized_queries import few_plans
from tests.fakes.plans import ONE_CORE, diamond
from tests.unit.client.pretrained_model import seeded_checkpoint

START = datetime(2027, 1, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)
TABLE = ReleaseCalendar(Period(START, 24 * HOUR, 2), (SlotTimes(HOUR, 3 * HOUR),), ())
SCHEDULE = Schedule(
    TABLE,
    tuple(
        Slot(SlotKey(ReleaseKind.RESIDUAL_REPORT, window, 0), ReportParameters(20.0, 1.5))
        for window in range(2)
    ),
)
NOTHING = MeasuredHistory(())


def new_participant(name: str, **changes: object) -> NewMember:
    clock = Clock(START)
    values = {
        "budget": PrivacyBudget(5.0, 1e-5),
        "schedule": SCHEDULE,
        "noise": noise_of([1], 0),
        "compute": HistoryCompute(NOTHING, SharedContributions(), clock),
    }
    return NewMember(name, **{**values, **changes})  # type: ignore[arg-type]


def task() -> Task:
    start = [*seeded_checkpoint(5).arrays.values()]
    return Task(
        start, GgfnFormat(), LinearizedAvg(()), lambda arrays: 1.0, predict_with, few_plans()
    )


def left(federation: Federation) -> dict[str, list[int]]:
    """Return the windows whose report was sent, by member."""
    return {
        each.member.name: [
            entry.key.window
            for entry in each.ledger.entries()
            if entry.state is ReleaseState.HANDED_OUT
        ]
        for each in federation.members
    }


def test_calendar_times_are_slot_openings_replies_and_ends_of_grace() -> None:
    found = calendar_times(TABLE, grace=HOUR / 2)
    hours = [(each - START) / HOUR for each in found]
    assert hours == [0, 1, 3, 3.5, 24, 25, 27, 27.5]


def test_calendar_times_include_only_declared_first_slots() -> None:
    table = replace(TABLE, first_slots=(SlotTimes(5 * HOUR, 6 * HOUR),))
    every = calendar_times(table, grace=HOUR / 2)
    first = SlotKey(ReleaseKind.RESIDUAL_REPORT, 1, 1)
    found = calendar_times(table, grace=HOUR / 2, declared={first})
    new = {(each - START) / HOUR for each in {*found} - {*calendar_times(TABLE, grace=HOUR / 2)}}
    assert new == {29, 30, 30.5}
    assert {*found} < {*every}


@pytest.mark.slow
def test_memory_federation_participants_report_on_initial_model_unless_offline(
    tmp_path: Path,
) -> None:
    def asleep(moment: datetime) -> bool:
        return moment > START + 24 * HOUR

    config = ServerConfig(tmp_path / "coordinator", HOST, TABLE)
    members = [new_participant("awake"), new_participant("sleeper", sleeps=asleep)]
    with memory_federation(config, task(), members) as federation:
        for each in federation.members:
            reference = FetchedModels(each.home.models).reference()
            for name, array in seeded_checkpoint(5).arrays.items():
                np.testing.assert_array_equal(reference.arrays[name], array)
        federation.live(START + 24 * HOUR)
        assert left(federation) == {"awake": [0], "sleeper": [0]}
        federation.live(TABLE.period.end)
        assert left(federation) == {"awake": [0, 1], "sleeper": [0]}
        federation.live(TABLE.period.end)  # already simulated


def test_history_compute_of_unknown_task_is_refused() -> None:
    compute = HistoryCompute(NOTHING, SharedContributions(), Clock(START))
    with pytest.raises(UnknownTaskError):
        compute(lambda: 1)


def test_shared_results_are_computed_once_per_subject_and_graph() -> None:
    one, other = (
        LabelledGraph(name, featurize(diamond(), ONE_CORE), 0, 0.0) for name in ("one", "other")
    )
    begun: list[list[str]] = []

    def begin() -> Callable[[Sequence[LabelledGraph]], list[str]]:
        asked: list[str] = []
        begun.append(asked)

        def answer(new: Sequence[LabelledGraph]) -> list[str]:
            asked.extend(each.workload for each in new)
            return [each.workload.upper() for each in new]

        return answer

    answers = ContributionCache()
    assert answers.of("a", [one], begin) == ["ONE"]
    assert answers.of("a", [other, one], begin) == ["OTHER", "ONE"]
    assert answers.of("b", [one, other], begin) == ["ONE", "OTHER"]
    assert begun == [["one", "other"], ["one", "other"]]


def test_federation_noise_depends_on_seed_participant_and_slot_only() -> None:
    one, other = (SlotKey(ReleaseKind.RESIDUAL_REPORT, 0, index) for index in (0, 1))
    drawn = {
        int(noise_of(seed, member)(key).discrete_gaussian(1, 1e12)[0])
        for seed in ([1], [2])
        for member in (0, 1)
        for key in (one, other)
    }
    assert len(drawn) == 8
    first, again = (noise_of([1], 0)(one).discrete_gaussian(3, 1e12) for _ in range(2))
    assert first.tolist() == again.tolist()
