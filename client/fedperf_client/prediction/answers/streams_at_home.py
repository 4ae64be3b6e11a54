"""The streams of everything that an organization has stored, by the public start."""

from fedperf_client.drift.streams import Stream
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.base_models import predictor
from fedperf_client.prediction.evidence import History
from fedperf_client.prediction.mixture.level_shifts import streams_in
from fedperf_shared.model.public_start import load_public_start


def streams_at_home(store: ExecutionStore) -> tuple[Stream, ...]:
    """Of all executions that ended well.

    Raises:
        StorageError: store or start cannot be read.
    """
    history = History.from_executions(store.executions())
    return streams_in(history, predictor(load_public_start()))
