"""The measurements of a job in the store: the rows of tables of past runs.

At most `MOST_CONFIGURATIONS` configurations are learned from, with the newest `MOST_REPEATS` runs
of each: those at the ends of every column, and others spread evenly over time. So the answer about
a job of any length takes a few seconds.

A column that half of the runs lack is left out, as are texts that differ in nearly every run. Runs
that lack a number of another column are left out too; a lacking word is a word of its own. Cores or
memory that are the same multiple of the nodes in every run are not a column of their own, but a
query may name them instead.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedperf_campaigns.campaign.grid import Configuration, Grid, Value, value_word
from fedperf_campaigns.campaign.predictions import JobMeasurements
from fedperf_client.home.execution_record import columns_from_text
from fedperf_client.home.store import ExecutionStore
from fedperf_client.prediction.serving.explanation import Disturbance
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.execution import Execution, ExecutionStatus, JobColumn
from fedperf_shared.runtime.quantities import counted

MOST_CONFIGURATIONS = 150
MOST_REPEATS = 5
LEAST_SHARE = 0.5  # of the runs that have a column which counts
MOST_WORDS = 20  # different words of a column in a job with few runs
NO_WORD = "(none)"

_SCALES = ("nodes", "cores")  # roles of parallel units, the one that is looked for first
_SAME = 1e-6  # relative difference below which two ratios are the same


def load_stored_job(store: ExecutionStore, name: str) -> JobMeasurements:
    """Return the measurements of a job whose runs have columns.

    Raises:
        ConfigurationError: there is no such job, or all of its runs failed.
    """
    stored = store.rows_of_tables(name, repeats=MOST_REPEATS)
    if not stored:
        raise ConfigurationError(f"there is no job {name!r} of a table; fedperf jobs lists those")
    all_runs = store.jobs_of_tables(name)[name]
    texts = dict.fromkeys(text for _, text in stored)
    sample = set(_spread(list(texts)))
    numbers = sorted(number for number, text in stored if text in sample)
    order = {number: place for place, (number, _) in enumerate(stored)}
    executions = [
        each
        for _, each in sorted(
            zip(numbers, store.numbered(numbers), strict=True), key=lambda pair: order[pair[0]]
        )
    ]
    return measured_job(name, executions, all_runs=all_runs)


def measured_job(name: str, executions: Sequence[Execution], *, all_runs: int) -> JobMeasurements:
    """Return the measurements of executions, the newest first.

    Args:
        name: of the job.
        executions: that are learned from.
        all_runs: how many runs the job has in all.

    Raises:
        ConfigurationError: all of them failed.
    """
    remarks = []
    if all_runs > len(executions):
        remarks.append(f"learned from {len(executions):,} of {all_runs:,} runs, spread over time")
    columns, left_out = _columns_that_count([each.origin.columns for each in executions])
    remarks += [f"column {column} is left out: {reason}" for column, reason in left_out.items()]
    roles = {
        each.role: each.name
        for execution in executions
        for each in execution.origin.columns
        if each.role and each.name in columns
    }
    runs = [(each, _configuration(each, columns)) for each in executions]
    complete = [(each, row) for each, row in runs if row is not None]
    if lacking := len(runs) - len(complete):
        remarks.append(f"{counted(lacking, 'run')} that lack a number are left out")
    good = [(e, row) for e, row in complete if e.status is ExecutionStatus.OK and e.measurement]
    if not good:
        raise ConfigurationError(
            f"no run of job {name} ended well with all of its columns, "
            f"{counted(len(runs), 'run')} did not"
        )
    multiples = _multiples([row for _, row in complete], roles)
    names = [column for column in columns if column not in multiples]
    rows = [{column: row[column] for column in names} for _, row in complete]
    numbers: dict[tuple[Value, ...], int] = {}
    for row in rows:
        numbers.setdefault(tuple(row.values()), len(numbers))
    grid = Grid(
        {column: tuple(sorted({row[column] for row in rows})) for column in names},
        _positive(roles.get("input_size"), rows),
        _scale(roles, rows),
        tuple(dict(zip(names, values, strict=True)) for values in numbers),
        0,
    )
    of_each = [
        (execution, numbers[tuple(row.values())])
        for (execution, _), row in zip(complete, rows, strict=True)
    ]
    ran = [(e, number) for e, number in of_each if e.status is ExecutionStatus.OK]
    stopped = [
        (e, number)
        for e, number in of_each
        if e.status is ExecutionStatus.TIMEOUT and e.measurement is not None
    ]
    memory = {n for e, n in of_each if e.status is ExecutionStatus.OUT_OF_MEMORY}
    return JobMeasurements(
        name,
        grid,
        tuple(number for _, number in ran),
        tuple(each.runtime_seconds for each, _ in ran),
        tuple(number for _, number in stopped),
        tuple(each.runtime_seconds for each, _ in stopped),
        tuple(sorted(memory - {number for _, number in ran})),
        len(of_each) - len(ran),
        Disturbance.of([each for each, _ in ran]),
        newest=tuple(rows),
        roles=roles,
        multiples=multiples,
        bytes_per_size=_bytes_per_size([e for e, _ in good], roles.get("input_size")),
        clusters={
            **{each.origin.node_type: each.cluster for each, _ in reversed(good)},
            "": good[0][0].cluster,
        },
        remarks=tuple(remarks),
    )


def measured_ranges(measured: JobMeasurements) -> dict[str, str]:
    """Return the measured values of every column, for people, by name."""
    ranges = {}
    for name, values in measured.grid.columns.items():
        if isinstance(values[0], str):
            some = ", ".join(map(str, values[:4]))
            ranges[name] = some + (f" and {len(values) - 4} more" if len(values) > 4 else "")  # noqa: PLR2004
        else:
            ends = dict.fromkeys((value_word(values[0]), value_word(values[-1])))
            ranges[name] = " to ".join(ends)
    return ranges


def _spread(texts: Sequence[str]) -> Iterable[str]:
    """Return `MOST_CONFIGURATIONS` texts of columns: the ends of each column, others evenly."""
    if len(texts) <= MOST_CONFIGURATIONS:
        return texts
    lowest: dict[str, tuple[float, str]] = {}
    highest: dict[str, tuple[float, str]] = {}
    for text in texts:
        for name, value, _ in columns_from_text(text):
            if isinstance(value, str):
                continue
            if name not in lowest or value < lowest[name][0]:
                lowest[name] = value, text
            if name not in highest or value > highest[name][0]:
                highest[name] = value, text
    ends = dict.fromkeys(text for each in (lowest, highest) for _, text in each.values())
    ends = dict.fromkeys(list(ends)[: MOST_CONFIGURATIONS // 2])
    places = np.linspace(0, len(texts) - 1, MOST_CONFIGURATIONS - len(ends)).astype(int)
    return [*ends, *(texts[place] for place in places.tolist())]


def _columns_that_count(
    runs: Sequence[Sequence[JobColumn]],
) -> tuple[dict[str, bool], dict[str, str]]:
    """Return whether each column that counts holds words, and why others do not count."""
    there: Counter[str] = Counter(column.name for run in runs for column in run)
    words: dict[str, set[str]] = {}
    for run in runs:
        for column in run:
            if isinstance(column.value, str):
                words.setdefault(column.name, set()).add(column.value)
    columns, left_out = dict[str, bool](), dict[str, str]()
    for name, count in there.items():
        different = len(words.get(name, ()))
        if count < LEAST_SHARE * len(runs):
            left_out[name] = f"only {count} of {len(runs)} runs have it"
        elif different > max(MOST_WORDS, len(runs) / 10):
            left_out[name] = f"it has {different} different words"
        else:
            columns[name] = name in words
    return columns, left_out


def _configuration(execution: Execution, columns: Mapping[str, bool]) -> Configuration | None:
    """Return the values of a run; None if it lacks a number."""
    values = {each.name: each.value for each in execution.origin.columns}
    row: dict[str, Value] = {}
    for name, holds_words in columns.items():
        value = values.get(name, NO_WORD if holds_words else None)
        if value is None:
            return None
        if holds_words:
            row[name] = value_word(value)
        else:
            number = float(value)
            row[name] = int(number) if number.is_integer() else number
    return row


def _multiples(
    rows: Sequence[Configuration], roles: Mapping[str, str]
) -> dict[str, tuple[str, float]]:
    """Return columns of cores and memory that are the same multiple of the nodes in all runs."""
    multiples: dict[str, tuple[str, float]] = {}
    for role, base_roles in (("cores", ("nodes",)), ("memory", ("nodes", "cores"))):
        for base_role in base_roles:
            name, base = roles.get(role), roles.get(base_role)
            if name is None or base is None or base in multiples or name in multiples:
                continue
            pairs = [(row[name], row[base]) for row in rows]
            if any(isinstance(each, str) or each <= 0 for pair in pairs for each in pair):
                continue
            ratios = [float(value) / float(unit) for value, unit in pairs]
            varies = len({unit for _, unit in pairs}) > 1
            if varies and max(ratios) - min(ratios) <= _SAME * max(ratios):
                multiples[name] = base, ratios[0]
    return multiples


def _scale(roles: Mapping[str, str], rows: Sequence[Configuration]) -> str | None:
    """Return the column of parallel units: one that varies, if there is one."""
    names = [name for role in _SCALES if (name := _positive(roles.get(role), rows)) is not None]
    varying = [name for name in names if len({row[name] for row in rows}) > 1]
    return next(iter([*varying, *names]), None)


def _positive(name: str | None, rows: Sequence[Configuration]) -> str | None:
    """Return a column if it holds numbers above 0 alone."""
    if name is None or name not in rows[0]:
        return None
    values = [row[name] for row in rows]
    return None if any(isinstance(each, str) or each <= 0 for each in values) else name


def _bytes_per_size(executions: Sequence[Execution], size: str | None) -> float | None:
    """Return the bytes of one unit of the column of sizes; None where it does not count bytes."""
    ratios = [
        each.measurement.read_bytes / float(column.value)
        for each in executions
        for column in each.origin.columns
        if each.measurement is not None
        and each.measurement.read_bytes > 0
        and column.name == size
        and not isinstance(column.value, str)
        and column.value > 0
    ]
    return statistics.median(ratios) if ratios else None
