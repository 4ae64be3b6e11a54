"""Tables that a query sent to all executors, as its plan's counters tell them.

Of plans only the counters of broadcasts are read, by their ids; values come from the driver.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fedperf_client.sources.spark.fields import Event, objects, sequence, text

MAX_NODES = 5_000
"""Of a plan that are looked at."""

MAX_COUNTERS = 20_000
"""Remembered for one query."""

_SIZE = "data size"
_BUILD = frozenset({"time to build", "time to build (ms)"})
_SEND = frozenset({"time to broadcast", "time to broadcast (ms)"})


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One table that was sent to all.

    Attributes:
        data_bytes: of it, as it is kept in memory.
        build_time, send_time: milliseconds of the driver, once it had been collected.
    """

    data_bytes: int
    build_time: int
    send_time: int


@dataclass(slots=True)
class BroadcastCounters:
    """Which counters are those of broadcasts, and what they reached."""

    _ids: dict[int, tuple[int, str]] = field(default_factory=dict)
    _values: dict[int, int] = field(default_factory=dict)

    def take_plan(self, event: Event) -> None:
        """Take the counters of a plan; later plans of a query have others beside."""
        plan = event.get("sparkPlanInfo")
        waiting: list[Event] = [plan] if isinstance(plan, dict) else []
        seen = 0
        while waiting and seen < MAX_NODES:
            node = waiting.pop()
            seen += 1
            waiting += objects(node, "children")
            if text(node, "nodeName").startswith("BroadcastExchange"):
                self._take_node(objects(node, "metrics"))

    def _take_node(self, metrics: list[Event]) -> None:
        """Its counters are told apart from those of other nodes by the first of them."""
        known = {
            number: name
            for each in metrics
            if isinstance(name := each.get("name"), str)
            and (name == _SIZE or name in _BUILD | _SEND)
            and isinstance(number := each.get("accumulatorId"), int)
        }
        if known and len(self._ids) < MAX_COUNTERS:
            node = min(known)
            self._ids |= {number: (node, name) for number, name in known.items()}

    def take_values(self, event: Event) -> None:
        """Take what the driver counted."""
        for each in sequence(event, "accumUpdates"):
            match each:
                case [int(number), int(value)] if number in self._ids:
                    self._values[number] = value

    def found(self) -> Iterator[Broadcast]:
        """Every table whose size was counted."""
        by_node: dict[int, dict[str, int]] = {}
        for number, value in self._values.items():
            node, name = self._ids[number]
            by_node.setdefault(node, {})[name] = max(0, value)
        for values in by_node.values():
            if values.get(_SIZE):
                yield Broadcast(values[_SIZE], _sum(values, _BUILD), _sum(values, _SEND))


def _sum(values: Mapping[str, int], names: frozenset[str]) -> int:
    return sum(value for name, value in values.items() if name in names)
