"""Ids of stored executions as people write them: cut short where only one begins so."""

from collections.abc import Sequence

from fedperf_shared.errors import InvalidInputError

SHORTEST_ID = 8
"""Letters of an id that are shown at least."""

MOST_NAMED = 5
"""Executions that are named where several are meant."""

_LONGEST_WORKLOAD = 40


class UnknownExecutionError(InvalidInputError):
    """The store has no execution of that id."""

    def __init__(self, execution_id: str, stored: int) -> None:
        super().__init__(
            f"there is no execution {execution_id!r} among the {stored} in the store; "
            + ("fedperf runs lists them" if stored else "take some in with: fedperf ingest FILE")
        )
        self.execution_id = execution_id


class AmbiguousExecutionError(InvalidInputError):
    """Several executions have ids that begin so."""

    def __init__(self, prefix: str, count: int, first: Sequence[tuple[str, str]]) -> None:
        """`first` are the ids, cut short, and the workloads of some of the `count`."""
        told = [f"{each} ({workload[:_LONGEST_WORKLOAD]})" for each, workload in first]
        if count > len(first):
            told.append(f"{count - len(first)} more")
        super().__init__(
            f"several executions, {count}, have an id that begins with {prefix!r}: "
            f"{', '.join(told)}; name one, or list them with: fedperf runs --search {prefix}"
        )
        self.prefix = prefix
