"""Tests of a small federated year: releases, declared drift regimes and rehearsal."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fedperf_client.contributions.local_sums import LabelledGraph
from fedperf_client.release.policy import Policy
from fedperf_client.release.schedule import PlannedSchedule, plan_schedule
from fedperf_memory.memory_federation import least_budget
from fedperf_server.state import registry
from fedperf_server.state.database import RegimeTrigger
from fedperf_server.state.drift_regimes import regimes
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.model.public_plans import anchors_of
from fedperf_shared.releases.basis import cell_of
from fedperf_shared.releases.period import Period, ReleaseCalendar, SlotTimes, default_calendar
from fedperf_shared.releases.release import LinearizedParameters, SizeClass
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.corpus.limited_start import load_limited_model
from fedperf_simulations.corpus.organizations import DriftSplit, WorkloadSplit, deal
from fedperf_simulations.federation.federated_year import (
    UNNOTICED,
    CurrentRegimeHistory,
    FederatedYear,
    FederationFixture,
    TrainingMode,
)
from fedperf_simulations.model.fit import predict
from fedperf_simulations.model.ggfn import GGFN, model_from_arrays
from tests.fakes.linearized_queries import few_plans
from tests.fakes.plans import diamond

ONE_CORE = ClusterConfig(nodes=1, cores=1, memory_bytes=1 << 34)
DAY = timedelta(days=1)
PERIOD = Period(datetime(2027, 1, 4, tzinfo=UTC), 28 * DAY, 4)
HANDS = WorkloadSplit(organizations=2, workloads=20, pool=30, held_out=10)

NAIVE, OWN = (
    TrainingMode(own_history=False, rehearses=False),
    TrainingMode(own_history=True, rehearses=False),
)
TAUGHT = TrainingMode(own_history=False, rehearses=True)
NOISELESS = TrainingMode(own_history=True, rehearses=False, private=False)

SLOWER = 0.8
"""Log seconds by which each segment is slower than the pretrained model predicts."""


def calendar() -> ReleaseCalendar:
    times = [SlotTimes(first * DAY, (first + 1) * DAY) for first in (3, 6, 20, 23)]
    return ReleaseCalendar(
        PERIOD, (times[0],), (times[2],), extra_slots=(times[3],), extra_windows=1
    )


@pytest.fixture(scope="module")
def planned() -> PlannedSchedule:
    """Return a schedule at an epsilon at which reports of so few workloads are informative."""
    policy = Policy(size_class=SizeClass.LARGE, nominal_workloads=3000, epsilon=3000.0)
    return plan_schedule(policy, calendar())


@pytest.fixture(scope="module")
def start() -> GGFN:
    return model_from_arrays(load_limited_model().arrays).eval()


@pytest.fixture(scope="module")
def dealt(start: GGFN) -> DriftSplit:
    platforms = (Platform.DUCKDB, Platform.PANDAS, Platform.POLARS)
    return deal(
        [segment(start, each, e) for e, each in enumerate(platforms)], HANDS, PERIOD, seed=1
    )


@pytest.fixture(scope="module")
def world(start: GGFN, planned: PlannedSchedule, dealt: DriftSplit) -> FederationFixture:
    public = few_plans()
    return FederationFixture(start, public, anchors_of(public), planned, dealt.organizations)


def segment(start: GGFN, platform: Platform, epoch: int) -> list[LabelledGraph]:
    plans = [diamond(platform, 1000.0 + 100 * number) for number in range(60)]
    graphs = [featurize(plan, ONE_CORE) for plan in plans]
    return [
        LabelledGraph(f"{epoch}-{place}", graph, cell_of(plan).index, float(seconds), epoch)
        for place, (graph, plan, seconds) in enumerate(
            zip(graphs, plans, predict(start, graphs) + SLOWER, strict=True)
        )
    ]


def errors(model: GGFN, dealt: DriftSplit) -> list[float]:
    return [
        float(np.abs(predict(model, asked.graphs) - asked.log_seconds).mean())
        for asked in dealt.held_out
    ]


def planned_updates(year: FederatedYear) -> list[LinearizedParameters]:
    found = [each.parameters for each in year._schedule().slots]
    return [each for each in found if isinstance(each, LinearizedParameters)]


@pytest.mark.slow
def test_naive_mode_uses_current_regime_workloads_and_declares_fewer(
    world: FederationFixture,
) -> None:
    own, naive, noiseless = (
        planned_updates(FederatedYear(world, way, seed=[1])) for way in (OWN, NAIVE, NOISELESS)
    )
    assert {each.nominal_workloads for each in own} == {3000.0}
    assert {each.nominal_workloads for each in naive} == {1000.0}
    assert [each.noise_multiplier for each in naive] == [each.noise_multiplier for each in own]
    assert {each.noise_multiplier for each in noiseless} == {UNNOTICED}
    [lived, _] = world.organizations
    for window, epoch in ((0, 0), (1, 1), (3, 2)):
        until = PERIOD.window_start(window) + 20 * DAY
        everything = lived.between(None, until)
        assert {each.regime for each in everything} == {*range(epoch + 1)}
        mine = CurrentRegimeHistory(lived).between(None, until)
        assert mine == [each for each in everything if each.regime == epoch]


@pytest.mark.slow
def test_federated_year_budget_covers_a_schedule_without_noise(
    world: FederationFixture,
) -> None:
    policy = Policy(size_class=SizeClass.LARGE, nominal_workloads=3000)
    planned = plan_schedule(policy, default_calendar(PERIOD.start))
    year = FederatedYear(replace(world, planned=planned), NOISELESS, seed=[1])
    assert least_budget(year._schedule(), delta=planned.budget.delta).epsilon > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("is_announced", "begun"), [(True, 2), (False, 0)])
def test_federated_year_declares_drift_regimes_only_if_announced(
    world: FederationFixture, *, is_announced: bool, begun: int
) -> None:
    year = FederatedYear(world, OWN, [1], is_announced=is_announced)
    for federation in year.lived():
        with federation.database.transaction() as session:
            causes = [each.cause for each in regimes(session)]
    assert causes.count(RegimeTrigger.DECLARED) == begun


@pytest.mark.slow
def test_federated_year_without_noise_reduces_error_and_is_seeded(
    world: FederationFixture, start: GGFN, dealt: DriftSplit
) -> None:
    *_, last = FederatedYear(world, NOISELESS, seed=[1]).models()
    assert errors(last, dealt)[1] < 0.98 * errors(start, dealt)[1]
    one, again, other = (
        [errors(model, dealt) for model in FederatedYear(world, OWN, seed=[seed]).models()]
        for seed in (1, 1, 2)
    )
    assert one == again != other


@pytest.mark.slow
def test_rehearsal_changes_the_model_only_after_a_drift_regime_has_ended(
    world: FederationFixture, dealt: DriftSplit
) -> None:
    """Drift regimes begin with windows 1 and 2. Versions of a window run from the next one on."""
    taught, naive = (
        [errors(model, dealt) for model in FederatedYear(world, way, seed=[1]).models()]
        for way in (TAUGHT, NAIVE)
    )
    same = [one == other for one, other in zip(taught, naive, strict=True)]
    assert same[:2] == [True, True]
    assert not all(same)


@pytest.mark.slow
def test_federated_year_without_evaluation_runs_the_newest_version(
    world: FederationFixture,
) -> None:
    for way, newest_is_in_force in ((NAIVE, False), (replace(NAIVE, is_evaluated=False), True)):
        lived = FederatedYear(world, way, seed=[1]).lived()
        federation = next(lived)
        with federation.database.transaction() as session:
            *_, newest = registry.statuses(session)
            assert newest > 1
            assert (registry.current_version(session) == newest) is newest_is_in_force
