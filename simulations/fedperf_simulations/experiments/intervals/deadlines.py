"""The fewest nodes that meet a deadline: C3O with 3, 5 and 10 own configurations.

A deadline is drawn evenly between the fastest and the slowest time of an input of a slice. The
product takes the fewest nodes with a chance of 90 %, else the surest; Ernest the fewest whose
prediction is in time, else the fastest; the last takes the largest cluster. A choice is kept where
the median of the repeats there is in time, and its nodes are compared with the fewest that really
keep it. Coverage is computed for the choice: the best prediction is often an underestimate. The
rows of other choosers hold the product's prediction there.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from zlib import crc32

import numpy as np

from fedperf_client.prediction.prediction import Floats
from fedperf_memory.paired import interval_by_groups
from fedperf_simulations.data import c3o
from fedperf_simulations.data.c3o import JobSlice, ScaleAndSize
from fedperf_simulations.experiments.intervals.figures import (
    OURS,
    PREDICTOR,
    SITUATION,
    Cases,
    EvaluationPart,
    PredictionLabel,
    by,
    column,
    cover_row,
    covered,
    ends,
    labels,
    least_target,
    most_target,
    where,
)
from fedperf_simulations.experiments.intervals.scale_outs import (
    BASELINES,
    ERNEST,
    SET_ASIDE,
    home_of,
    slice_cells,
)
from fedperf_simulations.harness.experiment import Row, Settings, Target

OWN_CONFIGURATIONS, QUICK_OWN_CONFIGURATIONS = (3, 5, 10), (3,)
DRAWS, QUICK_DRAWS = 20, 1
DEADLINES = 3
"""Deadlines for each draw of own configurations, each of a random input."""

CONFIDENCE = 0.9
LEAST_NODES = 2
"""Numbers of nodes that an input must have been measured on."""

LARGEST = "largest cluster"
KEPT, TIMES = "kept", "nodes, times the fewest"
CHANCE = "chance"
RAN_BEFORE = "ran before"

COVERED_NEW = "covered, of chosen ones that never ran"

LEAST_KEPT, LEAST_COVERED = 0.85, 0.85
MOST_TIMES: Mapping[int, float] = {3: 1.5, 5: 1.35, 10: 1.3}


def situation(count: int) -> str:
    """Return the situation, named by the number of own configurations."""
    return f"C3O deadlines, {count} known"


def of_slice(settings: Settings, one: JobSlice) -> list[Row]:
    """Return a row per number of own configurations, draw, deadline and chooser."""
    inputs = [each for each in one.inputs() if len(each) >= LEAST_NODES]
    rows: list[Row] = []
    for draw in range(QUICK_DRAWS if settings.quick else DRAWS):
        rng = np.random.default_rng([settings.seed, draw, crc32(one.name.encode()), 1])
        order = rng.permutation(len(one))
        deadlines = [_deadline(one, inputs, rng) for _ in range(DEADLINES)]
        for count in QUICK_OWN_CONFIGURATIONS if settings.quick else OWN_CONFIGURATIONS:
            rows += _choices(one, order[:count], deadlines)
    return rows


def _deadline(
    one: JobSlice, inputs: Sequence[ScaleAndSize], rng: np.random.Generator
) -> tuple[ScaleAndSize, float]:
    """Return an input's configurations, and seconds between the fastest and the slowest of them."""
    places = inputs[int(rng.integers(len(inputs)))]
    seconds = one.configurations.seconds[places]
    return places, float(rng.uniform(seconds.min(), seconds.max()))


def _choices(
    one: JobSlice, training: ScaleAndSize, deadlines: Sequence[tuple[ScaleAndSize, float]]
) -> list[Row]:
    home, layout = home_of(one, training), one.layout
    features = layout.samples(one.configurations.table).features
    logs = np.log(one.configurations.seconds[training])
    rows: list[Row] = []
    for places, deadline in deadlines:
        nodes, seconds = one.nodes[places], one.configurations.seconds[places]
        predictions = home.predict(one.rows(places))
        chances = np.array([each.probability_within(deadline) for each in predictions])
        predicted = np.exp(BASELINES[ERNEST](layout, features[training], logs, features[places]))
        choices = {
            OURS: _fewest(nodes, chances >= CONFIDENCE, otherwise=-chances),
            ERNEST: _fewest(nodes, predicted <= deadline, otherwise=predicted),
            LARGEST: int(np.argmax(nodes)),
        }
        fewest = float(nodes[seconds <= deadline].min())
        for name, place in choices.items():
            took = float(seconds[place])
            rows.append(
                {
                    **PredictionLabel(situation(len(training)), name, one.name).predicted(
                        took, predictions[place]
                    ),
                    "deadline": deadline,
                    KEPT: took <= deadline,
                    TIMES: float(nodes[place]) / fewest,
                    CHANCE: float(chances[place]) if name == OURS else None,
                    RAN_BEFORE: bool(np.isin(places[place], training)),
                }
            )
    return rows


def _fewest(nodes: Floats, holds: np.ndarray, *, otherwise: Floats) -> int:
    """Return the place of the fewest nodes that hold, else where `otherwise` is least."""
    if holds.any():
        return int(np.argmin(np.where(holds, nodes, np.inf)))
    return int(np.argmin(otherwise))


def rows_of(cases: Cases) -> list[Row]:
    """Return a row per number of own configurations and chooser."""
    rows = []
    for (of, name), group in by(cases, SITUATION, PREDICTOR).items():
        is_met, groups = column(group, KEPT), labels(group)
        row: Row = {
            SITUATION: of,
            PREDICTOR: name,
            **SET_ASIDE,
            "cases": len(group),
            "groups": len(set(groups)),
            KEPT: float(is_met.mean()),
            **ends(KEPT, interval_by_groups(is_met, groups)),
            TIMES: float(np.median(column(group, TIMES))),
            **ends(TIMES, interval_by_groups(column(group, TIMES), groups, share=0.5)),
        }
        if name == OURS:
            none = float((column(group, CHANCE) < CONFIDENCE).mean())
            new = covered(where(group, **{RAN_BEFORE: False}))
            row = {**row, "no size reaches 90 %": none, **cover_row(group)}
            row[COVERED_NEW] = float(new.mean()) if len(new) else None
        rows.append(row)
    return rows


def targets_of(_: Cases, rows: Sequence[Row]) -> list[Target]:
    """Kept, nodes, and coverage of what was chosen."""
    targets = []
    for count, most in MOST_TIMES.items():
        of = situation(count)
        for row in where(rows, situation=of, predictor=OURS):
            targets += [
                least_target(f"{of}: kept", row, KEPT, LEAST_KEPT),
                most_target(f"{of}: nodes over the fewest that keep it, median", row, TIMES, most),
                least_target(f"{of}: covered, what was chosen", row, "covered", LEAST_COVERED),
                least_target(f"{of}: {COVERED_NEW}", row, COVERED_NEW, LEAST_COVERED),
            ]
    return targets


PART = EvaluationPart(
    "C3O deadlines",
    c3o.files,
    partial(slice_cells, name="deadlines", compute=of_slice),
    rows_of,
    targets_of,
)
