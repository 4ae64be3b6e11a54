"""Five real rounds of two organizations with 2,000 workloads teach the shared model.

The measured set and the public start that ship with fedperf, real programs, and a budget
so large that the noise hardly counts: what is shown is that the rounds learn, and that
the check would notice if they did not.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedperf_client.release.policy import policy_template
from fedperf_server.inference.aggregation import aggregate
from fedperf_server.state.database import Database
from fedperf_server.state.rounds import round_results
from fedperf_shared.model.architecture import ARRAY_SHAPES, named_arrays
from fedperf_shared.model.checkpoint import decode_checkpoint, model_from_arrays
from fedperf_shared.model.public_plans import PUBLIC_PLANS_PATH
from fedperf_shared.releases.period import ModelMethod, Period, SlotTimes, Timetable
from fedperf_shared.releases.release import SizeClass
from fedperf_simulations.data.datasets import measured_executions
from fedperf_simulations.measured_set.limited_start import LIMITED_START_PATH, load_limited_start
from fedperf_simulations.measured_set.organizations import WorkloadPart, organization, split
from fedperf_simulations.measured_set.starts.start_training import error_on, one_per_workload
from fedperf_simulations.measured_set.training_set import measured_plans
from tests.fakes.rounds import newest_version
from tests.integration.organizations.programs import PLANS, START
from tests.integration.organizations.worlds import (
    Stage,
    join,
    new_coordinator,
    new_home,
    now,
    operator,
    sleep_until,
    wait_until,
    whole_second,
)

ROUNDS = 5
STEPS = 40
SAMPLING = 0.03
UPDATE_SECONDS = 60.0
"""Some seconds for 40 steps of 60 workloads, two organizations on two cores, and much margin: other
tests may take half of the machine."""

POLICY = (
    policy_template(SizeClass.LARGE, 2000).replace("epsilon = 1.0", "epsilon = 100000.0")
    + f"\n[report]\nshare = 0.0\n\n[training]\nsteps = {STEPS}\n"
    + f"sampling_probability = {SAMPLING}\nclip_norm = 0.5\n"
)

Weights = dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]


def cut(before: Weights, after: Weights) -> float:
    """By how much the median q-error on the public test set fell, as a share of it."""
    plans = measured_plans(one_per_workload(split(measured_executions())[WorkloadPart.TEST]))
    errors = [error_on(model_from_arrays(weights), plans) for weights in (before, after)]
    return 1 - errors[1] / errors[0]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_rounds_cut_the_error_on_the_public_test_set_by_a_tenth(tmp_path: Path) -> None:
    learnt = play(tmp_path)
    assert cut(load_limited_start().arrays, learnt) >= 0.10


@pytest.mark.slow
def test_zeroed_updates_would_fail_that_test() -> None:
    start = load_limited_start().arrays
    current = [start[name] for name in ARRAY_SHAPES]
    zeros = [np.zeros_like(array) for array in current]
    for _ in range(ROUNDS):
        current = list(aggregate(current, [zeros, zeros], norm_bound=100.0))
    assert not cut(start, named_arrays(current)) >= 0.10


def play(directory: Path) -> Weights:
    """The newest version after the period."""
    public = directory / "public"
    public.mkdir()
    (public / START).write_bytes(LIMITED_START_PATH.read_bytes())
    (public / PLANS).write_bytes(PUBLIC_PLANS_PATH.read_bytes())
    stage = Stage(directory / "logs", public)
    start = whole_second(now() + timedelta(seconds=45))
    config = new_coordinator(directory / "server", one_window(start))
    period = config.timetable.period
    parts = split(measured_executions())
    try:
        server = stage.start("fedperf-server", "--directory", str(config.directory), "run")
        wait_until(lambda: "serving" in server.text(), seconds=40, what="the coordinator")
        for part in (WorkloadPart.ALDER, WorkloadPart.BIRCH):
            history = organization(part, parts[part]).history
            recent = [replace(each, finished_at=now()) for each in history]
            home = new_home(directory / part.value, POLICY, recent)
            with operator(config) as tools:
                join(home, tools.add_organization(part.value).url)
            stage.start("fedperf", "--home", str(home.directory), "daemon")
        sleep_until(period.end)
        database = Database(config.database_url)
        closed = partial(closed_rounds, database, config.timetable)
        wait_until(lambda: len(closed()) == ROUNDS, seconds=30, what="five rounds")
        assert [replies for _, replies in closed()] == [2] * ROUNDS, stage.texts()
        with database.transaction() as session:
            version = newest_version(session)
        database.close()
        assert version.version == 1 + ROUNDS
        assert version.public_error is not None
        return decode_checkpoint(version.checkpoint).arrays
    finally:
        stage.close()


def one_window(start: datetime) -> Timetable:
    """All rounds in it, each from what the one before made."""
    opens, replies, each = (timedelta(seconds=s) for s in (0.5, UPDATE_SECONDS, UPDATE_SECONDS + 4))
    slots = tuple(SlotTimes(n * each + opens, n * each + replies) for n in range(ROUNDS))
    return Timetable(Period(start, ROUNDS * each, 1), (), slots, ModelMethod.DP_SGD)


def closed_rounds(database: Database, timetable: Timetable) -> list[tuple[int, int]]:
    with database.transaction() as session:
        return [(each.number, each.replies) for each in round_results(session, timetable)]
