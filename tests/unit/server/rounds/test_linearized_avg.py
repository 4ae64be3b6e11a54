"""Tests of linearized averaging: queries, steps and the bounded influence of an organization."""

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from numpy.typing import NDArray
from sqlalchemy import select

from fedperf_server.app.composition import store_first_version
from fedperf_server.config import ServerConfig
from fedperf_server.membership.authority import SIGNING, KeyRing, init
from fedperf_server.membership.enrollment import Enrollment
from fedperf_server.rounds.linearized_avg import (
    MAX_SENDER_WORKLOADS,
    MISFIT,
    STEP_CLIPS,
    LinearizedAvg,
    bounded_sums,
    stored_tangent,
)
from fedperf_server.rounds.model_rounds import ModelRounds
from fedperf_server.rounds.open_round import AcceptedUpdate, RoundRules
from fedperf_server.state.database import Database, RoundOutcome, RoundQueryRow
from fedperf_server.state.registry import GgfnFormat
from fedperf_server.state.round_calendar import closed_rounds
from fedperf_server.state.validation import MAX_WORKLOADS
from fedperf_shared.exchange import SyntheticRow, TrainRequest
from fedperf_shared.identity import sign
from fedperf_shared.model.architecture import ARRAY_SHAPES, Weights, named_arrays
from fedperf_shared.releases.linear_queries import DIRECTIONS, LinearizedQuery
from fedperf_shared.releases.period import ModelMethod
from fedperf_shared.releases.release import (
    DECLARABLE,
    LinearizedParameters,
    LinearizedUpdate,
    Schedule,
    SignedRelease,
    Slot,
)
from fedperf_shared.wire import codec
from fedperf_shared.workflow.features import featurize
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.model.fit import predict
from fedperf_simulations.model.ggfn import model_from_arrays
from tests.fakes.influence_bounds import step_bound
from tests.fakes.linearized_queries import few_plans, standardised_outputs, tangent_at
from tests.fakes.rounds import newest_version
from tests.unit.client.pretrained_model import seeded_checkpoint
from tests.unit.server.rounds.test_model_rounds import MINUTE, SLOTS, START, TABLE, FakeFleet, Scene

EXPONENT = -20
WORKLOADS, NOISE = 1000.0, 20.0
ANCHORS = [featurize(each.plan, each.cluster) for each in few_plans(12)]
STRATEGY = LinearizedAvg(ANCHORS)
ARRAYS: Weights = [*seeded_checkpoint().arrays.values()]
AT_TANGENT = Schedule(
    replace(TABLE, model_method=ModelMethod.TANGENT),
    tuple(Slot(slot.key, LinearizedParameters(NOISE, WORKLOADS)) for slot in SLOTS),
)


def answer(values: NDArray[np.floating] | float, *, workloads: float = WORKLOADS) -> AcceptedUpdate:
    whole = np.round(np.broadcast_to(values, DIRECTIONS) * 2.0**-EXPONENT).astype(np.int64)
    slot = Slot(SLOTS[0].key, LinearizedParameters(NOISE, workloads))
    return AcceptedUpdate(LinearizedUpdate(slot.key, 1, EXPONENT, whole), slot)


@pytest.fixture(scope="module")
def query() -> LinearizedQuery:
    return STRATEGY.design_query(ARRAYS, steps_made=0)


def change(before: Weights, after: Weights) -> float:
    """Return the L2 norm of the change of the weights."""
    return math.hypot(*(np.linalg.norm(new - old) for new, old in zip(after, before, strict=True)))


def test_linearized_query_is_deterministic_and_has_fixed_shape(query: LinearizedQuery) -> None:
    again = STRATEGY.design_query(ARRAYS, steps_made=0)
    assert codec.encode_linearized_query(again) == codec.encode_linearized_query(query)
    assert query.coefficients.shape == (len(ANCHORS), DIRECTIONS)
    used = query.coefficients.any(axis=0)
    assert 0 < used.sum() <= len(ANCHORS)
    assert np.all(np.diff(used.astype(int)) <= 0)


def test_stored_linearized_query_reproduces_tangent_of_its_model(query: LinearizedQuery) -> None:
    found, expected = stored_tangent(ARRAYS, ANCHORS, query), tangent_at(ARRAYS, ANCHORS)
    np.testing.assert_allclose(found.lengths, expected.lengths, rtol=1e-4)
    np.testing.assert_allclose(found.anchors, expected.anchors, atol=1e-4)


def test_linearized_query_clip_follows_step_schedule_then_stays_constant() -> None:
    clips = [STRATEGY.design_query(ARRAYS, steps_made=n).clip for n in range(len(STEP_CLIPS) + 2)]
    assert clips == [*STEP_CLIPS, STEP_CLIPS[-1], STEP_CLIPS[-1]]


def test_linearized_avg_with_zero_sums_keeps_model_unchanged(query: LinearizedQuery) -> None:
    made = STRATEGY.next(ARRAYS, [answer(0.0), answer(0.0)], query)
    assert [array.shape for array in made] == [*ARRAY_SHAPES.values()]
    assert change(ARRAYS, [*made]) == 0.0


def test_linearized_avg_ignores_directions_outside_the_query(query: LinearizedQuery) -> None:
    unused = ~query.coefficients.any(axis=0)
    made = STRATEGY.next(ARRAYS, [answer(500.0 * unused)], query)
    assert change(ARRAYS, [*made]) == 0.0


def test_linearized_avg_with_positive_residuals_raises_predictions_at_anchors(
    query: LinearizedQuery,
) -> None:
    """All residuals reach the clip, so predictions rise at the anchors."""
    tangent = stored_tangent(ARRAYS, ANCHORS, query)
    unit = tangent.anchors / np.linalg.norm(tangent.anchors, axis=1, keepdims=True)
    values = np.zeros(DIRECTIONS)
    values[: unit.shape[1]] = WORKLOADS * unit.mean(0)
    made = STRATEGY.next(ARRAYS, [answer(values)], query)
    before, after = (np.mean(standardised_outputs(each, ANCHORS)) for each in (ARRAYS, made))
    assert 0.1 * query.clip < after - before < 2 * query.clip


@pytest.mark.parametrize("workloads", [1.0, WORKLOADS, 1e9])
def test_linearized_avg_malicious_organization_has_bounded_influence(
    query: LinearizedQuery, workloads: float
) -> None:
    rng = np.random.default_rng(5)
    honest = [answer(100 * rng.standard_normal(DIRECTIONS)) for _ in range(3)]
    tangent = stored_tangent(ARRAYS, ANCHORS, query)
    made = [
        STRATEGY.next(ARRAYS, [answer(lie, workloads=workloads), *honest], query)
        for lie in (0.0, 1e6, -1e6)
    ]
    sums = bounded_sums([answer(0.0, workloads=workloads), *honest], query)
    assert sums[0].workloads <= MAX_SENDER_WORKLOADS
    bound = step_bound(tangent, sums, 0, clip=query.clip)
    for each in made[1:]:
        assert 0 < change([*made[0]], [*each]) <= bound * (1 + 1e-3)


def test_bounded_sums_scale_down_organizations_above_max_workloads(
    query: LinearizedQuery,
) -> None:
    few, many = (
        bounded_sums([answer(0.1 * count, workloads=count)], query)[0]
        for count in (MAX_SENDER_WORKLOADS, 10 * MAX_SENDER_WORKLOADS)
    )
    np.testing.assert_allclose(many.values, few.values, rtol=1e-6)
    assert (many.workloads, many.noise_multiplier) == (few.workloads, few.noise_multiplier)


@pytest.mark.parametrize(("noise", "believed"), [(NOISE, NOISE), (0.1, MISFIT * WORKLOADS)])
def test_bounded_sums_noise_multiplier_has_a_lower_bound(
    query: LinearizedQuery, noise: float, believed: float
) -> None:
    plain = answer(3.0)
    slot = replace(plain.slot, parameters=LinearizedParameters(noise, WORKLOADS))
    (found,) = bounded_sums([replace(plain, slot=slot)], query)
    assert found.noise_multiplier == pytest.approx(believed)


@pytest.mark.parametrize("noise", astuple(DECLARABLE["noise_multiplier"]))
@pytest.mark.parametrize("workloads", astuple(DECLARABLE["nominal_workloads"]))
def test_linearized_avg_at_extreme_declarable_parameters_stays_finite(
    query: LinearizedQuery, noise: float, workloads: float
) -> None:
    plain = answer(MAX_WORKLOADS)
    slot = replace(plain.slot, parameters=LinearizedParameters(noise, workloads))
    made = STRATEGY.next(ARRAYS, [answer(0.0), replace(plain, slot=slot)], query)
    assert all(np.isfinite(array).all() for array in made)


@dataclass
class Rounds(Scene):
    """Coordinator whose rounds use linearized averaging."""

    def member(self, name: str, value: float) -> list[TrainRequest]:
        """Join an organization and return the list of its training requests."""
        asked: list[TrainRequest] = []
        key, organization_id = self.join_with(name, Schedule(AT_TANGENT.calendar, AT_TANGENT.slots))

        def reply(body: bytes) -> bytes:
            asked.append(codec.decode_train_request(body))
            return self.signed(key, asked[-1], value)

        self.fleet.answers[organization_id] = reply
        return asked

    def signed(self, key: ec.EllipticCurvePrivateKey, request: TrainRequest, value: float) -> bytes:
        values = np.full(DIRECTIONS, round(value * 2.0**-EXPONENT), dtype=np.int64)
        update = LinearizedUpdate(request.slot, request.base_version, EXPONENT, values)
        payload = codec.encode_release(update)
        return codec.encode_signed_release(SignedRelease(payload, sign(key, payload)))

    def newest(self) -> Weights:
        with self.database.transaction() as session:
            return GgfnFormat().decode(newest_version(session).checkpoint)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Rounds]:
    table = AT_TANGENT.calendar
    config = ServerConfig(tmp_path, "localhost", table)
    ring: KeyRing = init(tmp_path, "localhost", now=START)
    at = [START]
    database = Database(config.database_url)
    store_first_version(database, GgfnFormat(), ARRAYS, at=START)
    enrollment = Enrollment(database, ring, config, clock=lambda: at[0])

    def tick() -> None:
        at[0] += MINUTE / 4

    fleet = FakeFleet(tick)
    rounds = ModelRounds(
        database,
        enrollment,
        fleet,
        calendar=table,
        rules=RoundRules(2, 5 * MINUTE),
        model_format=GgfnFormat(),
        signing_key=ring.key(SIGNING),
        strategy=STRATEGY,
        evaluate=lambda arrays: 1.0,
    )
    yield Rounds(rounds, database, enrollment, fleet, at, {}, {})
    database.close()


@pytest.mark.slow
def test_linearized_round_sends_query_and_creates_new_version(scene: Rounds) -> None:
    asked = [scene.member(name, 50.0) for name in ("one", "two")]
    for moment, clip in ((10, STEP_CLIPS[0]), (30, STEP_CLIPS[1])):
        scene.at[0] = START + moment * MINUTE
        before = scene.newest()
        scene.step()
        for each in asked:
            assert each[-1].query is not None
            assert each[-1].query.clip == clip
            expected = STRATEGY.design_query(before, steps_made=0).coefficients
            np.testing.assert_array_equal(each[-1].query.coefficients, expected)
        assert change(before, scene.newest()) > 0
    with scene.database.transaction() as session:
        results = closed_rounds(session, TABLE)
    assert [(each.outcome, each.replies) for each in results] == [(RoundOutcome.NEW_VERSION, 2)] * 2


def test_linearized_round_below_quorum_keeps_clip_for_the_next_round(scene: Rounds) -> None:
    asked = scene.member("one", 50.0)
    scene.member("liar", 2.0 * MAX_WORKLOADS)
    for moment in (10, 30):
        scene.at[0] = START + moment * MINUTE
        scene.step()
    with scene.database.transaction() as session:
        results = closed_rounds(session, TABLE)
    assert [(each.outcome, each.failures) for each in results] == [
        (RoundOutcome.NO_QUORUM, {"range": 1})
    ] * 2
    clips = [each.query.clip for each in asked if each.query]
    assert clips == [STEP_CLIPS[0]] * 2


def test_coordinator_after_interrupted_round_resends_identical_request(
    scene: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = scene.member("one", 50.0)
    scene.member("two", 50.0)
    scene.at[0] = START + 10 * MINUTE
    scene.fleet.held = True
    assert scene.rounds.run_once(at=scene.at[0]) == ()
    scene.rounds.interrupt()
    scene.fleet.held = False

    def made_again(self: LinearizedAvg, current: Weights, *, steps_made: int) -> LinearizedQuery:
        raise AssertionError("a question is made once")

    monkeypatch.setattr(LinearizedAvg, "design_query", made_again)
    scene.step()
    first, second = asked
    assert codec.encode_train_request(first) == codec.encode_train_request(second)
    with scene.database.transaction() as session:
        (stored,) = session.scalars(select(RoundQueryRow.payload))
        (result,) = closed_rounds(session, TABLE)
    assert first.query is not None
    assert stored == codec.encode_linearized_query(first.query)
    assert (result.outcome, result.replies) == (RoundOutcome.NEW_VERSION, 2)


def test_linearized_round_with_malicious_organization_moves_model_within_bound(
    scene: Rounds, query: LinearizedQuery
) -> None:
    asked = scene.member("honest", 30.0)
    scene.member("liar", 1e5)
    scene.at[0] = START + 10 * MINUTE
    scene.step()
    assert asked[0].query is not None
    tangent = stored_tangent(ARRAYS, ANCHORS, query)
    answers = [answer(30.0), answer(0.0)]
    honest = STRATEGY.next(ARRAYS, answers, query)
    bound = step_bound(tangent, bounded_sums(answers, query), 1, clip=query.clip)
    assert 0 < change([*honest], scene.newest()) <= bound * (1 + 1e-3)


def test_linearized_avg_rehearsal_rows_pull_model_toward_their_labels(
    query: LinearizedQuery,
) -> None:
    plans = few_plans(12)
    model = model_from_arrays(named_arrays(ARRAYS))
    known = predict(model, ANCHORS)
    pulled = [answer(0.5 * WORKLOADS)]

    def moved(rows: list[SyntheticRow]) -> float:
        made = STRATEGY.next(ARRAYS, pulled, query, rehearsed=rows)
        after = model_from_arrays(named_arrays(made))
        return float(np.abs(predict(after, ANCHORS) - known).mean())

    def labelled(by: float) -> list[SyntheticRow]:
        return [
            SyntheticRow(each.plan, each.cluster, label + by, Platform.POLARS)
            for each, label in zip(plans, known.tolist(), strict=True)
        ]

    assert moved(labelled(0.0)) < moved([])
    nothing = [answer(0.0)]
    made = STRATEGY.next(ARRAYS, nothing, query, rehearsed=labelled(0.4))
    after = model_from_arrays(named_arrays(made))
    assert float((predict(after, ANCHORS) - known).mean()) > 0.05


def test_linearized_avg_with_rehearsal_rows_only_keeps_model_unchanged(
    query: LinearizedQuery,
) -> None:
    row = SyntheticRow(few_plans(1)[0].plan, few_plans(1)[0].cluster, 3.0, Platform.POLARS)
    made = STRATEGY.next(ARRAYS, [], query, rehearsed=[row])
    assert all(np.array_equal(one, two) for one, two in zip(made, ARRAYS, strict=True))
