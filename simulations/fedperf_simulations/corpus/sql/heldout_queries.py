"""The judged queries: texts that were committed before anything of them was measured.

Nothing that learns may see them or executions of them; see the notes in the texts.
"""

from dataclasses import dataclass

from fedperf_simulations.corpus.sql.tables import texts

_FILES = {"judged_tpch": "tpch", "judged_orders": "tpch", "judged_telemetry": "telemetry"}
"""The schema that each file of texts asks."""


@dataclass(frozen=True, slots=True)
class HeldOutQuery:
    """One query.

    Attributes:
        family: the name that its executions carry as their workload.
        schema: of the tables that it asks.
        text: SQL that DuckDB and Spark run alike.
    """

    family: str
    schema: str
    text: str


def judged_queries() -> tuple[HeldOutQuery, ...]:
    """All 62, in the order of the texts."""
    return tuple(
        HeldOutQuery(f"{file.replace('_', '/')}/{name}", schema, text)
        for file, schema in _FILES.items()
        for name, text in texts(file).items()
    )
