"""The role of a table's column, by its name, and the prior on its slope.

Run time falls with machines or cores by an exponent of 0.7 +- 0.35. Amdahl's law, the crosstalk of
Gunther's Universal Scalability Law and the fixed parts of Ernest (Venkataraman et al., NSDI 2016)
leave less than the 1 of perfect scaling. Data that fits into the memory of more machines gives
more. Run time rises with rows or bytes by 0.9 +- 0.3: one pass is linear, fixed parts make it less,
sorts and spills more. Passes over the data are repeated work, some of which is done once: 0.7 +-
0.35. More memory helps a little or not at all. Of other columns the direction is not known. All of
it is reasoning from these laws, not a fit.

A role follows from a public vocabulary of names, or from what a layout declares as its scale and
size. It never follows from values, so no job's data decides what is believed of it.
"""

import re
from collections.abc import Mapping
from enum import StrEnum, unique
from types import MappingProxyType

from fedperf_client.prediction.learners.prior_slopes import (
    NO_REPEATS,
    SIZE_SLOPE,
    PriorSlopes,
    Scatter,
    SlopePrior,
)
from fedperf_client.prediction.learners.scaling_laws import ScalingColumns
from fedperf_client.prediction.learners.tables import TableColumn, TableLayout


@unique
class ColumnRole(StrEnum):
    """The meaning of a column."""

    PARALLEL = "machines or cores"
    SIZE = "rows or bytes"
    PASSES = "passes over the data"
    MEMORY = "memory"
    OTHER = "other"


_NAMES = (
    (ColumnRole.MEMORY, "memory mem ram heap"),
    (
        ColumnRole.PARALLEL,
        "machine machines node nodes instance instances worker workers executor executors host "
        "hosts server servers replicas taskmanagers cluster parallelism core cores cpu cpus vcpu "
        "vcpus thread threads slot slots process processes",
    ),
    (ColumnRole.PASSES, "iteration iterations epoch epochs pass passes round rounds"),
    (
        ColumnRole.SIZE,
        "row rows record records tuple tuples line lines event events document documents message "
        "messages page pages item items size bytes byte kb mb gb tb kib mib gib tib kilobytes "
        "megabytes gigabytes terabytes",
    ),
)
VOCABULARY: Mapping[ColumnRole, frozenset[str]] = MappingProxyType(
    {role: frozenset(words.split()) for role, words in _NAMES}
)
"""Words of a name and the role that they give it; the first role counts."""

LOG_SLOPES: Mapping[ColumnRole, SlopePrior] = MappingProxyType(
    {
        ColumnRole.PARALLEL: SlopePrior(-0.7, 0.35, 1.0),
        ColumnRole.SIZE: SIZE_SLOPE,
        ColumnRole.PASSES: SlopePrior(0.7, 0.35, 1.5),
        ColumnRole.MEMORY: SlopePrior(-0.1, 0.2, 1.0),
        ColumnRole.OTHER: SlopePrior(0.0, 0.5, 1.5),
    }
)
"""Priors on the slope of a column's log, by role; the length is of departures, in logs."""

WORD = SlopePrior(0.0, 0.25, 1.0)
"""The prior of each word of a column of words: two machine types differ by about a third."""

NUMBER = SlopePrior(0.0, 0.5, 1.0)
"""The prior of a column that may be 0 or below, in its unit (`TableColumn.unit`)."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def role_of(name: str) -> ColumnRole:
    """The role of a column of this name."""
    words = {each.lower() for each in _WORDS.findall(name)}
    return next((role for role, known in VOCABULARY.items() if words & known), ColumnRole.OTHER)


def prior_slopes(layout: TableLayout, elsewhere: Scatter = NO_REPEATS) -> PriorSlopes:
    """The learner with these priors on the columns of a layout.

    Args:
        layout: of the table; its scale and size have their roles whatever they are called.
        elsewhere: repeats of other jobs.
    """
    priors: list[SlopePrior] = []
    for column in layout.columns:
        priors += priors_of(layout, column)
    scaling = ScalingColumns(layout.scale_feature, layout.size_feature)
    return PriorSlopes(tuple(priors), scaling, elsewhere)


def priors_of(layout: TableLayout, column: TableColumn) -> list[SlopePrior]:
    """Of the features of a column; the inverse beside a log is for other learners."""
    declared = {layout.scale: ColumnRole.PARALLEL, layout.size: ColumnRole.SIZE}
    role = declared.get(column.name) or role_of(column.name)
    if column.words:
        return [WORD] * column.width
    if not column.logged:
        return [NUMBER]
    return [LOG_SLOPES[role], *[SlopePrior()] * (column.width - 1)]
