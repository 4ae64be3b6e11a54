"""Advice as facts for programs and as lines for people. Seconds include start-ups throughout."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fedperf_client.advice.advice import Advice
from fedperf_client.advice.explanation import name_of, platforms_text, size_of
from fedperf_client.advice.sizes import ClusterChoice
from fedperf_client.advice.turns import MeasuredChoice, fastest
from fedperf_client.optimizer.enumeration import Alternative, Choice
from fedperf_client.prediction.answers.what_if import WITH_ITS_PARTITIONS, chance_text
from fedperf_client.text.durations import duration_text
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.vocabulary import Platform

EXTRAPOLATING = "*"
"""Behind the interval of a prediction that extrapolates."""

_WHOLE_FROM = 1000.0

COLOURS: Mapping[Platform, str] = MappingProxyType(
    {
        Platform.DUCKDB: "yellow",
        Platform.POLARS: "blue",
        Platform.PANDAS: "magenta",
        Platform.SKLEARN: "cyan",
        Platform.SPARK: "red",
        Platform.FLINK: "green",
    }
)
"""Of platforms in the terminal."""


def facts_of(advice: Advice, reasons: Sequence[str]) -> dict[str, object]:
    """All of it, by name."""
    choice = advice.choice
    return {
        "choice": {
            **_plan_facts(choice, advice),
            **_size_facts(advice.best.cluster),
            "keeps_partitions": advice.job.keeps_partitions_on(advice.best.cluster),
        },
        "keeps_deadline": advice.keeps_deadline,
        "deadline_seconds": advice.best.deadline_seconds,
        "reasons": list(reasons),
        "rests_on": advice.best.estimate.basis.rests_on.value,
        "own_runs": advice.best.estimate.basis.runs,
        "compared": _rivalry_facts(advice),
        "plans": [_plan_facts(each, advice) for each in advice.rivals],
        "sizes": [_sized_facts(each, advice) for each in advice.sizes],
        "no_difference_to_size": (
            None if advice.rival_size is None else _sized_facts(advice.rival_size, advice)
        ),
        "too_small": [{**_size_facts(each), "reason": why} for each, why in advice.too_small],
        "method": _search_name(choice),
        "is_exact": choice.is_exact,
        "plans_scored": sum(each.choice.plans_scored for each in advice.sizes),
    }


def headline(advice: Advice) -> str:
    """What to do, in one sentence."""
    choice = advice.choice
    start = choice.startup_seconds
    of_it = f"; {duration_text(start)} of it to start" if start else ""
    what_to_do = "run it on"
    if advice.advised is not choice:
        name = platforms_text(advice.advised.plan)
        what_to_do = f"run it on {name}, which is simpler; the fastest by prediction:"
        if _runs_today(advice.advised, advice):
            what_to_do = "keep it where it runs; the fastest by prediction:"
    return (
        f"{what_to_do} {platforms_text(choice.plan)} with {size_of(advice.best.cluster)}: "
        f"{duration_text(choice.seconds)}, {choice.prediction.level:.0%} interval "
        f"{_interval(choice)}{of_it}"
    )


def verdict(advice: Advice) -> str | None:
    """What becomes of the deadline; None without one."""
    best = advice.best
    if best.deadline_seconds is None:
        return None
    words, chance = duration_text(best.deadline_seconds), chance_text(best.chance or 0.0)
    if advice.keeps_deadline:
        cheapest = "" if advice.rival_size else " at the fewest core-seconds,"
        return f"keeps {words}{cheapest} with a chance of {chance}"
    return (
        f"no size asked about keeps {words} with a chance of 90%; the surest is shown: "
        f"{size_of(best.cluster)}, {chance}"
    )


def basis(advice: Advice) -> str:
    """What the time of the choice rests on."""
    return f"that rests on {advice.best.estimate.basis.words}"


def no_difference(advice: Advice) -> str | None:
    """That there is no reason to change anything; None where there is, or nothing to compare."""
    rivalry, choice = advice.rivalry, advice.choice
    if rivalry is None or not rivalry.is_open:
        return None
    name, what = f"{platforms_text(rivalry.plan.plan)} for everything", "the simpler one"
    if advice.advised is choice:
        what = "either"
    elif _runs_today(rivalry.plan, advice):
        name, what = "what runs today", "what you have"
    return (
        f"no difference that can be told: {name} takes {duration_text(rivalry.plan.seconds)}, "
        f"{rivalry.plan.prediction.level:.0%} interval {_interval(rivalry.plan)}, against "
        f"{duration_text(choice.seconds)}, {_interval(choice)}; the latter is faster with a "
        f"chance of {chance_text(rivalry.chance)}, so take {what}"
    )


def no_better_size(advice: Advice) -> str | None:
    """That there is no reason for another size; None where there is, or it has the right one."""
    rival, best = advice.rival_size, advice.best
    if rival is None:
        return None
    return (
        f"no size that can be told to be better: {size_of(rival.cluster)} would take "
        f"{duration_text(rival.seconds)} and {_number(rival.core_seconds)} core-seconds, what it "
        f"has takes {duration_text(best.seconds)} and {_number(best.core_seconds)}, so keep "
        f"{size_of(best.cluster)}"
    )


def _runs_today(each: Alternative, advice: Advice) -> bool:
    return each.plan.platforms == advice.job.today.platforms


def _label(each: Alternative, advice: Advice) -> str:
    """What a plan is called in a table: how it differs from the choice."""
    if each is advice.choice:
        return "chosen" if each is advice.advised else "fastest by prediction"
    text = platforms_text(each.plan, advice.choice.plan)
    return f"{text} (chosen)" if each is advice.advised else text


def plan_lines(advice: Advice) -> list[dict[str, object]]:
    """The choice and its rivals."""
    chosen = advice.choice
    return [
        {
            "plan": _label(each, advice),
            "time": duration_text(each.seconds),
            f"{each.prediction.level:.0%} interval": _interval(each),
            "start": duration_text(each.startup_seconds) if each.startup_seconds else "",
            "slower": f"{each.seconds / chosen.seconds:.2f}x",
            "remarks": "runs today" if _runs_today(each, advice) else "",
        }
        for each in (chosen, *advice.rivals)
    ]


def size_lines(advice: Advice) -> list[dict[str, object]]:
    """Every size with its best plan."""
    lines, several = [], {each.cluster.nodes for each in advice.sizes}
    for each in advice.sizes:
        line: dict[str, object] = {
            "": "->" if each is advice.best else " ",
            "cores": each.cluster.cores,
            "nodes": "" if several == {1} else each.cluster.nodes,
            "platforms": platforms_text(each.choice.plan),
            "time": duration_text(each.seconds),
            f"{each.choice.prediction.level:.0%} interval": _interval(each.choice),
            "core s": _number(each.core_seconds),
            "remarks": _partitions(each, advice),
        }
        if each.chance is not None:
            line["deadline"] = f"{'holds' if each.holds else 'at risk'}, {chance_text(each.chance)}"
        lines.append(line)
    return lines


def measured_facts(measured: Sequence[MeasuredChoice], advice: Advice) -> list[dict[str, object]]:
    """Plans that were run, in the order in which they ran."""
    return [
        {
            **_plan_facts(each.plan, advice),
            "measured_runtime_seconds": each.runtime_seconds,
            "measured_seconds": each.seconds,
            "reason": each.reason,
        }
        for each in measured
    ]


def measured_lines(measured: Sequence[MeasuredChoice], advice: Advice) -> list[dict[str, object]]:
    """The same for people: run times on engines that are awake, and what a start adds."""
    return [
        {
            "plan": _label(each.plan, advice),
            "predicted": duration_text(each.plan.prediction.median_seconds),
            "measured": _or_reason(each),
            "with the start": _started(each),
            "in the interval": (
                None
                if each.runtime_seconds is None
                else each.plan.prediction.covers(each.runtime_seconds)
            ),
        }
        for each in measured
    ]


def outcome(measured: Sequence[MeasuredChoice], advice: Advice) -> str:
    """Whether what is advised was the fastest, and by how much."""
    best, [chosen] = fastest(measured), [m for m in measured if m.plan is advice.advised]
    if best is None or best.seconds is None:
        return "no plan ended well"
    if chosen.seconds is None:
        return f"the advised plan did not end well: {chosen.reason}"
    if best is not chosen:
        times = chosen.seconds / best.seconds
        return (
            f"{platforms_text(best.plan.plan)} was the fastest, {duration_text(best.seconds)}; "
            f"the advised plan took {times:.2f} times as long"
        )
    others = [each.seconds for each in measured if each is not chosen and each.seconds]
    if not others:
        is_alone = len(measured) == 1
        return "the advised plan ran alone" if is_alone else "only the advised plan ended well"
    times = min(others) / best.seconds
    return f"the advised plan was the fastest; the next took {times:.2f} times as long"


def search_text(advice: Advice, milliseconds: float) -> str:
    """How the choice was found."""
    choice, count = advice.choice, len(advice.sizes)
    plans = sum(each.choice.plans_scored for each in advice.sizes)
    sizes = "1 size" if count == 1 else f"{count} sizes"
    sure = "exact under the additive costs" if choice.is_exact else "not exact"
    return (
        f"searched {sizes} in {milliseconds:.0f} ms: {plans} plans predicted, by "
        f"{_search_name(choice)}, {sure}"
    )


def _search_name(choice: Choice) -> str:
    """What searched: a beam where the workflow was too wide for an exact search."""
    return "frontier" if choice.is_exact else "beam"


def legend(advice: Advice) -> str | None:
    """What the mark means; None where nothing bears it."""
    shown = (advice.choice, *advice.rivals, *(each.choice for each in advice.sizes))
    if not any(each.prediction.extrapolating for each in shown):
        return None
    return f"{EXTRAPOLATING} extrapolating: unlike own executions, so the level is no promise"


def without_empty(lines: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The lines without columns that say nothing in any of them."""
    shown = {name for line in lines for name, value in line.items() if value != ""}
    return [{name: line[name] for name in line if name in shown} for line in lines]


def _plan_facts(each: Alternative, advice: Advice) -> dict[str, object]:
    prediction, start = each.prediction, each.startup_seconds
    return {
        "platforms": [name_of(platform) for platform in each.plan.platforms],
        "seconds": each.seconds,
        "lower_seconds": prediction.lower_seconds + start,
        "upper_seconds": prediction.upper_seconds + start,
        "level": prediction.level,
        "startup_seconds": start,
        "extrapolating": prediction.extrapolating,
        "times_the_choice": each.seconds / advice.choice.seconds,
        "runs_today": each.plan.platforms == advice.job.today.platforms,
    }


def _rivalry_facts(advice: Advice) -> dict[str, object] | None:
    if advice.rivalry is None:
        return None
    return {
        **_plan_facts(advice.rivalry.plan, advice),
        "chance_choice_is_faster": advice.rivalry.chance,
        "no_difference": advice.rivalry.is_open,
    }


def _sized_facts(each: ClusterChoice, advice: Advice) -> dict[str, object]:
    return {
        **_size_facts(each.cluster),
        **_plan_facts(each.choice, advice),
        "keeps_partitions": advice.job.keeps_partitions_on(each.cluster),
        "core_seconds": each.core_seconds,
        "chance": each.chance,
        "holds": each.holds,
    }


def _partitions(each: ClusterChoice, advice: Advice) -> str:
    return WITH_ITS_PARTITIONS if advice.job.keeps_partitions_on(each.cluster) else ""


def _size_facts(cluster: ClusterConfig) -> dict[str, object]:
    return {
        "cores": cluster.cores,
        "nodes": cluster.nodes,
        "memory_bytes": cluster.memory_bytes,
    }


def _interval(each: Alternative) -> str:
    ends = (each.prediction.lower_seconds, each.prediction.upper_seconds)
    text = " to ".join(duration_text(end + each.startup_seconds) for end in ends)
    return f"{text} {EXTRAPOLATING}" if each.prediction.extrapolating else text


def _started(each: MeasuredChoice) -> str:
    return duration_text(each.seconds) if each.seconds and each.plan.startup_seconds else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


def _or_reason(each: MeasuredChoice) -> str:
    return each.reason if each.runtime_seconds is None else duration_text(each.runtime_seconds)
