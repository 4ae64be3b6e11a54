"""`fedperf predict JOB`: predict a profiled job, or one of a table, at values of its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedperf_client.formatting.facts import show_table, values_of
from fedperf_client.formatting.progress import progress_bar
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.runtime.command_line import NO_FEASIBLE_SIZE, show, visible
from fedperf_shared.runtime.quantities import counted

if TYPE_CHECKING:
    from fedperf_campaigns.campaign.grid import Configuration
    from fedperf_campaigns.campaign.predictions import ConfigurationPrediction, JobMeasurements
    from fedperf_campaigns.tables.prior_slopes import Scatter
    from fedperf_client.home.config import Home

LEAST_SHOWN = 0.005  # members of less weight are not shown to people


@dataclass(frozen=True, slots=True)
class _Job:
    """A job of a table or a campaign, which columns describe."""

    measured: "JobMeasurements"
    elsewhere: "Scatter"  # repeats of other jobs
    is_campaign: bool


def answer(
    home: "Home",
    words: str,
    settings: Sequence[str],
    old_settings: Sequence[str] = (),
    *,
    deadline: str | None = None,
    plot: Path | None = None,
    cheapest: bool = False,
    prices: Path | None = None,
    json: bool,
) -> None:
    """Predict the campaign of a file or a name, or the stored job of a name.

    Args:
        home: the data directory.
        words: the file or the name.
        settings: of `--at` and of `--set`, its old name.
        old_settings: of `--set`.
        deadline: such as 20m; None without one. Exit code 7 if no configuration meets it.
        plot: the chart to write, None for none.
        cheapest: whether to name the cheapest configuration.
        prices: of machines; None for core-seconds.
        json: whether to print JSON.
    """
    from fedperf_campaigns.campaign import predictions
    from fedperf_client.charts.kit import require_chart_file
    from fedperf_client.home.node_prices import load_prices
    from fedperf_client.prediction.serving.what_if import parse_duration

    seconds = None if deadline is None else parse_duration(deadline)
    price_list = None if prices is None else load_prices(prices)
    if plot is not None:
        require_chart_file(plot)
    job = _load(home, words)
    measured = job.measured
    configurations, usual = predictions.parse_query_configurations(measured, settings)
    across = "" if plot is None else _only_varying(configurations)
    with progress_bar("weighing predictors", json=json) as advance:
        predictor = measured.predictor(elsewhere=job.elsewhere, on_progress=advance)
        results = predictions.predict_configurations(
            predictor, measured, configurations, deadline_seconds=seconds
        )
    if cheapest or price_list is not None:
        results = predictions.with_costs(measured, results, price_list)
    if plot is not None:
        _draw(plot, measured, results, across, seconds)
    members = predictor.members
    if json:
        show(_facts(job, members, results, usual, seconds, cheapest=cheapest), json=True)
    else:
        show_table([each.facts for each in results], json=False)
        lines = _lines(job, members, results, usual, seconds, cheapest=cheapest)
        lines += [] if plot is None else [f"picture: {plot}"]
        if old_settings:
            lines.append(f"--set is now: fedperf predict {words} --at {','.join(settings)}")
        for line in lines:
            typer.echo(visible(line))
    if seconds is not None and not any(each.holds for each in results):
        raise typer.Exit(NO_FEASIBLE_SIZE)


def _facts(
    job: _Job,
    members: Mapping[str, float],
    results: "Sequence[ConfigurationPrediction]",
    usual: "Configuration",
    deadline_seconds: float | None,
    *,
    cheapest: bool,
) -> dict[str, object]:
    """Return the facts of JSON."""
    from fedperf_campaigns.campaign import predictions

    measured = job.measured
    facts: dict[str, object] = {
        "job": measured.name,
        "campaign": measured.name if job.is_campaign else None,
        "predictions": [values_of(each.facts) for each in results],
        "executions": len(measured.seconds),
        "configurations": measured.configurations,
        "timed_out": len(measured.stopped_seconds),
        "failed": measured.failed,
        "load": measured.load.as_row(),
        "ensemble": members,
        "as_newest_run": usual,
        "notes": measured.remarks,
    }
    if deadline_seconds is not None:
        fewest = predictions.smallest_meeting_deadline(measured.grid, results)
        facts |= {"deadline_seconds": deadline_seconds, "cheapest_feasible": fewest}
    if cheapest:
        best = predictions.cheapest(results)
        facts["cheapest"] = None if best is None else best.columns
    return facts


def _lines(
    job: _Job,
    members: Mapping[str, float],
    results: "Sequence[ConfigurationPrediction]",
    usual: "Configuration",
    deadline_seconds: float | None,
    *,
    cheapest: bool,
) -> list[str]:
    """Return the lines below the table."""
    from fedperf_campaigns.campaign import predictions

    measured, lines = job.measured, list[str]()
    if deadline_seconds is not None:
        lines += predictions.deadline_sentences(measured.grid, results, deadline_seconds)
    if cheapest:
        lines.append(_cheapest_sentence(predictions.cheapest(results)))
    no_promises = dict.fromkeys(each.no_promise for each in results if each.no_promise)
    lines += [f"no promise: {reason}" for reason in no_promises]
    if usual:
        lines.append(f"as in the newest run: {_setting(usual)}; --at changes it")
    lines.append(_evidence(job, members))
    remarks = (*measured.remarks, measured.load.sentence)
    return lines + [f"note: {remark}" for remark in remarks if remark]


def can_answer(home: "Home", name: str) -> bool:
    """Return whether a campaign of that name was profiled, or a job of a table is stored."""
    from fedperf_campaigns.campaign.definition import find_journals
    from fedperf_client.home.store import ExecutionStore

    if find_journals(home.directory, name):
        return True
    with ExecutionStore.open_to_read(home.store) as store:
        return bool(store.jobs_of_tables(name))


def _load(home: "Home", words: str) -> _Job:
    from fedperf_campaigns.campaign.definition import find_journals, load_campaign_by_name_or_path
    from fedperf_campaigns.campaign.predictions import load_measurements, scatter_of_others
    from fedperf_campaigns.campaign.stored_job import load_stored_job
    from fedperf_campaigns.tables.prior_slopes import NO_REPEATS
    from fedperf_client.home.store import ExecutionStore

    if not Path(words).is_file() and not find_journals(home.directory, words):
        with ExecutionStore.open_to_read(home.store) as store:
            if store.jobs_of_tables(words):
                return _Job(load_stored_job(store, words), NO_REPEATS, is_campaign=False)
    campaign = load_campaign_by_name_or_path(home.directory, words)
    return _Job(
        load_measurements(home.directory, campaign),
        scatter_of_others(home.directory, campaign),
        is_campaign=True,
    )


def _only_varying(configurations: "Sequence[Configuration]") -> str:
    """Return the column of numbers that a chart is over: the only one with several values."""
    first = configurations[0]
    varying = [name for name in first if len({each[name] for each in configurations}) > 1]
    if len(varying) != 1 or isinstance(first[varying[0]], bool | str):
        named = ", ".join(varying) or "none"
        raise InvalidInputError(
            f"--plot draws times over one column of numbers: name several values of one column, "
            f"such as --at workers=1,2,4,8; with several values: {named}"
        )
    return varying[0]


def _draw(
    path: Path,
    measured: "JobMeasurements",
    results: "Sequence[ConfigurationPrediction]",
    across: str,
    deadline_seconds: float | None,
) -> None:
    """Draw the predictions, with the runs that differ from them in that column only."""
    from fedperf_client.charts.charts import draw_prediction

    rest = {name: value for name, value in results[0].columns.items() if name != across}
    configurations = measured.grid.configurations
    runs = [
        (float(configurations[row][across]), seconds)
        for row, seconds in zip(measured.rows, measured.seconds, strict=True)
        if all(configurations[row][name] == value for name, value in rest.items())
    ]
    points = sorted(
        ((float(each.columns[across]), each.estimate) for each in results),
        key=lambda point: point[0],
    )
    draw_prediction(path, points, runs, deadline_seconds=deadline_seconds, across=across)


def _cheapest_sentence(best: "ConfigurationPrediction | None") -> str:
    if best is None:
        return "cheapest: none of the query can be promised"
    return f"cheapest: {_setting(best.columns)}, for {best.cost_words}"


def _setting(columns: "Configuration") -> str:
    from fedperf_campaigns.campaign.grid import value_word

    return ",".join(f"{name}={value_word(value)}" for name, value in columns.items())


def _evidence(job: _Job, shares: Mapping[str, float]) -> str:
    """Return the evidence of the predictions, for people."""
    measured = job.measured
    members = sorted(shares.items(), key=lambda each: -each[1])
    named = ", ".join(f"{name} {weight:.0%}" for name, weight in members if weight >= LEAST_SHOWN)
    text = (
        f"evidence: {counted(len(measured.seconds), 'run')} of "
        f"{counted(measured.configurations, 'configuration')}; ensemble: {named}"
    )
    if job.is_campaign:
        text += "; imports and connections before the first component's start are not in the time"
    if measured.failed:
        text += f"; {counted(measured.failed, 'trial' if job.is_campaign else 'run')} failed"
    if late := len(measured.stopped_seconds):
        text += f", {late} of them by timeout: they would have taken longer than that"
    return text
