"""Advice on executors as people and programs read it."""

from collections.abc import Iterator

from fedperf_client.advice.executor_sizes import (
    ApplicationRuntime,
    ExecutorAdvice,
    better_engine,
    is_better,
)
from fedperf_client.formatting.durations import duration_text
from fedperf_client.formatting.facts import Fact, for_people, values_of
from fedperf_client.formatting.numbers import size_text
from fedperf_client.home.node_prices import PriceList, cost_text
from fedperf_client.prediction.serving.what_if import format_probability
from fedperf_shared.runtime.command_line import shortened

LONGEST_NAME = 80


def lines_of(found: ExecutorAdvice, prices: PriceList | None) -> Iterator[str]:
    """What to do, and why, for people."""
    application, best = found.application, found.best
    queries = len(application.queries)
    yield (
        f"{shortened(application.name, LONGEST_NAME)}: {queries} "
        f"{'query' if queries == 1 else 'queries'}, {duration_text(application.wall_seconds)} on "
        f"{_size(found, found.today)}"
        + (f"; the last of {application.runs} runs" if application.runs > 1 else "")
    )
    is_kept = best is found.today
    yield (
        f"  {'keep' if is_kept else 'take'} {_size(found, best)}: {_times(best)}, "
        f"{_cost(found, best, prices)}"
        + ("" if is_kept else f" instead of {_cost(found, found.today, prices)}")
    )
    if found.rival is not None:
        yield f"  {_why_kept(found, found.rival, prices)}"
    if found.deadline_seconds is not None:
        yield f"  {_kept(found, found.deadline_seconds)}"
    yield from (f"  {each}" for each in found.conf)
    if application.settings.is_databricks:
        yield "  an executor is a worker of the Databricks cluster: set its number of workers"
    if application.spilled_bytes:
        yield (
            f"  note: {size_text(application.spilled_bytes)} went to disk with the memory it had; "
            "see fedperf diagnose"
        )
    if best.cluster.cores > found.today.cluster.cores and application.narrow_seconds:
        yield (
            f"  note: {duration_text(application.narrow_seconds)} of it were stages with no more "
            "tasks than cores: on more they take as long, unless they get more partitions"
        )
    if application.settings.has_dynamic_executors:
        yield "  costs are of executors that stay from beginning to end; fewer may do in between"
    if application.beside_seconds:
        yield f"  {duration_text(application.beside_seconds)} of it beside queries, as it was"
    if (elsewhere := _elsewhere(found)) is not None:
        yield f"  {elsewhere}"


def size_rows(found: ExecutorAdvice, prices: PriceList | None) -> list[list[Fact]]:
    """Every number of executors."""
    return [_row(found, each, prices) for each in found.times]


def facts_of(found: ExecutorAdvice, prices: PriceList | None) -> dict[str, object]:
    """All of it, by name."""
    application = found.application
    other = better_engine(found)

    def row(each: ApplicationRuntime) -> dict[str, object]:
        return values_of(_row(found, each, prices))

    return {
        "application": application.name,
        "runs": application.runs,
        "core_seconds_of_runs": application.used_core_seconds,
        "queries": len(application.queries),
        "wall_seconds": application.wall_seconds,
        "non_query_seconds": application.beside_seconds,
        "spilled_bytes": application.spilled_bytes,
        "low_parallelism_seconds": application.narrow_seconds,
        "executor_cores": application.executor_cores,
        "executor_memory_bytes": found.memory_bytes,
        "deadline_seconds": found.deadline_seconds,
        "probability": found.chance,
        "meets_deadline": found.keeps_deadline,
        "conf": list(found.conf),
        "choice": row(found.best),
        "current": row(found.today),
        "no_difference_to": None if found.rival is None else row(found.rival),
        "sizes": [row(each) for each in found.times],
        "local_engine": None
        if other is None
        else {
            "engine": other[0].name.lower(),
            "p50_seconds": other[1].median_seconds,
            "p90_seconds": other[1].p90_seconds,
            "chance_faster": other[2],
            "extrapolating": other[1].extrapolating,
        },
    }


def _why_kept(found: ExecutorAdvice, rival: ApplicationRuntime, prices: PriceList | None) -> str:
    """Why the size that it had is kept, although another one is better by its median."""
    is_cheaper = rival.cost < found.today.cost
    better = "cheaper" if is_cheaper else "faster"
    by = rival.chance_cheaper_than if is_cheaper else rival.chance_faster_than
    return (
        f"{_size(found, rival)} would be {better} by the medians, {_times(rival)} and "
        f"{_cost(found, rival, prices)}, but only with a probability of "
        f"{format_probability(by(found.today))}: the difference is not distinguishable"
    )


def _kept(found: ExecutorAdvice, deadline_seconds: float) -> str:
    """Whether the deadline is kept."""
    chance = found.best.chance_within(deadline_seconds)
    if found.keeps_deadline:
        kept = f"keeps it with a chance of {format_probability(chance)}"
    elif found.application.beside_seconds >= deadline_seconds:
        kept = (
            "no size keeps it, as the time beside queries alone is longer, so none is better for "
            "it than the one it has"
        )
    elif chance <= 0:
        kept = "no size asked about keeps it, so none is better for it than the one it has"
    else:
        probability = format_probability(chance)
        kept = f"no size asked about meets it with a probability of 90%; this has {probability}"
    return f"deadline {duration_text(deadline_seconds)}: {kept}"


def _row(found: ExecutorAdvice, each: ApplicationRuntime, prices: PriceList | None) -> list[Fact]:
    is_local, deadline = found.application.settings.is_local, found.deadline_seconds
    remarks = ["the size it had"] if each is found.today else []
    remarks += ["extrapolating"] * each.extrapolating
    cost = None if prices is None else each.cost
    chance = [] if deadline is None else [format_probability(each.chance_within(deadline))]
    return [
        for_people("", "->" if each is found.best else " "),
        Fact("executors", each.executors, None if is_local else "executors"),
        Fact("cores", each.cluster.cores, "cores"),
        Fact("nodes", each.cluster.nodes),
        Fact("p50_seconds", each.median_seconds, "P50"),
        Fact("p90_seconds", each.p90_seconds, "P90"),
        Fact("cost", cost, "cost", _cost(found, each, prices)),
        Fact("core_seconds", each.cluster.cores * each.median_seconds),
        Fact("extrapolating", each.extrapolating, "remarks", ", ".join(remarks)),
        *(for_people("probability", text) for text in chance),
    ]


def _elsewhere(found: ExecutorAdvice) -> str | None:
    """Whether another engine on this machine would do."""
    other = better_engine(found)
    if other is None:
        return None
    engine, time, chance = other
    if time.extrapolating:
        verdict = (
            "with the data at hand; nothing of the kind ran here on it, and functions of your own "
            "would be written anew, so measure before you believe that"
        )
    elif is_better(chance):
        verdict = f"would do: faster with a chance of {format_probability(chance)}"
    elif is_better(1 - chance):
        verdict = f"would be slower, with a chance of {format_probability(1 - chance)}"
    else:
        verdict = "no difference that can be told, so leave it where it runs"
    return (
        f"the queries alone, {_times(found.queries_today)}, on {engine.name.lower()} on this "
        f"machine ({time.cluster.cores} cores): {_times(time)}; {verdict}"
    )


def _cost(found: ExecutorAdvice, each: ApplicationRuntime, prices: PriceList | None) -> str:
    return cost_text(each.cost, prices, largest=max(time.cost for time in found.times))


def _size(found: ExecutorAdvice, each: ApplicationRuntime) -> str:
    if found.application.settings.is_local:
        cores = each.cluster.cores
        return f"{cores} core{'s' * (cores > 1)} of one process"
    many = f"{each.executors} executor{'s' * (each.executors > 1)}"
    return f"{many} of {found.application.executor_cores} cores"


def _times(each: ApplicationRuntime) -> str:
    return f"{duration_text(each.median_seconds)} (P90 {duration_text(each.p90_seconds)})"
