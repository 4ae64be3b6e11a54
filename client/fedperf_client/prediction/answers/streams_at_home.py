"""The streams of everything that an organization has stored, by the public start."""

from fedperf_client.drift.streams import Stream, streams_of
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.answers.home_columns import columns_at_home
from fedperf_client.prediction.mixture.level_shifts import observed_in


def streams_at_home(store: ExecutionStore, *, keep: bool = True) -> tuple[Stream, ...]:
    """Of all that ended well and teach something; what has to be encoded is kept unless unwanted.

    Raises:
        StorageError: store or start cannot be read.
    """
    columns = columns_at_home(store, keep=keep)
    return streams_of(observed_in(columns.take(columns.is_ok & columns.teaches)))
