"""Predicted times of a job at given column values, from its measurements.

The measurements are those of a campaign, or the stored rows of a table of past runs
(`stored_job`). A query gives a value, or several, for every column. A column with one value
may be left out; for a stored job any column, which is then as in the newest run. Numbers may lie
outside of the measured range and are marked as extrapolating; words may not. A configuration that a
constraint rules out is predicted, with the constraint named, as the constraint may be there to save
time. Times are those of the whole job, from its first component's start to its last one's end.

Failed trials count. A trial stopped by its timeout is right-censored. A configuration that ran out
of memory and never succeeded does not meet any deadline, and neither does the same with a larger
input.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedperf_campaigns.campaign.definition import WHOLE, Campaign, journal_path, other_campaigns
from fedperf_campaigns.campaign.grid import Configuration, Grid, Value, value_text, value_word
from fedperf_campaigns.campaign.journal import Journal, TrialHistory, TrialOutcome, TrialStatus
from fedperf_campaigns.tables.layout import TableLayout
from fedperf_campaigns.tables.predictor import MeasuredTable, TablePredictor
from fedperf_campaigns.tables.prior_slopes import NO_REPEATS, Scatter
from fedperf_client.formatting.facts import Fact, for_people
from fedperf_client.home.node_prices import PriceList, cost_text
from fedperf_client.prediction.ensemble.ensemble import OnProgress
from fedperf_client.prediction.prediction import Prediction
from fedperf_client.prediction.serving.explanation import Disturbance
from fedperf_client.prediction.serving.reconfiguration import BYTES
from fedperf_client.prediction.serving.what_if import (
    MOST_QUERIES,
    MOST_TIMES_CORES,
    MOST_TIMES_ROWS,
    ON_TIME,
    deadline_facts,
    format_probability,
    time_facts,
)
from fedperf_shared.errors import ConfigurationError, FedperfError, InvalidInputError
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.quantities import duration_text, parse_number, values_by_name

# Repeats of other campaigns count as so many at most: this job's own noise may differ.
MOST_FREEDOM = 20.0


@dataclass(frozen=True, slots=True)
class JobMeasurements:
    """Measurements of a whole job."""

    name: str  # of the job
    grid: Grid  # its columns and configurations
    rows: tuple[int, ...]  # the configuration of each execution that counts
    seconds: tuple[float, ...]  # its wall time
    stopped: tuple[int, ...]  # configurations of runs that were stopped before their end
    stopped_seconds: tuple[float, ...]  # after how long
    out_of_memory: tuple[int, ...]  # configurations that ran out of memory and never ran well
    failed: int  # runs that ended badly, for any reason
    load: Disturbance  # of others, while the executions that count were made
    # Configurations of all runs, the newest first, which complete a query; none for a campaign.
    newest: tuple[Configuration, ...] = ()
    roles: Mapping[str, str] = field(default_factory=dict)  # columns by role, as in `JobColumn`
    # Columns that are so many times another one in every run, by name: that one, and how many.
    multiples: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    bytes_per_size: float | None = None  # of one unit of the input size; None where not bytes
    # The cluster of the newest run, by the name of the machines' type; "" for any.
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what was left out, for people

    @property
    def configurations(self) -> int:
        """Distinct configurations that were measured."""
        return len(set(self.rows))

    @property
    def scatter(self) -> Scatter:
        """Return the scatter of log seconds among its repeats."""
        of_each: dict[int, list[float]] = {}
        for row, seconds in zip(self.rows, self.seconds, strict=True):
            of_each.setdefault(row, []).append(math.log(seconds))
        squares = sum(float(np.var(each)) * len(each) for each in of_each.values())
        return Scatter(squares, float(len(self.rows) - len(of_each)))

    def predictor(
        self, *, elsewhere: Scatter = NO_REPEATS, on_progress: OnProgress | None = None
    ) -> TablePredictor:
        """Return the predictor of the job's times."""
        grid = self.grid
        layout = TableLayout.of(grid.table(), scale=grid.parallelism_column, size=grid.size_column)
        measured = MeasuredTable(
            layout,
            self._table(self.rows),
            np.array(self.seconds),
            self._table(self.stopped),
            np.array(self.stopped_seconds),
            grid.fixed,
        )
        return TablePredictor(measured, elsewhere=elsewhere, on_progress=on_progress)

    def memory_problem(self, query: Configuration) -> str | None:
        """Says where the same ran out of memory with no larger input; None if it never did."""
        grid = self.grid
        for row in self.out_of_memory:
            failed = grid.configurations[row]
            same = all(failed[name] == query[name] for name in grid.columns if name != grid.size)
            if same and grid.size is None:
                return "ran out of memory"
            if same and grid.size and float(failed[grid.size]) <= float(query[grid.size]):
                return f"ran out of memory at {grid.size}={value_text(failed[grid.size])}"
        return None

    def no_promise(self, query: Configuration) -> str | None:
        """Return why no deadline is promised, for people; None where one may be."""
        grid = self.grid
        ran = [grid.configurations[each] for each in self.rows]
        for name, value in query.items():
            if isinstance(value, bool | str):
                continue
            measured_values = {float(each[name]) for each in ran}
            most = max(measured_values)
            if len(measured_values) == 1 and float(value) != most:
                return f"{name} was never varied, it was {value_text(most)} in all runs"
            times = {grid.parallelism: MOST_TIMES_CORES, grid.size: MOST_TIMES_ROWS}.get(name)
            if times is not None and float(value) > times * most:
                more = f"{float(value) / most:,.3g} times the {value_text(most)}"
                return f"{name}={value_text(value)} is {more} that were measured"
        return None

    def cluster_of(self, columns: Configuration) -> ClusterConfig:
        """Return the cluster of a configuration, with what no column says as in the newest run."""
        machine = str(columns.get(self.roles.get("machine", ""), ""))
        usual = self.clusters.get(machine, self.clusters[""])

        def count(role: str, otherwise: float) -> int:
            value = columns.get(self.roles.get(role, ""), otherwise)
            return max(1, round(float(value)))

        nodes = count("nodes", usual.nodes)
        cores = count("cores", usual.cores / usual.nodes * nodes)
        memory = round(usual.memory_bytes / usual.nodes * nodes)
        return ClusterConfig(nodes, cores, max(1, memory))

    def machine_of(self, columns: Configuration) -> str:
        """Return the name of the machines' type, empty if no column has it."""
        return str(columns.get(self.roles.get("machine", ""), ""))

    def _table(self, rows: Sequence[int]) -> dict[str, list[float | str]]:
        grid = self.grid
        return grid.table([grid.configurations[row] for row in rows])


@dataclass(frozen=True, slots=True)
class ConfigurationPrediction:
    """The predicted run time of the job at one value of every column."""

    columns: Configuration  # their values
    estimate: Prediction  # how long
    chance: float | None  # of meeting the deadline; None without one
    memory_problem: str | None  # why it may not run at all; None where nothing is known
    # Of the campaign, which rules this configuration out; None if none does.
    broken_constraint: str | None = None
    no_promise: str | None = None  # why no deadline is promised; None where one may be
    # Of the median time, in money or core-seconds; None without `--cheapest`.
    cost: float | None = None
    cost_words: str = ""  # the same for people

    @property
    def holds(self) -> bool | None:
        """Return whether the deadline is met with a probability of 90 %."""
        if self.chance is None:
            return None
        runs = self.memory_problem is None and self.no_promise is None
        return runs and self.chance >= ON_TIME

    @property
    def facts(self) -> list[Fact]:
        """Return the table's row, in seconds and shares."""
        facts = [
            Fact("columns", dict(self.columns)),
            *(for_people(name, value_text(value)) for name, value in self.columns.items()),
            *time_facts(self.estimate),
            Fact("regime", self.estimate.regime.value, "regime", self._regime()),
            Fact("extrapolating", self.estimate.extrapolating),
            Fact("memory_problem", self.memory_problem),
            Fact("broken_constraint", self.broken_constraint),
            Fact("no_promise", self.no_promise),
        ]
        if self.cost is not None:
            facts.append(Fact("cost", self.cost, "cost", self.cost_words))
        if self.chance is not None:
            is_known = self.memory_problem is None and self.no_promise is None
            chance = format_probability(self.chance) if is_known else "-"
            facts += deadline_facts(self.chance, chance, self.holds, self.no_promise)
        return facts

    def _regime(self) -> str:
        kind, broken = self.estimate.regime, self.broken_constraint
        words = [kind.value, *(["uncalibrated"] if self.estimate.extrapolating else [])]
        ruled_out = None if broken is None else f"ruled out by the campaign ({broken})"
        return ", ".join([*words, *filter(None, (self.memory_problem, ruled_out))])


def load_measurements(home: Path, campaign: Campaign) -> JobMeasurements:
    """Return the measurements in the journal of a campaign.

    Raises:
        ConfigurationError: it never measured the whole job, or every trial failed.
        StorageError: the journal cannot be read.
    """
    if WHOLE not in campaign.targets:
        raise ConfigurationError(
            f'campaign {campaign.name} measures its components alone; run.components = "both" '
            "measures the whole job too"
        )
    measured = _measured(home, campaign)
    if not measured.seconds:
        problem = (
            f"all {measured.failed} trials of campaign {campaign.name} failed; see the report"
            if measured.failed
            else f"campaign {campaign.name} has measured nothing yet; run it with: fedperf profile"
        )
        raise ConfigurationError(problem)
    return measured


def scatter_of_others(home: Path, campaign: Campaign) -> Scatter:
    """Repeats of the other campaigns of a home, counted as `MOST_FREEDOM` at most."""
    squares, freedom = 0.0, 0.0
    for other in other_campaigns(home, campaign):
        try:
            scatter = _measured(home, other).scatter
        except FedperfError:  # an unreadable record of another campaign prevents no prediction
            continue
        squares, freedom = squares + scatter.squares, freedom + scatter.freedom
    share = min(1.0, MOST_FREEDOM / freedom) if freedom else 0.0
    return Scatter(squares * share, freedom * share)


def predict_configurations(
    predictor: TablePredictor,
    measured: JobMeasurements,
    queries: Sequence[Configuration],
    *,
    deadline_seconds: float | None = None,
) -> list[ConfigurationPrediction]:
    """Predict the job's time at each of the configurations."""
    grid, load = measured.grid, measured.load.half_width
    estimates = predictor.predict(grid.table(queries))
    if load > 0:
        estimates = [each.shifted(added=load) for each in estimates]
    return [
        ConfigurationPrediction(
            columns,
            estimate,
            None if deadline_seconds is None else estimate.probability_within(deadline_seconds),
            measured.memory_problem(columns),
            grid.broken_constraint(columns),
            measured.no_promise(columns),
        )
        for columns, estimate in zip(queries, estimates, strict=True)
    ]


def with_costs(
    measured: JobMeasurements,
    predictions: Sequence[ConfigurationPrediction],
    prices: PriceList | None,
) -> list[ConfigurationPrediction]:
    """Add the cost of the median time to each prediction: money, without prices core-seconds."""
    costs = []
    for each in predictions:
        cluster, seconds = measured.cluster_of(each.columns), each.estimate.median_seconds
        costs.append(
            cluster.cores * seconds
            if prices is None
            else prices.cost(cluster, seconds, node_type=measured.machine_of(each.columns))
        )
    most = max(costs, default=0.0)
    return [
        replace(each, cost=cost, cost_words=cost_text(cost, prices, largest=most))
        for each, cost in zip(predictions, costs, strict=True)
    ]


def cheapest(predictions: Sequence[ConfigurationPrediction]) -> ConfigurationPrediction | None:
    """Return the cheapest that meets the deadline, if there is one; None where none does."""
    able = [each for each in predictions if each.memory_problem is None and each.holds is not False]
    return min(able, key=lambda each: each.cost or 0.0, default=None)


def smallest_meeting_deadline(
    grid: Grid, predictions: Sequence[ConfigurationPrediction]
) -> list[Configuration]:
    """Return, per input, the configuration of fewest units that meets it; fewest units first."""
    best = [_smallest(grid, each) for each in _by_input(grid, predictions)]
    meeting = [each.columns for each in best if each is not None]
    return sorted(meeting, key=lambda columns: _units(grid, columns))


def deadline_sentences(
    grid: Grid, predictions: Sequence[ConfigurationPrediction], deadline_seconds: float
) -> list[str]:
    """Return whether the deadline is met, in a sentence for every input of the query."""
    groups = _by_input(grid, predictions)
    deadline, unit = duration_text(deadline_seconds), grid.parallelism
    sentences = []
    for group in groups:
        inputs = (f"{n}={value_text(v)}" for n, v in group[0].columns.items() if n != unit)
        place = f"{', '.join(inputs)}: " if len(groups) > 1 else ""
        sentences.append(place + _deadline_sentence(grid, group, deadline))
    return sentences


def _deadline_sentence(
    grid: Grid, predictions: Sequence[ConfigurationPrediction], deadline: str
) -> str:
    def chance(of: ConfigurationPrediction) -> str:
        return format_probability(of.chance or 0.0)

    unit, smallest = grid.parallelism, _smallest(grid, predictions)
    if smallest is not None:
        if unit is None:
            return f"{deadline} is met with a probability of {chance(smallest)}"
        count = value_text(smallest.columns[unit])
        return (
            f"fewest {unit} that meet {deadline}: {count}, with a probability of {chance(smallest)}"
        )
    running = [each for each in predictions if each.memory_problem is None]
    if not running:
        return "no configuration of the query has the memory to run"
    promised = [each for each in running if each.no_promise is None]
    if not promised:
        return f"no deadline is promised: {running[0].no_promise}"
    best = max(promised, key=lambda each: each.chance or 0.0)
    if unit is None:
        return f"{deadline} is met with a probability of {chance(best)} only"
    return (
        f"no {unit} of the query meet {deadline} with a probability of 90 %; the best: "
        f"{value_text(best.columns[unit])}, {chance(best)}"
    )


def _by_input(
    grid: Grid, predictions: Sequence[ConfigurationPrediction]
) -> list[list[ConfigurationPrediction]]:
    """Group predictions that differ in the parallelism only."""
    groups: dict[tuple[Value, ...], list[ConfigurationPrediction]] = {}
    for each in predictions:
        rest = tuple(v for name, v in each.columns.items() if name != grid.parallelism)
        groups.setdefault(rest, []).append(each)
    return list(groups.values())


def _smallest(
    grid: Grid, predictions: Sequence[ConfigurationPrediction]
) -> ConfigurationPrediction | None:
    """Return the prediction of fewest parallel units that meets the deadline."""
    meeting = [each for each in predictions if each.holds]
    return min(meeting, key=lambda each: _units(grid, each.columns), default=None)


def _units(grid: Grid, columns: Configuration) -> float:
    return 1.0 if grid.parallelism is None else float(columns[grid.parallelism])


def _measured(home: Path, campaign: Campaign) -> JobMeasurements:
    run = campaign.settings.run
    with Journal.open(journal_path(home, campaign), campaign.campaign_id) as journal:
        trials = [each for each in journal.trials() if each.key.component == WHOLE]
        cores = max((each.machine.cores for each in journal.sessions()), default=None)
    history = TrialHistory(trials, retries=run.retries)
    rows: list[int] = []
    seconds: list[float] = []
    counted: list[TrialOutcome] = []
    for row in sorted({each.key.configuration for each in trials}):
        for each in history.repeats(row, WHOLE, run.repetitions):
            if each.outcome is not None and each.outcome.wall_seconds:
                rows.append(row)
                seconds.append(each.outcome.wall_seconds)
                counted.append(each.outcome)
    ended = [(each.key.configuration, each.outcome) for each in trials if each.outcome is not None]
    late = [(row, end) for row, end in ended if end.status is TrialStatus.TIMEOUT]
    memory = {row for row, end in ended if end.status is TrialStatus.OOM}
    noisy = [each for each in counted if each.status is TrialStatus.NOISY]

    def median(values: Iterable[float | None]) -> float | None:
        numbers = [each for each in values if each is not None]
        return statistics.median(numbers) if numbers else None

    grid = campaign.grid
    return JobMeasurements(
        campaign.name,
        grid,
        tuple(rows),
        tuple(seconds),
        tuple(row for row, _ in late),
        tuple(end.wall_seconds or run.timeout_seconds for _, end in late),
        tuple(sorted(memory - set(rows))),
        sum(end.status.is_failure for _, end in ended),
        Disturbance(
            len(counted),
            len(noisy),
            median(each.resources.cpu_seconds or None for each in noisy),
            median(each.wall_seconds for each in noisy),
            median(each.foreign_cores for each in noisy),
            cores,
        ),
        roles={} if grid.parallelism is None else {"cores": grid.parallelism},
        clusters={"": ClusterConfig(1, cores or 1, 1)},
    )


def parse_query_configurations(
    measured: JobMeasurements, settings: Sequence[str]
) -> tuple[list[Configuration], Configuration]:
    """Return every combination of the values that `--at` names, and the columns that it leaves out.

    Args:
        measured: the job.
        settings: each like `rows=3200000,workers=1,2,4`.

    Returns:
        The configurations, and the columns with several values that no setting names, as they
        were in the newest run that is most like the query.

    Raises:
        InvalidInputError: a column is unknown, missing, named twice, or has no such value.
    """
    grid = measured.grid
    named = _named_values(measured, values_by_name(settings))
    columns: dict[str, tuple[Value, ...]] = {}
    for name, cells in grid.columns.items():
        if name in named:
            columns[name] = named[name]
        elif len(cells) == 1:
            columns[name] = cells
        elif not measured.newest:
            raise InvalidInputError(
                f"column {name} has several values, name one or more: --at {name}={_choices(cells)}"
            )
    query = {name: values[0] for name, values in columns.items()}
    usual: dict[str, Value] = {}
    if left := [name for name in grid.columns if name not in columns]:
        like = max(measured.newest, key=lambda ran: sum(ran[n] == query[n] for n in query))
        usual = {name: like[name] for name in left}
    columns = {name: columns.get(name) or (usual[name],) for name in grid.columns}
    if (count := math.prod(map(len, columns.values()))) > MOST_QUERIES:
        raise InvalidInputError(
            f"the query has {count} combinations, at most {MOST_QUERIES} are allowed"
        )
    rows = itertools.product(*columns.values())
    return [dict(zip(columns, row, strict=True)) for row in rows], usual


def _named_values(
    measured: JobMeasurements, words: Mapping[str, list[str]]
) -> dict[str, tuple[Value, ...]]:
    """Return the values that are named, by column; a multiple of a column names that column."""
    grid, named = measured.grid, dict[str, tuple[Value, ...]]()
    by_case = {name.lower(): name for name in (*grid.columns, *measured.multiples)}
    for asked_name, texts in words.items():
        name = (
            asked_name
            if asked_name in grid.columns
            else by_case.get(asked_name.lower(), asked_name)
        )
        name = name if name in by_case.values() else measured.roles.get(asked_name, name)
        column, times = measured.multiples.get(name, (name, 1.0))
        if column not in grid.columns:
            there = ", ".join((*grid.columns, *measured.multiples))
            raise InvalidInputError(f"there is no column {asked_name!r}; there are {there}")
        if column in named:
            raise InvalidInputError(
                f"{asked_name} follows from {column}, which is named too; name one of them"
            )
        cells = grid.columns[column]
        size = measured.bytes_per_size if column == grid.size else None
        values = tuple(_value(name, word, cells, size) for word in dict.fromkeys(texts))
        if times != 1:
            values = tuple(_whole(float(each) / times) for each in values)
        if column == grid.parallelism and all(float(each).is_integer() for each in cells):
            for each in values:
                if not float(each).is_integer():
                    raise InvalidInputError(
                        f"column {column} counts whole units; got {value_text(each)}"
                    )
        named[column] = values
    return named


def _whole(value: float) -> float:
    return int(value) if value.is_integer() else value


def _value(
    name: str, word: str, domain: Sequence[Value], bytes_per_unit: float | None = None
) -> Value:
    if isinstance(domain[0], bool | str):
        by_word = {value_word(each): each for each in domain}
        if word not in by_word:
            raise InvalidInputError(f"column {name} holds {_choices(domain)}; got {word[:80]!r}")
        return by_word[word]
    value = parse_number(word, is_bytes=name == BYTES)
    if value is None and bytes_per_unit is not None:
        of_bytes = parse_number(word, is_bytes=True)
        value = None if of_bytes is None else of_bytes / bytes_per_unit
    if value is None:
        raise InvalidInputError(f"column {name} holds numbers; got {word[:80]!r}")
    return _whole(value)


def _choices(values: Sequence[Value]) -> str:
    text = ",".join(value_word(each) for each in values[:8])
    return text + (",..." if len(values) > 8 else "")  # noqa: PLR2004 (as many as shown)
