"""A valid workflow file as users write it, and variants of it."""

from typing import Final

GOOD: Final[dict[str, object]] = {
    "platform": "duckdb",
    "sources": {"columns": 8},
    "operators": [
        {"name": "orders", "kind": "table_source", "output_rows": 1500000, "row_bytes": 96},
        {
            "name": "open",
            "kind": "filter",
            "inputs": ["orders"],
            "output_rows": 730000,
            "row_bytes": 96.5,
        },
        {
            "name": "totals",
            "kind": "aggregate",
            "inputs": [1],
            "output_rows": 99000,
            "row_bytes": 16,
            "platform": "polars",
        },
    ],
}


def changed(number: int, **values: object) -> dict[str, object]:
    """Return the workflow with keys of one operator replaced, or removed where None."""
    operators = [dict(each) for each in GOOD["operators"]]  # type: ignore[attr-defined]
    operators[number] |= values
    operators[number] = {k: v for k, v in operators[number].items() if v is not None}
    return GOOD | {"operators": operators}
