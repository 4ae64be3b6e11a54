"""Advice in words: why these platforms, what it costs to move, and what was left out.

Only what follows from the figures of the advice is said: run times are predictions of
complete plans, start-ups public constants, bytes those of the workflow; what a transfer
costs is the additive head's estimate and called so.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from fedperf_client.advice.advice import Advice, Move, groups_of
from fedperf_client.optimizer.constraints import memory_needed
from fedperf_client.platforms.engine import ENGINES
from fedperf_client.platforms.support import installed_platforms
from fedperf_client.prediction.ensemble.support import Reach
from fedperf_client.text.durations import duration_text
from fedperf_client.text.numbers import counted
from fedperf_client.text.operator_tree import size_text, words_of
from fedperf_shared.execution import ClusterConfig
from fedperf_shared.workflow.graph import Plan, Workflow
from fedperf_shared.workflow.vocabulary import Platform

_MOST_NAMED = 3


def reasons_of(advice: Advice, reach: Reach, *, all_platforms: bool) -> list[str]:
    """What speaks for the choice, and what against relying on it, one sentence each.

    Args:
        advice: what is to be explained.
        reach: how large the jobs were that ran on each platform.
        all_platforms: whether every platform was wished for that is here; then those that
            are not are named.
    """
    found = [
        *_unlike(advice.choice.plan, reach),
        *_size(advice),
        *_groups(advice),
        *_transfers(advice),
        *_memory(advice),
        *_starts(advice),
    ]
    if all_platforms:
        found += _not_installed(advice)
    return found


def platforms_text(plan: Plan, chosen: Plan | None = None) -> str:
    """The platforms of a plan for people; of a mixed one what differs from `chosen`."""
    used = sorted(set(plan.platforms))
    if len(used) == 1:
        return name_of(used[0])
    before = [None] * len(plan.platforms) if chosen is None else chosen.platforms
    differs = [place for place, each in enumerate(plan.platforms) if each is not before[place]]
    parts = [
        (name_of(each), numbers_text([place for place in differs if plan.platforms[place] is each]))
        for each in used
    ]
    if chosen is None:
        return ", ".join(f"{name} ({numbers})" for name, numbers in parts)
    return "but " + ", ".join(f"{numbers} on {name}" for name, numbers in parts if numbers)


def name_of(platform: Platform) -> str:
    """A platform for people."""
    return platform.name.lower()


def size_of(cluster: ClusterConfig) -> str:
    """A size of cluster for people."""
    cores = counted(cluster.cores, "core")
    return cores if cluster.nodes == 1 else f"{cores} on {cluster.nodes} nodes"


def numbers_text(positions: Sequence[int]) -> str:
    """Operators by number, neighbours as a range."""
    ranges: list[list[int]] = []
    for position in sorted(positions):
        if ranges and position == ranges[-1][-1] + 1:
            ranges[-1].append(position)
        else:
            ranges.append([position])
    return ", ".join(f"#{r[0]}" if len(r) == 1 else f"#{r[0]}-{r[-1]}" for r in ranges)


def _unlike(plan: Plan, reach: Reach) -> Iterator[str]:
    """What no own execution speaks for, although its platform ran."""
    for platform in reach.beyond(plan):
        asked = plan.workflow.source_rows
        yield (
            f"careful: {name_of(platform)} ran jobs of up to {reach.rows[platform]:,.0f} source "
            f"rows here, this one has {asked:,.0f}; try it before you rely on it"
        )


def _size(advice: Advice) -> Iterator[str]:
    """What the fastest size would cost."""
    best = advice.best
    fastest = min(advice.sizes, key=lambda each: each.seconds)
    if fastest.seconds < best.seconds:
        yield (
            f"{size_of(fastest.cluster)} would take {duration_text(fastest.seconds)}, "
            f"{1 - fastest.seconds / best.seconds:.0%} less, for "
            f"{fastest.core_seconds / best.core_seconds:.1f} times the core-seconds"
        )


def _groups(advice: Advice) -> Iterator[str]:
    """What each group of the choice is worth where it is."""
    choice = advice.choice
    for group in groups_of(choice.plan):
        best = _best_move(advice, group)
        if best is None or not best.plan.seconds > choice.seconds:
            continue
        here = name_of(choice.plan.platforms[group[0]])
        yield (
            f"{_operators_text(choice.plan.workflow, group)} on {here}: "
            f"{duration_text(choice.seconds)} in all instead of "
            f"{duration_text(best.plan.seconds)} with {name_of(best.to)} there"
        )


def _best_move(advice: Advice, group: tuple[int, ...]) -> Move | None:
    moves = [each for each in advice.moves if each.operators == group]
    return min(moves, key=lambda each: each.plan.seconds, default=None)


def _transfers(advice: Advice) -> Iterator[str]:
    """What flows between platforms, and what that saves."""
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
            f"moving {size_text(sum(flows.values()))} from {name_of(source)} to "
            f"{name_of(target)} costs about {duration_text(seconds)} by the additive costs"
            + (f", and saves {duration_text(saved)} in all" if saved > 0 else "")
        )


def _saved(advice: Advice, readers: set[int], source: Platform) -> float:
    """Seconds that the job would take longer if those who read the rows had stayed there.

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
    """Where a memory cap keeps a platform away."""
    workflow, platforms = advice.job.workflow, advice.wishes.platforms
    caps = advice.wishes.memory_caps(advice.best.cluster)
    needed = memory_needed(workflow, platforms)
    for column, platform in enumerate(platforms):
        cap = caps.get(platform, np.inf)
        too_large = np.flatnonzero(needed[:, column] > cap).tolist()
        able = [each for each in too_large if advice.job.can_run(each, platform)]
        if able:
            most = max(able, key=lambda each: float(needed[each, column]))
            yield (
                f"memory: {name_of(platform)} would need about "
                f"{size_text(needed[most, column])} of {size_text(cap)} for "
                f"{_operators_text(workflow, (most,))} (--memory {name_of(platform)}=... if it "
                "has more)"
            )


def _starts(advice: Advice) -> Iterator[str]:
    """Platforms whose start alone would take as long as the choice, or longer."""
    choice, costs = advice.choice, advice.costs
    slow = {
        name_of(platform): duration_text(seconds)
        for platform, seconds in zip(costs.platforms, costs.startup_seconds.tolist(), strict=True)
        if platform not in choice.plan.platforms and seconds >= choice.seconds
    }
    if slow:
        times = ", ".join(f"{name} {seconds}" for name, seconds in slow.items())
        yield (
            f"starting would take longer than the choice in all: {times} "
            f"(--warm {','.join(slow)} where running already)"
        )


def _not_installed(advice: Advice) -> Iterator[str]:
    here = {*installed_platforms(), *advice.wishes.platforms}
    missing = [name_of(each) for each in ENGINES if each not in here]
    if missing:
        yield f"{', '.join(missing)} left out: not installed"


def _operators_text(workflow: Workflow, positions: Sequence[int]) -> str:
    if len(positions) == len(workflow.operators):
        return "everything"
    if len(positions) > _MOST_NAMED:
        return f"{len(positions)} operators ({numbers_text(positions)})"
    return ", ".join(
        f"#{position} {words_of(workflow.operators[position].kind)}" for position in positions
    )
