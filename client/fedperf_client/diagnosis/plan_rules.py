"""Rules about a query's plan: work that is repeated, files, and the choice of a join.

A part of a plan is a node with all below it. Two parts are equal if their descriptions are, without
the numbers that Spark gives to every occurrence, and their counted rows are. Parts with leaves that
do not tell what they hold (local tables, RDDs, cached tables) are equal to none. A part ran in the
stages that changed its counters.

- Repeated work: equal parts of one query, or of several queries of an application, that all ran.
  Keeping the result can save their stages, except for the shortest occurrence.
- Small files: many files below the size that Spark itself counts for opening one. Fewer files can
  save the listing or committing of files, and the stage's time as far as there were more than the
  bytes need.
- A join that shuffles and sorts both sides, though one is below the size up to which Spark sends a
  table to all executors. Sending it can save the time of the stages that sort and join, and of
  writing the other side. What is left to do after the join makes up for what no log separates.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from fedperf_client.diagnosis.job_facts import JobFacts, JobFinding, Part, Symptom, span_of
from fedperf_client.sources.spark.fields import MIB
from fedperf_client.sources.spark.plan import PlanNode
from fedperf_client.sources.spark.query import StageAttempt
from fedperf_client.sources.spark.settings import DEFAULT_BROADCAST_BYTES, DEFAULT_FILE_BYTES
from fedperf_shared.runtime.quantities import duration_text, size_text
from fedperf_shared.workflow.vocabulary import OperatorKind


def duplicates(job: JobFacts) -> Iterator[JobFinding]:
    """Find the most expensive part of a plan that ran more than once."""
    copies = defaultdict[tuple[int, int | None], list[Part]](list)
    for part in job.parts:
        if all(part.counters.isdisjoint(each.counters) for each in copies[part.key]):
            copies[part.key].append(part)
    repeated = [each for each in copies.values() if len(each) > 1]
    if not repeated:
        return
    shares = [(_saved(each), each[0].operators, each) for each in repeated]
    seconds, operators, parts = max(shares, key=lambda each: each[:2])
    stages = sorted({stage.number for part in parts for stage in part.stages})
    conf: tuple[str, ...] = ()
    if not job.settings.is_on("spark.sql.exchange.reuse", default=True):
        conf = ("spark.sql.exchange.reuse=true",)
    yield JobFinding(
        Symptom.REPEATED_WORK,
        str(job.query),
        seconds,
        f"{operators} equal operators of its plan ran {len(parts)} times, in "
        f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}",
        "let Spark use an exchange twice"
        if conf
        else "compute the common part once: keep it (cache, or a table), or read all that is "
        "needed of it at once",
        conf,
        {"operators": operators, "occurrences": len(parts), "stages": tuple(map(str, stages))},
    )


def _saved(parts: list[Part]) -> float:
    """Return the seconds of all occurrences but the shortest; those of one stage share it."""
    in_stage = defaultdict[int, int](int)
    for part in parts:
        for stage in part.stages:
            in_stage[id(stage)] += 1
    times = [sum(each.span / in_stage[id(each)] for each in part.stages) / 1000 for part in parts]
    return sum(times) - min(times)


# Below these bytes Spark counts more for opening a file than for reading it: 4 MiB, the default of
# spark.sql.files.openCostInBytes.
SMALL_BYTES = 4 * MIB
MANY_FILES = 100

_READ = ("number of files read", "size of files read", "metadata time")
_WRITTEN = ("number of written files", "written output", "job commit time")


def small_files(job: JobFacts) -> Iterator[JobFinding]:
    """Find scans and writes of many small files."""
    for node in job.query.plan.nodes:
        for names, is_read in ((_READ, True), (_WRITTEN, False)):
            files, size, beside = (_counted(job, node, name) for name in names)
            if files >= MANY_FILES and size < SMALL_BYTES * files:
                stages = job.stages_of(node.counters) if is_read else job.stages[-1:]
                yield _small_files(job, stages, (files, size, beside), is_read=is_read)


def _small_files(
    job: JobFacts, stages: tuple[StageAttempt, ...], counted: tuple[int, int, int], *, is_read: bool
) -> JobFinding:
    files, size, beside = counted
    enough = max(1, -(-size // DEFAULT_FILE_BYTES))
    needed = min(1.0, max(enough, min((each.slots for each in stages), default=1)) / files)
    span = span_of(stages)
    what, done = ("listing", "read") if is_read else ("committing", "written")
    advice = (
        "write larger files, or compact them"
        if is_read
        else "bring the rows of a file together first (repartition by the columns of partitionBy)"
    )
    return JobFinding(
        Symptom.SMALL_FILES,
        ", ".join(map(str, stages[:1])) or str(job.query),
        beside / 1000 + span * (1 - needed),
        f"{files:,} files of {size_text(size / files)} each were {done}, {size_text(size)} in all; "
        f"{what} them took {duration_text(beside / 1000)}, their stage {duration_text(span)}",
        f"{advice}: {enough} file{'s' * (enough > 1)} of {size_text(DEFAULT_FILE_BYTES)} hold it",
        (),
        {
            "files": files,
            "bytes": size,
            "is_read": float(is_read),
            "beside_seconds": beside / 1000,
            "stage_seconds": span,
        },
    )


def _counted(job: JobFacts, node: PlanNode, name: str) -> int:
    return max(0, job.query.counters.get(node.named.get(name, -1), 0))


MUCH_LARGER = 10  # times; below, sending the smaller side may cost as much

_SIZE = "data size"


def sorted_joins(job: JobFacts) -> Iterator[JobFinding]:
    """Find the sort-merge join of a small table that costs most."""
    limit = job.settings.size(
        "spark.sql.autoBroadcastJoinThreshold", DEFAULT_BROADCAST_BYTES, unit=1
    )
    limit = max(limit, DEFAULT_BROADCAST_BYTES)
    findings = [each for node in job.query.plan.nodes for each in _sorted_join(job, node, limit)]
    if findings:
        yield max(findings, key=lambda each: each.seconds)


def _sorted_join(job: JobFacts, node: PlanNode, limit: int) -> Iterator[JobFinding]:
    sides = [_exchanged(job, side) for side in node.children]
    if not node.may_be_sent or len(sides) != 2 or None in sides:  # noqa: PLR2004
        return
    (left, right) = sizes = [0 if side is None else _counted(job, side, _SIZE) for side in sides]
    small = min(node.may_be_sent, key=lambda side: sizes[side])
    large = max(left, right)
    if not 0 < sizes[small] <= limit or large < MUCH_LARGER * sizes[small]:
        return
    other = sides[1 - small]
    writing = () if other is None else job.stages_of({other.named[_SIZE]})
    joining = job.stages_of(node.counters)
    seconds = span_of(joining) + sum(
        each.share_of_span(each.totals.shuffle_write) / 1000 for each in writing
    )
    conf: tuple[str, ...] = ()
    name = "spark.sql.autoBroadcastJoinThreshold"
    is_off = job.settings.properties.get(name, "").startswith("-")
    if is_off or job.settings.size(name, limit, unit=1) < sizes[small]:
        conf = (f"{name}={limit}",)
    yield JobFinding(
        Symptom.SORTED_JOIN,
        ", ".join(map(str, joining[:1])) or str(job.query),
        seconds,
        f"a table of {size_text(sizes[small])} and one of {size_text(large)} were shuffled and "
        f"sorted to join them; Spark sends tables up to {size_text(limit)} instead by default",
        "send the small table to all executors"
        + ("" if conf else ": a broadcast hint, or statistics of the table, from which Spark sees "
           "how small it is"),
        conf,
        {"small_bytes": sizes[small], "large_bytes": large},
    )  # fmt: skip


def _exchanged(job: JobFacts, position: int) -> PlanNode | None:
    """Return the exchange that a side of a join reads, if only sorting is between them."""
    nodes = job.query.plan.nodes
    node = nodes[position]
    while node.kind in (None, OperatorKind.SORT) or node.reads_exchange:
        if len(node.children) != 1:
            return None
        node = nodes[node.children[0]]
    return node if _SIZE in node.named and not node.is_broadcast else None


MAX_PARTS = 20_000  # of an application that are compared with those of later queries


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """How often a part of a plan ran, in how many queries."""

    number: int
    seconds: float  # of all
    least: float  # of the shortest
    operators: int
    queries: tuple[str, ...]  # some of them

    @property
    def saved(self) -> float:
        return self.seconds - self.least


MOST_QUERIES = 5  # that a finding names


class RepeatedParts:
    """The parts of plans that several queries of an application ran."""

    def __init__(self) -> None:
        self._occurrences: dict[tuple[int, int | None], _Occurrences] = {}

    def add(self, job: JobFacts) -> None:
        """Add the parts of a query that has ended."""
        own: dict[tuple[int, int | None], tuple[float, int]] = {}
        for part in job.parts:
            own.setdefault(part.key, (span_of(part.stages), part.operators))
        for key, (seconds, operators) in own.items():
            before = self._occurrences.get(key)
            if before is not None:
                self._occurrences[key] = _Occurrences(
                    before.number + 1,
                    before.seconds + seconds,
                    min(before.least, seconds),
                    operators,
                    (*before.queries, str(job.query))[:MOST_QUERIES],
                )
            elif len(self._occurrences) < MAX_PARTS:
                first = _Occurrences(1, seconds, seconds, operators, (str(job.query),))
                self._occurrences[key] = first

    def findings(self) -> Iterator[JobFinding]:
        """Yield a finding about the part with the largest potential saving, if one ran twice."""
        repeated = [each for each in self._occurrences.values() if each.number > 1]
        if not repeated:
            return
        most = max(repeated, key=lambda each: (each.saved, each.operators))
        more = most.number - len(most.queries)
        names = ", ".join(most.queries) + (f" and {more} more" if more else "")
        yield JobFinding(
            Symptom.REPEATED_WORK,
            names,
            most.saved,
            f"{most.operators} equal operators ran in {most.number} queries, "
            f"{duration_text(most.seconds)} in all, the shortest time {duration_text(most.least)}",
            "keep what they compute for the later queries (cache, or a table), if what they read "
            "has not changed",
            (),
            {
                "queries": most.number,
                "operators": most.operators,
                "seconds": most.seconds,
                "shortest_seconds": most.least,
            },
        )


PLAN_RULES = (duplicates, small_files, sorted_joins)
