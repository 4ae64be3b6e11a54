"""Advice as facts for programs, sentences for people and a chart. Seconds include start-ups.

Run times are predictions of complete plans, start-ups are public constants, bytes are those of the
workflow. The cost of a transfer is an estimate of the additive surrogate, and the text states that.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedperf_client.charts.kit import COLOURS, FAINT, GRID, INK, chart, log_lengths, write_chart
from fedperf_client.formatting.facts import Fact, for_people, for_programs, values_of
from fedperf_client.formatting.operator_tree import words_of
from fedperf_client.prediction.ensemble.training_data import ROWS, TrainingSupport
from fedperf_client.prediction.serving.what_if import WITH_ITS_PARTITIONS, format_probability
from fedperf_engines.advice.advice import (
    Advice,
    ClusterChoice,
    MeasuredChoice,
    fastest,
    platform_groups,
)
from fedperf_engines.optimizer.costs import memory_needed
from fedperf_engines.optimizer.enumeration import Alternative, Choice
from fedperf_engines.platforms.engine import ENGINES, installed_platforms
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.runtime.quantities import counted, duration_text, size_text
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.topology import topological_order
from fedperf_shared.workflow.vocabulary import Platform

if TYPE_CHECKING:
    from matplotlib.axes import Axes


EXTRAPOLATING = "*"  # behind the interval of a prediction that extrapolates
_WHOLE_FROM = 1000.0

# Of platforms in the terminal.
TERMINAL_COLOURS: Mapping[Platform, str] = MappingProxyType(
    {
        Platform.DUCKDB: "yellow",
        Platform.POLARS: "blue",
        Platform.PANDAS: "magenta",
        Platform.SKLEARN: "cyan",
        Platform.SPARK: "red",
        Platform.FLINK: "green",
    }
)


def advice_facts(advice: Advice, reasons: Sequence[str]) -> dict[str, object]:
    """Return all facts of the advice, by name."""
    choice, rival_size = advice.choice, advice.rival_size
    return {
        "choice": {
            **values_of(_plan_facts(choice, advice)),
            **values_of(_size_facts(advice.best.cluster)),
            "fixed_partitions": advice.job.keeps_partitions_on(advice.best.cluster),
        },
        "meets_deadline": advice.keeps_deadline,
        "deadline_seconds": advice.best.deadline_seconds,
        "reasons": list(reasons),
        "evidence": advice.best.estimate.evidence.source.value,
        "observed_runs": advice.best.estimate.evidence.runs,
        "compared": None
        if advice.rivalry is None
        else {
            **values_of(_plan_facts(advice.rivalry.plan, advice)),
            "chance_choice_is_faster": advice.rivalry.chance,
            "no_difference": advice.rivalry.is_open,
        },
        "plans": [values_of(_plan_facts(each, advice)) for each in advice.rivals],
        "sizes": [values_of(each) for each in size_rows(advice)],
        "no_difference_to_size": (
            None if rival_size is None else values_of(_sized_facts(rival_size, advice))
        ),
        "too_small": [
            {**values_of(_size_facts(each)), "reason": why} for each, why in advice.too_small
        ],
        "method": _search_name(choice),
        "is_exact": choice.is_exact,
        "plans_scored": sum(each.choice.plans_scored for each in advice.sizes),
    }


def headline(advice: Advice) -> str:
    """Return the advice in one sentence."""
    choice, advised = advice.choice, advice.advised
    recommended = ""
    if advised is not choice:
        recommended = f"{platforms_text(advised.plan)}, which is simpler; fastest by prediction: "
        if _runs_today(advised, advice):
            recommended = "keep the current platforms; fastest by prediction: "
    start = choice.startup_seconds
    return (
        f"recommended: {recommended}{platforms_text(choice.plan)} with "
        f"{size_label(advice.best.cluster)}: {duration_text(choice.seconds)}, "
        f"{choice.prediction.confidence_level:.0%} interval {_interval(choice)}"
        + (f"; {duration_text(start)} of it to start" if start else "")
    )


def deadline_sentence(advice: Advice) -> str | None:
    """Return whether the deadline is met, in a sentence; None without one."""
    best = advice.best
    if best.deadline_seconds is None:
        return None
    deadline = duration_text(best.deadline_seconds)
    probability = format_probability(best.chance or 0.0)
    if advice.keeps_deadline:
        cheapest = "" if advice.rival_size else " at the fewest core-seconds,"
        return f"meets {deadline}{cheapest} with a probability of {probability}"
    return (
        f"no size of the query meets {deadline} with a probability of 90%; the most probable is "
        f"shown: {size_label(best.cluster)}, {probability}"
    )


def evidence_sentence(advice: Advice) -> str:
    """Return the evidence for the time of the choice."""
    return f"evidence: {advice.best.estimate.evidence.text}"


def no_difference(advice: Advice) -> str | None:
    """Return why nothing needs to change; None where something does, or nothing is comparable."""
    rivalry, choice = advice.rivalry, advice.choice
    if rivalry is None or not rivalry.is_open:
        return None
    name, take = f"{platforms_text(rivalry.plan.plan)} for everything", "the simpler one"
    if advice.advised is choice:
        take = "either"
    elif _runs_today(rivalry.plan, advice):
        name, take = "the current plan", "the current one"
    return (
        f"not distinguishable: {name} takes {duration_text(rivalry.plan.seconds)}, "
        f"{rivalry.plan.prediction.confidence_level:.0%} interval {_interval(rivalry.plan)}, "
        f"against {duration_text(choice.seconds)}, {_interval(choice)}; the latter is faster with "
        f"a probability of {format_probability(rivalry.chance)}, so take {take}"
    )


def no_better_size(advice: Advice) -> str | None:
    """Return why the size need not change; None where it should, or is the right one."""
    rival, best = advice.rival_size, advice.best
    if rival is None:
        return None
    return (
        f"no size is distinguishably better: {size_label(rival.cluster)} would take "
        f"{duration_text(rival.seconds)} and {_number(rival.core_seconds)} core-seconds, the "
        f"current size takes {duration_text(best.seconds)} and {_number(best.core_seconds)}, so "
        f"keep {size_label(best.cluster)}"
    )


def _runs_today(each: Alternative, advice: Advice) -> bool:
    return each.plan.platforms == advice.job.today.platforms


def _label(each: Alternative, advice: Advice) -> str:
    """Return a plan's name in a table: its difference from the choice."""
    if each is advice.choice:
        return "chosen" if each is advice.advised else "fastest by prediction"
    text = platforms_text(each.plan, advice.choice.plan)
    return f"{text} (chosen)" if each is advice.advised else text


def plan_rows(advice: Advice) -> list[list[Fact]]:
    """Return the facts of the choice and its alternatives."""
    return [_plan_facts(each, advice) for each in (advice.choice, *advice.rivals)]


def size_rows(advice: Advice) -> list[list[Fact]]:
    """Return the facts of every size with its best plan."""
    return [_sized_facts(each, advice) for each in advice.sizes]


def measured_rows(measured: Sequence[MeasuredChoice], advice: Advice) -> list[list[Fact]]:
    """Return the facts of plans that were run, in the order in which they ran.

    People see run times on engines that are awake, and what a start adds.
    """
    rows = []
    for each in measured:
        prediction, took = each.plan.prediction, each.runtime_seconds
        with_start = bool(each.seconds and each.plan.startup_seconds)
        rows.append(
            [
                for_people("plan", _label(each.plan, advice)),
                for_people("predicted", duration_text(prediction.median_seconds)),
                *for_programs(_plan_facts(each.plan, advice)),
                Fact("measured_runtime_seconds", took, "measured", each.reason or None),
                Fact(
                    "measured_seconds",
                    each.seconds,
                    "with the start",
                    None if with_start else "",
                ),
                Fact("reason", each.reason),
                for_people("in the interval", None if took is None else prediction.covers(took)),
            ]
        )
    return rows


def outcome(measured: Sequence[MeasuredChoice], advice: Advice) -> str:
    """Return whether the advised plan was the fastest, and by how much."""
    best, [advised] = fastest(measured), [m for m in measured if m.plan is advice.advised]
    if best is None or best.seconds is None:
        return "no plan ended well"
    if advised.seconds is None:
        return f"the advised plan did not end well: {advised.reason}"
    if best is not advised:
        times = advised.seconds / best.seconds
        return (
            f"{platforms_text(best.plan.plan)} was the fastest, {duration_text(best.seconds)}; "
            f"the advised plan took {times:.2f} times as long"
        )
    others = [each.seconds for each in measured if each is not advised and each.seconds]
    if not others:
        is_alone = len(measured) == 1
        return "the advised plan ran alone" if is_alone else "only the advised plan ended well"
    times = min(others) / best.seconds
    return f"the advised plan was the fastest; the next took {times:.2f} times as long"


def search_text(advice: Advice, milliseconds: float) -> str:
    """Return how the choice was found."""
    choice, count = advice.choice, len(advice.sizes)
    plans = sum(each.choice.plans_scored for each in advice.sizes)
    sizes = "1 size" if count == 1 else f"{count} sizes"
    sure = "exact under the additive costs" if choice.is_exact else "not exact"
    return (
        f"searched {sizes} in {milliseconds:.0f} ms: {plans} plans predicted, by "
        f"{_search_name(choice)}, {sure}"
    )


def _search_name(choice: Choice) -> str:
    """Return the search's name: a beam where the workflow was too wide for an exact search."""
    return "frontier" if choice.is_exact else "beam"


def legend(advice: Advice) -> str | None:
    """Explain the mark of extrapolation; None where it is not shown."""
    alternatives = (advice.choice, *advice.rivals, *(each.choice for each in advice.sizes))
    if not any(each.prediction.extrapolating for each in alternatives):
        return None
    return f"{EXTRAPOLATING} extrapolating: unlike local executions, so the level is not guaranteed"


def _plan_facts(each: Alternative, advice: Advice) -> list[Fact]:
    prediction, start = each.prediction, each.startup_seconds
    times, is_today = each.seconds / advice.choice.seconds, _runs_today(each, advice)
    platforms = [platform_label(platform) for platform in each.plan.platforms]
    return [
        Fact("platforms", platforms, "plan", _label(each, advice)),
        Fact("seconds", each.seconds, "time"),
        Fact("lower_seconds", prediction.lower_seconds + start),
        Fact("upper_seconds", prediction.upper_seconds + start),
        Fact(
            "confidence_level",
            prediction.confidence_level,
            f"{prediction.confidence_level:.0%} interval",
            _interval(each),
        ),
        Fact("startup_seconds", start, "start", None if start else ""),
        Fact("extrapolating", prediction.extrapolating),
        Fact("relative_to_choice", times, "slower", f"{times:.2f}x"),
        Fact("is_current", is_today, "remarks", "runs today" if is_today else ""),
    ]


def _sized_facts(each: ClusterChoice, advice: Advice) -> list[Fact]:
    keeps, chance = advice.job.keeps_partitions_on(each.cluster), each.chance
    text = (
        ""
        if chance is None
        else f"{'on time' if each.holds else 'at risk'}, {format_probability(chance)}"
    )
    is_one_node = all(size.cluster.nodes == 1 for size in advice.sizes)
    shown_of_plan = ("time", f"{each.choice.prediction.confidence_level:.0%} interval")
    return [
        for_people("", "->" if each is advice.best else " "),
        *_size_facts(each.cluster, is_one_node=is_one_node),
        for_people("platforms", platforms_text(each.choice.plan)),
        *(
            fact if fact.heading in shown_of_plan else Fact(fact.name, fact.value)
            for fact in _plan_facts(each.choice, advice)
        ),
        Fact("fixed_partitions", keeps, "remarks", WITH_ITS_PARTITIONS if keeps else ""),
        Fact("core_seconds", each.core_seconds, "core s", _number(each.core_seconds)),
        Fact("probability", chance, "deadline", text),
        Fact("meets_deadline", each.holds),
    ]


def _size_facts(cluster: ClusterConfig, *, is_one_node: bool = False) -> list[Fact]:
    return [
        Fact("cores", cluster.cores, "cores"),
        Fact("nodes", cluster.nodes, "nodes", "" if is_one_node else None),
        Fact("memory_bytes", cluster.memory_bytes),
    ]


def _interval(each: Alternative) -> str:
    ends = (each.prediction.lower_seconds, each.prediction.upper_seconds)
    text = " to ".join(duration_text(end + each.startup_seconds) for end in ends)
    return f"{text} {EXTRAPOLATING}" if each.prediction.extrapolating else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


_MOST_NAMED = 3


def explain(advice: Advice, support: TrainingSupport, *, all_platforms: bool) -> list[str]:
    """Return reasons for the choice and cautions, one sentence each.

    Args:
        advice: what is to be explained.
        support: of local executions.
        all_platforms: whether every platform was wished for that is here; then those that
            are not are named.
    """
    reasons = [
        *_unlike(advice.choice.plan, support),
        *_size(advice),
        *_groups(advice),
        *_transfers(advice),
        *_memory(advice),
        *_starts(advice),
    ]
    here = {*installed_platforms(), *advice.constraints.platforms}
    missing = [platform_label(each) for each in ENGINES if each not in here]
    if all_platforms and missing:
        reasons.append(f"{', '.join(missing)} left out: not installed")
    return reasons


def platforms_text(plan: Plan, reference: Plan | None = None) -> str:
    """Return the platforms of a plan for people; of a mixed one what differs from `reference`."""
    used = sorted(set(plan.platforms))
    if len(used) == 1:
        return platform_label(used[0])
    before = [None] * len(plan.platforms) if reference is None else reference.platforms
    differs = [place for place, each in enumerate(plan.platforms) if each is not before[place]]
    parts = [
        (
            platform_label(each),
            numbers_text([place for place in differs if plan.platforms[place] is each]),
        )
        for each in used
    ]
    if reference is None:
        return ", ".join(f"{name} ({numbers})" for name, numbers in parts)
    return "but " + ", ".join(f"{numbers} on {name}" for name, numbers in parts if numbers)


def platform_label(platform: Platform) -> str:
    """Return a platform for people."""
    return platform.name.lower()


def size_label(cluster: ClusterConfig) -> str:
    """Return a size of cluster for people."""
    cores = counted(cluster.cores, "core")
    return cores if cluster.nodes == 1 else f"{cores} on {cluster.nodes} nodes"


def numbers_text(positions: Sequence[int]) -> str:
    """Return operators by number, neighbours as a range."""
    ranges: list[list[int]] = []
    for position in sorted(positions):
        if ranges and position == ranges[-1][-1] + 1:
            ranges[-1].append(position)
        else:
            ranges.append([position])
    return ", ".join(f"#{r[0]}" if len(r) == 1 else f"#{r[0]}-{r[-1]}" for r in ranges)


def _unlike(plan: Plan, support: TrainingSupport) -> Iterator[str]:
    """Yield platforms whose local executions were much smaller."""
    for platform in support.platforms_exceeded(plan):
        rows = plan.workflow.source_rows
        yield (
            f"careful: {platform_label(platform)} ran jobs of up to "
            f"{support.most(platform, ROWS):,.0f} source rows here, this one has {rows:,.0f}; try "
            "it before you rely on it"
        )


def _size(advice: Advice) -> Iterator[str]:
    """Yield the cost of the fastest size."""
    best = advice.best
    fastest = min(advice.sizes, key=lambda each: each.seconds)
    if fastest.seconds < best.seconds:
        yield (
            f"{size_label(fastest.cluster)} would take {duration_text(fastest.seconds)}, "
            f"{1 - fastest.seconds / best.seconds:.0%} less, for "
            f"{fastest.core_seconds / best.core_seconds:.1f} times the core-seconds"
        )


def _groups(advice: Advice) -> Iterator[str]:
    """Yield the time that each group of the choice saves on its platform."""
    choice = advice.choice
    for group in platform_groups(choice.plan):
        moves = [each for each in advice.moves if each.operators == group]
        best = min(moves, key=lambda each: each.plan.seconds, default=None)
        if best is None or not best.plan.seconds > choice.seconds:
            continue
        here = platform_label(choice.plan.platforms[group[0]])
        yield (
            f"{_operators_text(choice.plan.workflow, group)} on {here}: "
            f"{duration_text(choice.seconds)} in all instead of "
            f"{duration_text(best.plan.seconds)} with {platform_label(best.to)} there"
        )


def _transfers(advice: Advice) -> Iterator[str]:
    """Yield transfers between platforms, and the time that they save."""
    plan, costs = advice.choice.plan, advice.costs
    rows: dict[tuple[Platform, Platform], list[int]] = {}
    for row, (parent, child) in enumerate(plan.workflow.edges):
        ends = plan.platforms[parent], plan.platforms[child]
        if ends[0] is not ends[1]:
            rows.setdefault(ends, []).append(row)
    for (source, target), over in rows.items():
        columns = costs.platforms.index(source), costs.platforms.index(target)
        seconds = float(costs.transfer_seconds[over, columns[0], columns[1]].sum())
        ends_of = [plan.workflow.edges[row] for row in over]
        flows = {parent: plan.workflow.operators[parent].output_bytes for parent, _ in ends_of}
        saved = _saved(advice, {child for _, child in ends_of}, source)
        yield (
            f"moving {size_text(sum(flows.values()))} from {platform_label(source)} to "
            f"{platform_label(target)} costs about {duration_text(seconds)} by the additive costs"
            + (f", and saves {duration_text(saved)} in all" if saved > 0 else "")
        )


def _saved(advice: Advice, readers: set[int], source: Platform) -> float:
    """Return the seconds saved by moving the readers of the rows away from `source`.

    0 where several groups read them, or they may not run there.
    """
    return max(
        (
            each.plan.seconds - advice.choice.seconds
            for each in advice.moves
            if each.to is source and readers <= set(each.operators)
        ),
        default=0.0,
    )


def _memory(advice: Advice) -> Iterator[str]:
    """Yield each platform that a memory cap excludes."""
    workflow, platforms = advice.job.workflow, advice.constraints.platforms
    caps = advice.constraints.memory_caps(advice.best.cluster)
    needed = memory_needed(workflow, platforms)
    for column, platform in enumerate(platforms):
        cap = caps.get(platform, np.inf)
        too_large = np.flatnonzero(needed[:, column] > cap).tolist()
        able = [each for each in too_large if advice.job.can_run(each, platform)]
        if able:
            most = max(able, key=lambda each: float(needed[each, column]))
            name = platform_label(platform)
            yield (
                f"memory: {name} would need about {size_text(needed[most, column])} of "
                f"{size_text(cap)} for {_operators_text(workflow, (most,))} "
                f"(--memory {name}=... if it has more)"
            )


def _starts(advice: Advice) -> Iterator[str]:
    """Yield platforms whose start alone would take as long as the choice, or longer."""
    choice, costs = advice.choice, advice.costs
    slow = {
        platform_label(platform): duration_text(seconds)
        for platform, seconds in zip(costs.platforms, costs.startup_seconds.tolist(), strict=True)
        if platform not in choice.plan.platforms and seconds >= choice.seconds
    }
    if slow:
        times = ", ".join(f"{name} {seconds}" for name, seconds in slow.items())
        yield (
            f"starting would take longer than the choice in all: {times} "
            f"(--warm {','.join(slow)} where running already)"
        )


def _operators_text(workflow: Workflow, positions: Sequence[int]) -> str:
    if len(positions) == len(workflow.operators):
        return "everything"
    if len(positions) > _MOST_NAMED:
        return f"{len(positions)} operators ({numbers_text(positions)})"
    return ", ".join(
        f"#{position} {words_of(workflow.operators[position].kind)}" for position in positions
    )


_MOST_LABELLED = 60  # beyond so many operators they are dots without words
_ROW_INCHES = 0.45


def draw_advice(path: Path, advice: Advice) -> None:
    """Draw the plan, its rivals and the sizes.

    Args:
        path: `.png` or `.html`; a file that is there is replaced.
        advice: to be drawn.

    Raises:
        InvalidInputError: neither a PNG nor an HTML file.
        StorageError: the file cannot be written.
    """
    places = _places(advice.job.workflow)
    depth, bars = 1 + max(y for _, y in places), len(advice.rivals) + len(advice.sizes) + 3
    closer = 1 if len(places) <= _MOST_LABELLED else 3
    inches = _ROW_INCHES * max(depth / closer, bars)
    with chart(width=11, height=min(40.0, 1.5 + inches)) as (figure, axes):
        axes.remove()
        plans, sizes = 1 + len(advice.rivals), len(advice.sizes)
        grid = figure.add_gridspec(2, 2, width_ratios=(5, 6), height_ratios=(plans + 1, sizes + 1))
        _draw_plan(figure.add_subplot(grid[:, 0]), advice, places)
        by_plan: list[tuple[str, Alternative]] = [("chosen", advice.choice)]
        by_plan += [(platforms_text(each.plan, advice.choice.plan), each) for each in advice.rivals]
        above = figure.add_subplot(grid[0, 1])
        _draw_bars(above, by_plan, f"plans, {size_label(advice.best.cluster)}", advice)
        marks = {advice.best.cluster: ", chosen"}
        by_size = [
            (size_label(each.cluster) + marks.get(each.cluster, ""), each.choice)
            for each in advice.sizes
        ]
        below = figure.add_subplot(grid[1, 1])
        _draw_bars(below, by_size, "sizes, each with its best plan", advice)
        write_chart(path, figure, "Where to run it")


def colour_of(platform: Platform) -> str:
    """Return the platform's colour, the same in every picture."""
    return COLOURS[int(platform) % len(COLOURS)]


def _places(workflow: Workflow) -> list[tuple[float, float]]:
    """Return each operator's place: sources at the top, others below their inputs."""
    depth = [0] * len(workflow.operators)
    across = [0.0] * len(workflow.operators)
    taken: dict[int, int] = {}
    for position in topological_order(workflow):
        inputs = workflow.operators[position].inputs
        depth[position] = 1 + max((depth[parent] for parent in inputs), default=-1)
        across[position] = taken.get(depth[position], 0)
        taken[depth[position]] = taken.get(depth[position], 0) + 1
    widest = max(taken.values())
    return [
        (column + (widest - taken[row]) / 2, float(row))
        for column, row in zip(across, depth, strict=True)
    ]


def _draw_plan(axes: "Axes", advice: Advice, places: list[tuple[float, float]]) -> None:
    plan = advice.choice.plan
    for parent, child in plan.workflow.edges:
        (left, top), (right, bottom) = places[parent], places[child]
        moves = plan.platforms[parent] is not plan.platforms[child]
        line, colour = ("--", INK) if moves else ("-", FAINT)
        bend = 0.25 if bottom - top > 1 else 0.0  # around the text between them
        look = {"arrowstyle": "-", "linestyle": line, "color": colour}
        look["connectionstyle"] = f"arc3,rad={bend}"
        axes.annotate("", (right, bottom), (left, top), arrowprops=look, zorder=1)
    named = len(places) <= _MOST_LABELLED
    for position, (x, y) in enumerate(places):
        kind = words_of(plan.workflow.operators[position].kind)
        colour = colour_of(plan.platforms[position])
        box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "none"}
        if not named:
            axes.scatter([x], [y], color=colour, s=30, zorder=2)
            continue
        words: dict[str, Any] = {"color": "white", "ha": "center", "va": "center", "fontsize": 7}
        axes.text(x, y, f"#{position} {kind}", bbox=box, **words)
    for platform in sorted(set(plan.platforms)):
        axes.scatter([], [], color=colour_of(platform), marker="s", label=platform_label(platform))
    axes.plot([x for x, _ in places], [y for _, y in places], linestyle="none")
    axes.margins(0.2, 0.08)
    axes.invert_yaxis()
    axes.set_axis_off()
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, fontsize=8)


def _draw_bars(
    axes: "Axes", bars: Sequence[tuple[str, Alternative]], title: str, advice: Advice
) -> None:
    """Medians as bars and intervals as whiskers, start-ups included."""
    across, predictions = range(len(bars)), [each.prediction for _, each in bars]
    middle = [each.seconds for _, each in bars]
    ends = [
        [each.median_seconds - each.lower_seconds for each in predictions],
        [each.upper_seconds - each.median_seconds for each in predictions],
    ]
    used = [each.plan.platforms for _, each in bars]  # a mixed plan has its main platform's colour
    colours = [colour_of(max(sorted(set(each)), key=each.count)) for each in used]
    axes.barh(across, middle, xerr=ends, color=colours, ecolor=INK, height=0.6, capsize=2)
    deadline = advice.best.deadline_seconds
    if deadline is not None:
        axes.axvline(deadline, color=INK, linestyle="--", linewidth=1)
        axes.annotate("deadline", (deadline, -0.5), fontsize=7, color=FAINT)
    axes.set_yticks(list(across), [name for name, _ in bars], fontsize=7)
    log_lengths(axes, duration_text)
    axes.tick_params(axis="x", labelsize=7)
    axes.invert_yaxis()
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=9, color=FAINT, loc="left")
