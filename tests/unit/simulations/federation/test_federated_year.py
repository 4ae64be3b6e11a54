"""A federated year in small: what is summed, declared, rehearsed, and when."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedperf_client.learning.residuals import LabelledGraph
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_server.rehearsal.synthetic_rows import on_grid
from fedperf_shared.execution import ClusterConfig, SizedPlan
from fedperf_shared.model.batches import PlanGraph
from fedperf_shared.model.checkpoint import model_from_arrays
from fedperf_shared.model.fit import predict
from fedperf_shared.model.ggfn import GGFN
from fedperf_shared.model.public_plans import anchors_of
from fedperf_shared.model.public_start import load_public_start
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.releases.period import Period, SlotTimes, Timetable
from fedperf_shared.releases.release import ReleaseKind, SizeClass, Slot, TangentParameters
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.federation.federated_year import (
    UNNOTICED,
    FederatedWorld,
    FederatedYear,
    Way,
)
from fedperf_simulations.measured_set.drifting_platforms import DriftSplit, Hands, deal
from fedperf_simulations.measured_set.limited_start import load_limited_start
from tests.fakes.plans import diamond
from tests.fakes.tangents import few_plans

ONE_CORE = ClusterConfig(nodes=1, cores=1, memory_bytes=1 << 34)
DAY = timedelta(days=1)
PERIOD = Period(datetime(2027, 1, 4, tzinfo=UTC), 28 * DAY, 4)
HANDS = Hands(organizations=2, workloads=20, pool=30, asked=10)

NAIVE, OWN = Way(own_history=False, rehearses=False), Way(own_history=True, rehearses=False)
TAUGHT = Way(own_history=False, rehearses=True)
NOISELESS = Way(own_history=True, rehearses=False, private=False)

SLOWER = 0.8
"""Log seconds by which each segment is slower than the start says."""


def timetable() -> Timetable:
    times = [SlotTimes(first * DAY, (first + 1) * DAY) for first in (3, 6, 20, 23)]
    return Timetable(PERIOD, (times[0],), (times[2],), extra_slots=(times[3],), extra_windows=1)


@pytest.fixture(scope="module")
def planned() -> PlannedSchedule:
    return plan_schedule(Policy(size_class=SizeClass.LARGE, nominal_workloads=3000), timetable())


@pytest.fixture(scope="module")
def start() -> GGFN:
    return model_from_arrays(load_limited_start().arrays).eval()


@pytest.fixture(scope="module")
def dealt(start: GGFN) -> DriftSplit:
    platforms = (Platform.DUCKDB, Platform.PANDAS, Platform.POLARS)
    return deal(
        [segment(start, each, e) for e, each in enumerate(platforms)], HANDS, PERIOD, seed=1
    )


@pytest.fixture(scope="module")
def world(start: GGFN, planned: PlannedSchedule, dealt: DriftSplit) -> FederatedWorld:
    public = few_plans()
    catalogue = on_grid([SizedPlan(each.plan, each.cluster) for each in public])
    anchors = [PlanGraph.of(*each) for each in anchors_of(public)]
    return FederatedWorld(start, catalogue, anchors, planned, dealt.organizations)


def segment(start: GGFN, platform: Platform, epoch: int) -> list[LabelledGraph]:
    plans = [diamond(platform, 1000.0 + 100 * number) for number in range(60)]
    graphs = [PlanGraph.of(plan, ONE_CORE) for plan in plans]
    return [
        LabelledGraph(f"{epoch}-{place}", graph, cell_of(plan).index, float(seconds), epoch)
        for place, (graph, plan, seconds) in enumerate(
            zip(graphs, plans, predict(start, graphs) + SLOWER, strict=True)
        )
    ]


def errors(model: GGFN, dealt: DriftSplit) -> list[float]:
    return [
        float(np.abs(predict(model, asked.graphs) - asked.log_seconds).mean())
        for asked in dealt.asked
    ]


def test_an_epoch_that_begins_in_the_year_brings_extra_rounds_as_often_as_the_calendar_has(
    world: FederatedWorld,
) -> None:
    year = FederatedYear(world, OWN, seed=[1])
    slots = [year._slots(window) for window in range(PERIOD.windows)]
    assert [len(each) for each in slots] == [1, 2, 1, 1]  # epochs begin with 0, 1 and 2
    assert all(slot.key.kind is ReleaseKind.MODEL_UPDATE for each in slots for slot in each)


def test_naive_sums_up_workloads_of_its_epoch_and_declares_no_more(world: FederatedWorld) -> None:
    [lived, _] = world.organizations
    own, naive = (FederatedYear(world, way, seed=[1]) for way in (OWN, NAIVE))
    [slot] = own._slots(3)
    everything = own._known(lived, slot, 2)
    assert {each.epoch for each in everything} == {0, 1, 2}
    assert naive._known(lived, slot, 2) == [each for each in everything if each.epoch == 2]
    until = world.planned.schedule.opens_at(slot.key)
    assert everything == lived.between(None, until)
    assert own._parameters(slot) == slot.parameters
    assert naive._parameters(slot).nominal_workloads == 1000
    assert isinstance(slot.parameters, TangentParameters)
    assert naive._parameters(slot).noise_multiplier == slot.parameters.noise_multiplier
    noiseless = FederatedYear(world, NOISELESS, seed=[1])._parameters(slot)
    assert (noiseless.noise_multiplier, noiseless.nominal_workloads) == (UNNOTICED, 3000)


def test_every_release_has_noise_of_its_own_whatever_the_way(world: FederatedWorld) -> None:
    own, naive = (FederatedYear(world, way, seed=[1]) for way in (OWN, NAIVE))
    [first, second] = own._slots(1)

    def drawn(year: FederatedYear, slot: Slot, organization: int) -> float:
        return float(year._noise(slot, organization).gaussian(1)[0])

    found = {drawn(own, slot, number) for slot in (first, second) for number in (0, 1)}
    assert len(found) == 4
    assert drawn(naive, first, 0) == drawn(own, first, 0)
    assert drawn(FederatedYear(world, OWN, seed=[2]), first, 0) not in found


@pytest.mark.slow
def test_without_noise_the_year_learns_and_a_seed_repeats_it(
    world: FederatedWorld, start: GGFN, dealt: DriftSplit
) -> None:
    first, *_, last = FederatedYear(world, NOISELESS, seed=[1]).models()
    assert errors(last, dealt)[2] < 0.98 * errors(start, dealt)[2]
    assert errors(first, dealt)[0] < errors(start, dealt)[0]
    again, other = (next(FederatedYear(world, OWN, seed=[seed]).models()) for seed in (1, 2))
    repeated = next(FederatedYear(world, OWN, seed=[1]).models())
    assert errors(again, dealt) == errors(repeated, dealt) != errors(other, dealt)


def test_reports_of_an_epochs_first_window_are_about_the_one_before(
    world: FederatedWorld, start: GGFN
) -> None:
    reports = FederatedYear(world, TAUGHT, seed=[1])._reports
    window = next(
        each.key.window for each in world.planned.schedule.slots if is_report(each.key.kind)
    )
    later = model_from_arrays(load_public_start().arrays).eval()
    reports.begin_epoch(start)
    assert reports.reference is start
    reports.begin_epoch(later)
    assert reports.reference is start
    assert not reports.buffer.rows
    reports.report(window)
    assert reports.reference is later
    rows = reports.buffer.rows
    graphs = [PlanGraph.of(row.plan, row.cluster) for row in rows]
    labels = [row.log_runtime_seconds for row in rows]
    assert labels == pytest.approx(predict(later, graphs).tolist(), abs=1e-5)
    reports.report(window)
    assert reports.reference is later
    assert reports.buffer.rows == rows  # kept once


@pytest.mark.slow
def test_rows_of_the_epoch_that_ended_are_labelled_by_the_model_that_it_ended_with(
    world: FederatedWorld, dealt: DriftSplit
) -> None:
    year = FederatedYear(world, TAUGHT, seed=[1])
    buffers, teachers = [], []
    for model in year.models():
        teachers.append(model)
        buffers.append(year._reports.buffer.rows)
    assert not buffers[0]
    reported = [
        slot.key.window for slot in world.planned.schedule.slots if is_report(slot.key.kind)
    ]
    kept = next(place for place, rows in enumerate(buffers) if rows)
    assert min(reported) < kept
    labels = [row.log_runtime_seconds for row in buffers[kept]]
    graphs = [PlanGraph.of(row.plan, row.cluster) for row in buffers[kept]]
    assert year._steps == 2  # rounds of the last epoch
    untaught = [*FederatedYear(world, NAIVE, seed=[1]).models()]
    same = [
        errors(taught, dealt) == errors(naive, dealt)
        for taught, naive in zip(teachers, untaught, strict=True)
    ]
    assert same == [window < kept for window in range(PERIOD.windows)]
    assert labels == pytest.approx(predict(teachers[kept - 1], graphs).tolist(), abs=1e-5)


def is_report(kind: ReleaseKind) -> bool:
    return kind is ReleaseKind.RESIDUAL_REPORT
