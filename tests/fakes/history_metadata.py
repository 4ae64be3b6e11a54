"""The provenance in a history file, read as Parquet metadata."""

from pathlib import Path

from pyarrow import parquet


def read_metadata(path: Path) -> dict[str, str]:
    """Return the key-value metadata of a Parquet file, without its schema."""
    metadata = parquet.read_schema(path).metadata or {}
    return {k.decode(): v.decode() for k, v in metadata.items() if k != b"ARROW:schema"}
