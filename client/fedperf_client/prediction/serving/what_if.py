"""Answers about one plan: its time on each cluster, and whether a deadline holds.

Where no deadline is promised the question lies so far beyond all that was measured that a chance is
a guess. An interval says how far an answer may be off if run time goes on as it did. Far beyond the
most cores or rows that anybody measured it need not: speed-ups fade, memory ends, disks fill.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta

from fedperf_client.formatting.durations import UNITS, duration_text
from fedperf_client.formatting.facts import Fact, for_people
from fedperf_client.formatting.numbers import counted
from fedperf_client.prediction.ensemble.predictor import PersonalizedEnsemble
from fedperf_client.prediction.ensemble.training_data import CORES, ROWS, Range, TrainingSupport
from fedperf_client.prediction.ensemble.weighting import LEVEL_STEP
from fedperf_client.prediction.prediction import (
    SURE,
    UPPER_LEVEL,
    EvidenceSource,
    Prediction,
    QueryRegime,
    probability_faster,
)
from fedperf_client.prediction.serving.reconfiguration import (
    GrownPlan,
    InputSize,
    ReconfiguredPlan,
    grown_estimate,
    grown_to,
    moved,
)
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.execution import ClusterConfig, KnownJob, PlanOnCluster
from fedperf_shared.model.pretrained_intervals import shipped_widths
from fedperf_shared.workflow.graph import Plan
from fedperf_shared.workflow.vocabulary import MAX_RUNTIME_SECONDS, Platform

MAX_CORES = 1_000_000
MOST_ASKED = 100

HOLDS = UPPER_LEVEL
"""Chance from which on a deadline is said to hold."""

WITH_ITS_PARTITIONS = "with its partitions"
"""Said of an answer that keeps the number of partitions, as nobody knows what it would be."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhd])")


@dataclass(frozen=True, slots=True)
class ClusterPrediction:
    """One row of the table.

    Attributes:
        cluster: where.
        estimate: how long.
        chance: to be done within the deadline; None where none was asked about.
        keeps_partitions: the plan has partitions of which it is not known whether they would
            be as many there.
        no_promise: why no deadline is said to hold; None where one may.
        grown: the plan at the size of its input that was asked about; None where none was.
    """

    cluster: ClusterConfig
    estimate: Prediction
    chance: float | None
    keeps_partitions: bool = False
    no_promise: str | None = None
    grown: GrownPlan | None = None

    @property
    def cores(self) -> int:
        """Over all nodes."""
        return self.cluster.cores

    @property
    def holds(self) -> bool | None:
        """Whether the deadline holds with a chance of 90 %."""
        return None if self.chance is None else self.no_promise is None and self.chance >= HOLDS

    @property
    def facts(self) -> list[Fact]:
        """The row; seconds and shares."""
        estimate, grown = self.estimate, self.grown
        found = [
            *([] if grown is None else [for_people("input", grown.words)]),
            Fact("nodes", self.cluster.nodes, "nodes"),
            Fact("cores", self.cores, "cores"),
            *time_facts(estimate),
            Fact("regime", self._asks or estimate.regime.value, "regime", self._question()),
            Fact("extrapolating", estimate.extrapolating),
            Fact("fixed_partitions", self.keeps_partitions),
            Fact("evidence", estimate.evidence.source.value, "evidence", estimate.evidence.text),
            Fact("observed_runs", estimate.evidence.runs),
            Fact("no_promise", self.no_promise),
        ]
        if grown is not None:
            found += [
                Fact("input_times", grown.factor),
                Fact("input_rows", grown.rows),
                Fact("input_bytes", grown.source_bytes),
            ]
        if self.chance is not None:
            chance = "-" if self.no_promise else format_probability(self.chance)
            found += deadline_facts(self.chance, chance, self.holds, self.no_promise)
        return found

    @property
    def _asks(self) -> str | None:
        """What it asks, for people and programs; None inside of what was seen."""
        if self.estimate.regime is not QueryRegime.SEEN:
            return self.estimate.regime.value
        return "unlike own jobs" if self.estimate.extrapolating else None

    def _question(self) -> str:
        words = self._asks or "inside"
        if self.keeps_partitions:
            words += f", {WITH_ITS_PARTITIONS}"
        return f"{words}, extrapolating" if self.estimate.extrapolating else words


def time_facts(prediction: Prediction) -> list[Fact]:
    """A predicted time and how sure it is."""
    lower, upper = map(duration_text, (prediction.lower_seconds, prediction.upper_seconds))
    return [
        Fact("p50_seconds", prediction.median_seconds, "P50"),
        Fact("p90_seconds", prediction.p90_seconds, "P90"),
        Fact("lower_seconds", prediction.lower_seconds),
        Fact("upper_seconds", prediction.upper_seconds),
        Fact(
            "confidence_level",
            prediction.confidence_level,
            f"{prediction.confidence_level:.0%} interval",
            f"{lower} to {upper}",
        ),
    ]


def deadline_facts(
    chance: float, text: str, holds: bool | None, no_promise: str | None
) -> list[Fact]:
    """What is said of a deadline that was asked about; `text` is the chance for people."""
    kept = "holds" if holds else "at risk"
    return [
        for_people("deadline", kept if no_promise is None else "no promise"),
        Fact("probability", chance, "probability", text),
        Fact("meets_deadline", holds),
    ]


def answers(
    predictor: PersonalizedEnsemble,
    plan: Plan,
    cluster: ClusterConfig,
    sizes: Sequence[ClusterConfig],
    *,
    job: KnownJob | None = None,
    load: float = 0.0,
    deadline_seconds: float | None = None,
) -> list[ClusterPrediction]:
    """How long `plan`, known on `cluster`, takes on each of `sizes`.

    Args:
        predictor: of the home.
        plan: that is asked about.
        cluster: where it is known, or would run.
        sizes: of the cluster.
        job: of the plan; None where no own execution of it is named.
        load: half width that other load adds to what rests on own runs, log seconds.
        deadline_seconds: that is asked about.
    """
    asked = [moved(plan, cluster, each, job) for each in sizes]
    estimates = predictor.predict([each.question for each in asked])
    return [
        _answer(predictor, each, estimate, cluster.cores, load, deadline_seconds)
        for each, estimate in zip(asked, estimates, strict=True)
    ]


def grown_answers(
    predictor: PersonalizedEnsemble,
    plan: Plan,
    cluster: ClusterConfig,
    sizes: Sequence[ClusterConfig],
    at: Sequence[InputSize],
    *,
    job: KnownJob | None = None,
    ran: Sequence[PlanOnCluster] = (),
    load: float = 0.0,
    deadline_seconds: float | None = None,
) -> list[ClusterPrediction]:
    """How long `plan` takes at each of the input sizes `at`, on each of `sizes`.

    The rest is as for `answers`; `ran` are own runs of the job, at any sizes.

    Raises:
        InvalidValueError: a size cannot be asked about, see `grown_to`.
    """
    rows = plan.workflow.source_rows
    known = [(1.0, PlanOnCluster(plan, cluster, job))]
    for run in ran:
        other = run.plan.workflow.source_rows
        if rows > 0 and other > 0:
            known.append((other / rows, run))
    alone = job if job is not None and job.answers_alone else None
    found = []
    for grown in [grown_to(plan, each) for each in at]:
        for size in sizes:
            each = moved(grown.plan, cluster, size, alone)
            there = [(f, moved(one.plan, one.cluster, size, one.job).question) for f, one in known]
            estimate = grown_estimate(predictor, each.question, grown.factor, there)
            keeps = each.keeps_partitions or (grown.factor != 1 and _has_partitions(plan))
            one_answer = _answer(predictor, each, estimate, cluster.cores, load, deadline_seconds)
            found.append(replace(one_answer, grown=grown, keeps_partitions=keeps))
    return found


def _answer(
    predictor: PersonalizedEnsemble,
    asked: ReconfiguredPlan,
    estimate: Prediction,
    ran_on: int,
    load: float,
    deadline_seconds: float | None,
) -> ClusterPrediction:
    is_exact = estimate.evidence.source is EvidenceSource.OWN_RUNS and not estimate.extrapolating
    hull, runs = predictor.pool.support, estimate.evidence.runs
    if load > 0 and runs > 0:
        estimate = estimate.shifted(added=load)
    is_inside = runs == 0 and not estimate.extrapolating
    if is_inside and is_beyond_its_platforms(asked.question, hull):
        estimate = estimate.as_extrapolation().shifted(regime=QueryRegime.BEYOND_SCALES)
    return ClusterPrediction(
        asked.question.cluster,
        estimate,
        None if deadline_seconds is None else estimate.probability_within(deadline_seconds),
        asked.keeps_partitions,
        None if is_exact else no_promise(asked.question, hull, ran_on=ran_on if runs else 0),
    )


def _has_partitions(plan: Plan) -> bool:
    return any(each.partitions > 1 for each in plan.workflow.operators)


def by_input(found: Sequence[ClusterPrediction]) -> list[list[ClusterPrediction]]:
    """The answers, apart for each size of the input that was asked about."""
    parts: dict[float, list[ClusterPrediction]] = {}
    for each in found:
        parts.setdefault(1.0 if each.grown is None else each.grown.factor, []).append(each)
    return list(parts.values())


def smallest_meeting_deadline(found: Sequence[ClusterPrediction]) -> int | None:
    """The smallest number of cores asked about that keeps the deadline at every size of the input.

    None where none does.
    """
    late = {each.cores for each in found if not each.holds}
    return min((each.cores for each in found if each.cores not in late), default=None)


def enough(found: Sequence[ClusterPrediction]) -> tuple[ClusterPrediction, float] | None:
    """The smallest size that no larger one asked about is faster than, as far as can be told.

    Returns:
        Its answer and the highest chance that one of more cores is faster; None where every larger
        one is faster than those below, or none is larger.
    """
    for each in sorted(found, key=lambda each: each.cores):
        more = [other for other in found if other.cores > each.cores]
        chances = [probability_faster(other.estimate, each.estimate) for other in more]
        if chances and max(chances) < SURE:
            return each, max(chances)
    return None


def no_difference(found: Sequence[ClusterPrediction]) -> str | None:
    """From where on more cores make no difference that can be told, for people."""
    least = enough(found)
    if least is None:
        return None
    answer, chance = least
    many = counted(answer.cores, "core")
    said = (
        f"beyond {many} no difference of the usual time can be told: more are faster with a chance "
        f"of {format_probability(chance)}"
    )
    if answer.holds is False and any(each.holds for each in found):
        said += (
            f"; a deadline is about slow runs too, and with {many} the chance to keep it is "
            f"{format_probability(answer.chance or 0.0)}"
        )
    return said


def p90_discontinuity_note(found: Sequence[ClusterPrediction]) -> str | None:
    """Why P90 may jump where it ran, for people; None unless some sizes ran and others did not."""
    kinds = {each.estimate.evidence.source for each in found}
    if not kinds >= {EvidenceSource.OWN_RUNS, EvidenceSource.OTHER_RESOURCES}:
        return None
    ran = [each for each in found if each.estimate.evidence.source is EvidenceSource.OWN_RUNS]
    cores = ", ".join(str(each) for each in sorted({each.cores for each in ran}))
    return (
        f"P90 of {cores} cores is from own runs there, of other sizes carried over from them, so "
        "it may jump between the two"
    )


def verdict(found: Sequence[ClusterPrediction], deadline_seconds: float, *, of_nodes: bool) -> str:
    """Whether a deadline that was asked about holds, in a sentence for people.

    Args:
        found: at least one answer, small sizes first.
        deadline_seconds: that was asked about.
        of_nodes: whether nodes were asked about, and no cores.
    """

    def count_of(each: ClusterPrediction) -> int:
        return each.cluster.nodes if of_nodes else each.cores

    unit, words = "node" if of_nodes else "core", duration_text(deadline_seconds)
    held = [each for each in found if each.holds]
    if held:
        best = min(held, key=count_of)
        chance = format_probability(best.chance or 0.0)
        return f"fewest {unit}s that keep {words}: {count_of(best)}, with a chance of {chance}"
    promised = [each for each in found if each.no_promise is None]
    if not promised:
        return f"no deadline is promised: {found[0].no_promise}"
    best = max(promised, key=lambda each: each.chance or 0.0)
    many = f"{'is' if count_of(best) == 1 else 'are'} {counted(count_of(best), unit)}"
    return (
        f"no number of {unit}s asked about keeps {words} with a chance of 90 %; the best {many}, "
        f"{format_probability(best.chance or 0.0)}"
    )


def parse_cores(text: str, option: str = "--cores") -> list[int]:
    """Numbers of what `option` counts from words like `8,16,32`, ascending, each once.

    Raises:
        InvalidInputError: not such a list, or a number that no cluster has.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 7 for word in words):  # noqa: PLR2004
        raise InvalidInputError(
            f"{option} must be whole numbers from 1 on like 8,16,32, got {text!r}"
        )
    found = sorted({int(word) for word in words})
    if not (found[0] >= 1 and found[-1] <= MAX_CORES and len(found) <= MOST_ASKED):
        raise InvalidInputError(
            f"{option} must be up to {MOST_ASKED} numbers from 1 to {MAX_CORES}, got {text!r}"
        )
    return found


def parse_duration(text: str) -> float:
    """Seconds from words like `30ms`, `90s`, `20m`, `1.5h`.

    Raises:
        InvalidInputError: not a duration, or one that no execution has.
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else math.nan
    if not 0 < seconds <= MAX_RUNTIME_SECONDS:
        raise InvalidInputError(
            f"a deadline is a number with its unit, like 30ms, 90s, 20m or 1.5h, more than 0 and "
            f"at most {MAX_RUNTIME_SECONDS:g} seconds; got {text!r}"
        )
    return seconds


def seconds_until(text: str, now: datetime) -> float:
    """Seconds from `now` to the next time of day like `06:00`, in the time zone of `now`.

    Raises:
        InvalidInputError: no time of day.
    """
    try:
        at = time.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(f"--by is a time of day like 06:00, got {text!r}") from None
    due = datetime.combine(now.date(), at, at.tzinfo or now.tzinfo)
    if due <= now:
        due += timedelta(days=1)
    return (due - now).total_seconds()


def format_probability(chance: float) -> str:
    """A chance in whole percent, rounded down, never all nor nothing."""
    percent = int(100 * chance)
    return f"{min(percent, 99)}%" if percent >= 1 else "< 1%"


MOST_TIMES_CORES = 8.0
"""Times the most cores that were measured: farther a speed-up is a guess."""

MOST_TIMES_ROWS = 100.0
"""Times the most rows: own executions say nothing that far (`STRANGE_ROWS`)."""


def no_promise(question: PlanOnCluster, hull: TrainingSupport, *, ran_on: int = 0) -> str | None:
    """Why no deadline is promised, for people; None where one may be.

    Args:
        question: that is asked.
        hull: around own executions.
        ran_on: cores that own runs of the very job had; 0 where there are none.
    """
    platforms = sorted(set(question.plan.platforms))
    asked = (
        (float(question.cluster.cores), "cores", MOST_TIMES_CORES, CORES, float(ran_on)),
        (question.plan.workflow.source_rows, "rows", MOST_TIMES_ROWS, ROWS, 0.0),
    )
    for value, unit, times, at, own in asked:
        for platform in platforms:
            most = max(own, _most(platform, hull, at))
            if most == 0:
                if ran_on > 0:
                    continue
                return f"nothing was ever measured on {platform.name.lower()}"
            if value > times * most * (1 + _ROUNDING):
                where = platform.name.lower()
                return (
                    f"{value:,.0f} {unit} are {value / most:,.3g} times the {most:,.0f} that were "
                    f"measured on {where}"
                )
    return None


def is_beyond_its_platforms(question: PlanOnCluster, hull: TrainingSupport) -> bool:
    """Whether a platform of the plan never ran on so many, or so few, cores here.

    The hull of all own executions holds a small engine at the cores of a large one.
    """
    cores = math.log(question.cluster.cores)
    for platform in set(question.plan.platforms):
        seen = _seen(platform, hull)
        least = min((low[CORES] for low, _ in seen), default=cores)
        most = max((high[CORES] for _, high in seen), default=cores)
        if not least - LEVEL_STEP <= cores <= most + LEVEL_STEP:
            return True
    return False


_ROUNDING = 1e-9


def _most(platform: Platform, hull: TrainingSupport, at: int) -> float:
    """The most `CORES` or `ROWS` of own executions on a platform, or of the start's; 0 of none."""
    width, highest = shipped_widths()[platform], [high[at] for _, high in _seen(platform, hull)]
    if at == CORES:
        most, own = width.most_cores, map(math.exp, highest)
    else:
        most, own = width.most_rows, map(math.expm1, highest)
    return max(0.0, most if most < math.inf else 0.0, *own)


def _seen(platform: Platform, hull: TrainingSupport) -> list[Range]:
    """The ends of every kind of operator that ran on a platform."""
    return [ends for (_, where), ends in hull.ranges.items() if where is platform]
