"""The families of shipped workloads, one function to draw from each, and plans for them."""

import hashlib
import re
from collections.abc import Collection
from enum import StrEnum, unique

import numpy as np

from fedperf_engines.platforms.operations import Embed
from fedperf_engines.platforms.program import Program, Step, to_json
from fedperf_engines.platforms.support import EMBEDDED_PLATFORMS, supporting
from fedperf_engines.workloads.classic import (
    draw_credit,
    draw_embeddings,
    draw_pagerank,
    draw_word_count,
)
from fedperf_engines.workloads.data import SCALES
from fedperf_engines.workloads.relational import draw_relational
from fedperf_engines.workloads.tpch import draw_tpch
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

ONE_PLATFORM_SHARE = 0.6
"""How often a drawn plan stays on one platform where that is possible."""
SWITCH_CHANCE = 0.2
"""How often a step of a mixed plan draws a platform of its own instead of its input's."""
TRAINING_SWITCH_CHANCE = 0.7
"""The same for graph and training steps, for which more platforms compete."""


@unique
class Family(StrEnum):
    """A kind of job; the value is its name in files and commands."""

    WORD_COUNT = "word_count"
    EMBEDDINGS = "embeddings"
    PAGERANK = "pagerank"
    CREDIT = "credit"
    TPCH = "tpch"
    RELATIONAL = "relational"


_DRAW = {
    Family.WORD_COUNT: draw_word_count,
    Family.EMBEDDINGS: draw_embeddings,
    Family.PAGERANK: draw_pagerank,
    Family.CREDIT: draw_credit,
    Family.TPCH: draw_tpch,
    Family.RELATIONAL: draw_relational,
}
_FAMILY_OF_TABLE = {
    "prose": Family.WORD_COUNT,
    "chat": Family.WORD_COUNT,
    "web": Family.PAGERANK,
    "social": Family.PAGERANK,
    "applications": Family.CREDIT,
    "lines": Family.TPCH,
    "events": Family.RELATIONAL,
    "hot_events": Family.RELATIONAL,
}


def draw_program(family: Family, *, rng: np.random.Generator, rows: int) -> Program:
    """A program of the family whose largest source has `rows` rows (words, for texts).

    Its data sets are named by `program.datasets`; `data.prepare` writes them.

    Raises:
        InvalidInputError: `rows` is not one of `data.SCALES`.
    """
    if rows not in SCALES:
        raise InvalidInputError(f"rows must be one of {', '.join(map(str, SCALES))}, got {rows!r}")
    return _DRAW[family](rng, rows)


def workload_name(program: Program) -> str:
    """Family and fingerprint: the same for one program on data sets of any scale.

    Literals are part of the fingerprint, so the name must not leave the organization.
    """
    unscaled = re.sub(rb'("dataset":"[a-z_]+)_\d+"', rb'\1"', to_json(program))
    digest = hashlib.blake2b(unscaled, digest_size=8).hexdigest()
    return f"{_family_name(program)}-{digest}"


def single_platforms(
    program: Program, among: Collection[Platform] = EMBEDDED_PLATFORMS
) -> tuple[Platform, ...]:
    """The platforms that can run the whole program, in the order of the vocabulary."""
    able = set(among)
    for step in program.steps:
        able &= set(supporting(step.operation, among))
    return tuple(sorted(able))


def draw_platforms(program: Program, *, rng: np.random.Generator) -> tuple[Platform, ...]:
    """A random valid platform per step: one for all in 60 %, else mixed with few switches.

    Embedded platforms only, whatever is installed: the same seed draws the same plans.
    """
    single = single_platforms(program)
    if single and rng.random() < ONE_PLATFORM_SHARE:
        return (single[int(rng.integers(len(single)))],) * len(program.steps)
    chosen: list[Platform] = []
    favourite = _any_of(supporting(program.steps[0].operation), rng)
    for step in program.steps:
        able = supporting(step.operation)
        wanted = chosen[_closest_input(step)] if step.inputs else favourite
        if rng.random() < _switch_chance(step):
            wanted = _any_of(able, rng)
        elif wanted not in able:
            wanted = favourite
        chosen.append(wanted)
    return tuple(chosen)


def _family_name(program: Program) -> str:
    if any(isinstance(step.operation, Embed) for step in program.steps):
        return Family.EMBEDDINGS.value
    tables = [dataset.rpartition("_")[0] for dataset in program.datasets]
    families = [_FAMILY_OF_TABLE[table].value for table in tables if table in _FAMILY_OF_TABLE]
    return families[0] if families else "own"


def _closest_input(step: Step) -> int:
    """Whose platform a step keeps: a prediction stays with its model, others with their rows."""
    return step.inputs[-1 if step.operation.kind is OperatorKind.ML_PREDICT else 0]


def _switch_chance(step: Step) -> float:
    kinds = {OperatorKind.GRAPH_ITERATE, OperatorKind.ML_TRAIN}
    return TRAINING_SWITCH_CHANCE if step.operation.kind in kinds else SWITCH_CHANCE


def _any_of(platforms: tuple[Platform, ...], rng: np.random.Generator) -> Platform:
    return platforms[int(rng.integers(len(platforms)))]
