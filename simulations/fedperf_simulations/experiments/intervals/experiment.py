"""Experiment: the accuracy of predictions and the coverage of their intervals, by situation.

One table holds all situations:

- a home that predicts other workloads, sizes and cores;
- public logs of Spark, with no or a few own runs;
- judged SQL;
- few configurations of a job, a job that ran k times, own runs of exactly a job, a deadline;
- a platform that a home never ran;
- an added workload that is unrelated to the query.

Every row names the predictor, its information, and the number of looks at the judged data so far. A
part without data, or at which no look is counted, is named in the notes and has no rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedperf_shared.errors import ConfigurationError
from fedperf_simulations.data.datasets import MissingDataError
from fedperf_simulations.experiments.intervals import (
    at_home,
    deadlines,
    own_runs,
    repeats,
    scale_outs,
    spark_logs,
    sql_queries,
    unknown_kinds,
    unrelated,
)
from fedperf_simulations.experiments.intervals.figures import EvaluationPart, coverage_chart
from fedperf_simulations.harness.experiment import ExperimentOutcome, Row, Settings, Target

PARTS: tuple[EvaluationPart, ...] = (
    at_home.PART,
    spark_logs.PART,
    sql_queries.PART,
    scale_outs.PART,
    repeats.PUBLIC,
    repeats.OWN,
    own_runs.PART,
    deadlines.PART,
    unknown_kinds.PART,
    unrelated.PART,
)

NOT_FROZEN = "not yet"
FROZEN_AT = "cbc8ef4"
"""The commit at which coefficients and features were fixed. Before the first look they were at
9d28d73; since then only widths where rows are estimates, measured on the training set, which own
runs count as of one plan, and what is read of partitions have changed."""

LOOKS: Mapping[str, int] = {
    spark_logs.PART.name: 3,
    sql_queries.PART.name: 3,
    scale_outs.PART.name: 3,
    repeats.PUBLIC.name: 3,
    own_runs.PART.name: 2,
    deadlines.PART.name: 3,
    unknown_kinds.PART.name: 3,
}
"""How often each judged set was looked at since then, the run that comes included: count up before
it, as this module is among what cells depend on. A set whose count is 0 is not read. The other
parts judge nothing of others."""


BEFORE = (
    "looked at before: members of the mix for tables were chosen after four looks at errors of "
    "`profiling_models` on C3O and TOKIO, and `joining_gain` shows errors of both sets with parts "
    "of that mix; on the Spark logs a first model, not this one, was tried once"
)


class Intervals:
    """The experiment."""

    name = "intervals"
    claim = "a pretrained model for seconds to hours, and 90 % intervals to plan with, by situation"

    def run(self, settings: Settings) -> ExperimentOutcome:
        """Return the rows of every part whose data are here."""
        rows: list[Row] = []
        cases: list[Row] = []
        targets: list[Target] = []
        _require_frozen()
        notes = list(_looks())
        for part in PARTS:
            if LOOKS.get(part.name) == 0:
                notes.append(f"{part.name}: left out, as no look at it is counted")
                continue
            try:
                part.files(settings.data)
            except MissingDataError as error:
                notes.append(f"{part.name}: left out, as {error}")
                continue
            of_part = part.cases(settings)
            table = part.rows(of_part)
            targets += part.targets(of_part, table)
            rows += [{"part": part.name, "looks": LOOKS.get(part.name), **row} for row in table]
            cases += [{"part": part.name, **each} for each in of_part]
            notes += part.notes
        chart = coverage_chart(rows, settings.out / "coverage.svg")
        return ExperimentOutcome(
            rows,
            targets,
            self.public_files(settings.data),
            [chart] if chart else [],
            cases,
            notes,
        )

    def public_files(self, data: Path | None) -> Sequence[Path]:
        """Files of every part whose data are here."""
        return list(dict.fromkeys(path for part in PARTS for path in _there(part, data)))


def _there(part: EvaluationPart, data: Path | None) -> Sequence[Path]:
    try:
        return part.files(data)
    except MissingDataError:
        return ()


def _require_frozen() -> None:
    looked_at = [name for name, count in LOOKS.items() if count]
    if FROZEN_AT == NOT_FROZEN and looked_at:
        raise ConfigurationError(
            f"{looked_at[0]} is to be read before coefficients and features are fixed: name the "
            f"commit in FROZEN_AT of {__name__}"
        )


def _looks() -> Iterator[str]:
    yield f"coefficients and features were fixed at commit: {FROZEN_AT}"
    yield BEFORE
    for name, count in LOOKS.items():
        yield f"{name}: looks since then, this run included: {count}"


EXPERIMENT = Intervals()
