"""Releases of report slots, and the coordinator's linear queries of directed slots.

The schedule alone decides when a residual report is due; a directed one also needs a linear query.
When a query is fetched depends on the calendar and on what the coordinator has, never on data, nor
on whether the slot's release is sent. A query that may not be evaluated is refused: its slot lapses
uncharged, as if this node had been offline, and the query is not fetched again. `CellQuery` itself
checks which queries may be evaluated.

A report is about executions of one drift regime, each in the reports of one group
(`schedule.span_covered`).
"""

from collections.abc import Callable
from pathlib import Path

from fedperf_client.contributions.local_sums import ReportTask, make_release
from fedperf_client.contributions.mechanisms import NoiseSource, report_sum
from fedperf_client.home.config import Home, write_private
from fedperf_client.node.updates import RequestRefusedError
from fedperf_client.prediction.fetched_models import FetchedModels
from fedperf_client.release.schedule import slot_name, span_covered
from fedperf_client.workers.worker_process import TaskRunner
from fedperf_shared.errors import InvalidInputError, PrivacyRefusedError
from fedperf_shared.exchange import Refusal
from fedperf_shared.releases.kinds import kind_of
from fedperf_shared.releases.linear_queries import CellQuery
from fedperf_shared.releases.period import Period
from fedperf_shared.releases.release import NoisySum, Schedule, Slot, SlotKey
from fedperf_shared.wire.codec import decode_cell_query, encode_cell_query

# Requests the coordinator's query: None while there is none, InvalidInputError for a bad one.
FetchQuery = Callable[[SlotKey], CellQuery | None]


class QueryRejectedError(PrivacyRefusedError):
    """Raised once for a query that is not evaluated; its slot lapses and is not charged."""

    def __init__(self, key: SlotKey, reason: str) -> None:
        super().__init__(f"the linear query of {slot_name(key)} is not evaluated: {reason}")


class QueryStore:
    """The linear queries of one period, each stored for good once it is fetched."""

    def __init__(self, directory: Path, period: Period, fetch: FetchQuery) -> None:
        """Store in `directory` what `fetch` returns."""
        self._directory = directory
        self._period = period
        self._fetch = fetch
        self._rejected: set[SlotKey] = set()

    def fetch(self, key: SlotKey) -> None:
        """Fetch the query of the slot, unless it is stored or was rejected.

        Raises:
            QueryRejectedError: the query may not be evaluated.
            FedperfError: the coordinator does not reply, or refuses this node.
            OSError: the query cannot be written.
        """
        if key in self._rejected or self.stored(key) is not None:
            return
        try:
            query = self._fetch(key)
        except InvalidInputError as error:
            raise self._reject(key, str(error)) from error
        if query is None:
            return
        if query.slot != key:
            raise self._reject(key, f"it is the one of {slot_name(query.slot)}")
        write_private(self._path(key), encode_cell_query(query))

    def stored(self, key: SlotKey) -> CellQuery | None:
        """Return the fetched query; None where there is none, or its file is damaged."""
        try:
            return decode_cell_query(self._path(key).read_bytes())
        except (FileNotFoundError, InvalidInputError):
            return None

    def current(self, key: SlotKey, *, reference_version: int) -> CellQuery | None:
        """Return the stored query if it is about the reference model that is here.

        Raises:
            QueryRejectedError: it is about another one; later calls return None until it is here.
        """
        query = self.stored(key)
        if query is None or query.reference_version == reference_version:
            return query
        if key in self._rejected:
            return None
        raise self._reject(
            key,
            f"it is about model version {query.reference_version}, here is {reference_version}",
        )

    def _reject(self, key: SlotKey, reason: str) -> QueryRejectedError:
        self._rejected.add(key)
        return QueryRejectedError(key, reason)

    def _path(self, key: SlotKey) -> Path:
        return self._directory / f"{key.release_id(self._period).hex()}.question"


class ReportMaker:
    """Makes the releases of one schedule's report slots."""

    def __init__(
        self, home: Home, schedule: Schedule, *, fetch: FetchQuery, compute: TaskRunner
    ) -> None:
        """Read executions and models from `home` and queries by `fetch`; `compute` elsewhere."""
        self._store = home.store
        self._models = FetchedModels(home.models)
        self._schedule = schedule
        self._queries = QueryStore(home.queries, schedule.calendar.period, fetch)
        self._compute = compute

    def fetch_query(self, slot: Slot) -> None:
        """Fetch the query of a directed slot once; errors as `QueryStore.fetch`."""
        if kind_of(slot.parameters).has_query:
            self._queries.fetch(slot.key)

    def is_ready(self, slot: Slot) -> bool:
        """Return whether the report has its query; QueryRejectedError as `QueryStore`."""
        return not kind_of(slot.parameters).has_query or self._query(slot) is not None

    def release(self, slot: Slot, noise: NoiseSource, *, seconds: float) -> NoisySum:
        """Return the slot's report: noise, and the sum if it takes at most `seconds`.

        Raises:
            RequestRefusedError: not the slot of a report, or it has no query.
        """
        reference, kind = self._models.reference(), kind_of(slot.parameters)
        query = self._query(slot) if kind.has_query else None
        if not kind.is_report or kind.has_query is (query is None):
            raise RequestRefusedError(
                "not the slot of a report that has its query", Refusal.NOT_DUE
            )
        version = reference.model_version if query is None else query.version
        covered = span_covered(self._schedule, slot.key, self._models.regime_starts())
        task = ReportTask(
            self._store, reference, covered.since, covered.until, report_sum(slot, query)
        )
        return make_release(slot, noise, task, self._compute, version=version, seconds=seconds)

    def _query(self, slot: Slot) -> CellQuery | None:
        version = self._models.reference().model_version
        return self._queries.current(slot.key, reference_version=version)
