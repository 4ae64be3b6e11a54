"""The time of a query or job by operator: Spark's counters of time, and their sums.

All of them are sums over tasks, so an operator of ten seconds may have taken one. What an operator
waited for inside of its stage, such as the rows of the one below, counts as its own.
"""

from collections.abc import Mapping

from fedperf_client.sources.spark.fields import Event, MalformedEventError, integer, objects

_UNITS = {"timing": 1e-3, "nsTiming": 1e-9}
"""Seconds of a counter's unit, by Spark's `metricType`."""

_NAMES = frozenset(
    {"duration", "scan time", "sort time", "time in aggregation build", "shuffle write time",
     "fetch wait time", "time to build", "time to build hash map", "time to collect",
     "time to broadcast", "op time", "opTime"}
)  # fmt: skip
"""Counters of time; an operator has one of them, or some that count different times."""

Times = tuple[tuple[int, float], ...]
"""Ids of counters of time, and the seconds of their units."""


def times_of(node: Event) -> Times:
    """The counters of time of a plan's node.

    Raises:
        MalformedEventError: they are no objects.
    """
    found: list[tuple[int, float]] = []
    for each in objects(node, "metrics"):
        unit = _UNITS.get(str(each.get("metricType")))
        if unit is not None and each.get("name") in _NAMES:
            try:
                found.append((integer(each, "accumulatorId"), unit))
            except MalformedEventError:
                continue  # as a counter without an id elsewhere
    return tuple(found)


def seconds_of(times: Times, counters: Mapping[int, int]) -> float | None:
    """The seconds that these counted together; None where none was counted."""
    counted = [max(counters[each], 0) * unit for each, unit in times if each in counters]
    return sum(counted) if counted else None
