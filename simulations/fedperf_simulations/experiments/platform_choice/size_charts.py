"""Charts like figures 6 to 9 of the GGFN paper: run time per platform over input size.

One per task of the paper: word count, PageRank, embeddings of words, credit analysis. Every
line is a plan that really ran at every size; a ring marks what a model that has never seen
the program chooses at that size.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.workloads.families import Family
from fedperf_simulations.corpus.comparisons import Case
from fedperf_simulations.experiments.platform_choice.tables import ModelAnswers
from fedperf_simulations.harness.charts import Line, lines_chart

TASKS = (Family.WORD_COUNT, Family.PAGERANK, Family.EMBEDDINGS, Family.CREDIT)
RING = "our choice"


def size_charts(series: Sequence[Case], said: ModelAnswers, out: Path) -> list[Path]:
    """Write an SVG per task whose series is there; the first program of each."""
    paths: list[Path] = []
    for family in TASKS:
        of_family = [case for case in series if case.family is family]
        if of_family:
            first = [case for case in of_family if case.workload == of_family[0].workload]
            path = out / f"sizes_{family.value}.svg"
            path.write_text(_chart(sorted(first, key=lambda case: case.rows), said))
            paths.append(path)
    return paths


def plan_name(plan: Assignment) -> str:
    """The platforms of a plan, the most frequent first."""
    return " + ".join(platform.name.lower() for platform, _ in Counter(plan).most_common())


def _chart(cases: Sequence[Case], said: ModelAnswers) -> str:
    measured: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for case in cases:
        for plan, seconds in case.seconds.items():
            if seconds < math.inf:
                measured[plan_name(plan)].append((case.rows, seconds))
    lines = [
        Line(name, [rows for rows, _ in points], [seconds for _, seconds in points])
        for name, points in measured.items()
    ]
    chosen = [(float(case.rows), _chosen_seconds(case, said)) for case in cases]
    rings = [(rows, seconds) for rows, seconds in chosen if seconds < math.inf]
    return lines_chart(
        lines,
        f"{cases[0].family.value.replace('_', ' ')}: rows of the largest source",
        "measured seconds",
        is_log=True,
        is_log_across=True,
        rings=(RING, rings),
    )


def _chosen_seconds(case: Case, said: ModelAnswers) -> float:
    plans = list(case.seconds)
    return case.seconds[plans[int(np.argmin(said.log_seconds[case.name]))]]
