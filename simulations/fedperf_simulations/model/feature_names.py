"""Readable names of the features of `fedperf_shared.workflow.features`, in their order."""

from collections.abc import Iterable
from enum import IntEnum

from fedperf_shared.workflow.vocabulary import (
    NAMED_PLATFORMS,
    Complexity,
    OperatorClass,
    OperatorKind,
    Platform,
)


def feature_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the 63 operator features and of the 39 plan features."""
    operator = (
        *_named("kind", OperatorKind),
        *_named("class", OperatorClass),
        *_named("platform", Platform),
        *["parents", "children", "depth", "height"],
        *["is_source", "is_sink", "threads", "partitions"],
        *_named("complexity", Complexity),
        *["input_rows", "largest_input_rows", "output_rows", "selectivity"],
        *["input_bytes", "output_bytes", "row_bytes"],
        *["switches_in", "switch_bytes_in", "switches_out"],
        *["iterations", "key_distinct_ratio", "order_sensitive"],
    )
    plan = (
        *["operators", "edges", "depth", "width"],
        *["sources", "sinks", "joins", "loops", "platforms"],
        *_named("share", NAMED_PLATFORMS),
        *["switches", "switch_bytes"],
        *_named("share", OperatorClass),
        *["pipeline", "juncture", "replicate", "loop"],
        *["source_rows", "source_bytes", "largest_source_rows", "source_row_bytes"],
        *["columns", "top_key_share", "distinct_ratio", "null_ratio"],
        *["cores", "memory", "nodes", "machine_speed"],
    )
    return operator, plan


def _named(prefix: str, members: Iterable[IntEnum]) -> list[str]:
    return [f"{prefix}_{member.name.lower()}" for member in members]
