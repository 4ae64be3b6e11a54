"""Names of Spark executions: the workload they belong to, and a display name for people.

The workload is the name of the application and the shape of the query. The name is stripped of
what changes between submissions: dates, numbers, ids. The shape is what the query computes,
however the optimizer planned it. Exchanges, sorts, projections and the order of a join's sides do
not count. The workload of a job without a query also has its call site.

The display name is the description of a query or job. Where Spark only describes the bridge that
called it, such as "count at NativeMethodAccessorImpl.java:0", the name lists what was read and
written: "count of orders.parquet, customers -> daily". It holds names of tables and topics and
the last parts of paths, without dates, partition values and the rest of an address.

All these texts stay local. Display names do not distinguish workloads.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedperf_client.sources.spark.plan import PhysicalPlan
from fedperf_shared.workflow.vocabulary import OperatorKind

LONGEST_NAME = 60
SHAPE_DIGITS = 12

_IDS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # UUIDs
    r"|(?=[0-9a-f]*\d)[0-9a-f]{8,}"  # hashes
    r"|\d+",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[\W_]+")
_DIRECTORIES = re.compile(r"\S*[/\\]")

_INTERACTIVE = re.compile(
    r"(?:databricks |spark |pyspark)shell|sparkr|sparksql::.*|livy-session-\d+|zeppelin.*|"
    r"thrift jdbc/odbc server",
    re.IGNORECASE,
)

_UNIMPORTANT = frozenset({OperatorKind.EXCHANGE, OperatorKind.SORT, OperatorKind.MAP})
# Names of kinds that count as the same; other kinds have their own name.
_NAMES = {
    OperatorKind.AGGREGATE: "group",
    OperatorKind.GLOBAL_AGGREGATE: "group",
    OperatorKind.DISTINCT: "group",
    OperatorKind.CROSS: "join",
}


def workload_of(application: str, shape: str, *, call_site: str = "") -> str:
    """Return the name of a workload of an application, by the shape of its plan.

    A job without a query has a call site as well, such as "count at /home/me/clean.py:13".
    """
    site = stripped(_DIRECTORIES.sub("", call_site))
    return f"{stripped(application) or 'spark'}/{site}{'-' if site else ''}{shape}"


def is_interactive(name: str) -> bool:
    """Return whether an application is a shell, whose name does not describe its jobs."""
    return _INTERACTIVE.fullmatch(name) is not None


def stripped(text: str) -> str:
    """Return a name without dates, numbers and ids."""
    plain = _SEPARATORS.sub("-", _IDS.sub("", text[: 10 * LONGEST_NAME].lower()))
    return plain.strip("-")[:LONGEST_NAME]


def shape_of(plan: PhysicalPlan) -> str:
    """Return hex digits that are equal for plans that compute the same."""
    shapes: list[tuple[str, ...]] = [()] * len(plan.nodes)
    for position in reversed(range(len(plan.nodes))):
        node = plan.nodes[position]
        below = sorted(each for child in node.children for each in shapes[child])
        if node.kind is None or node.kind in _UNIMPORTANT:
            shapes[position] = tuple(below)
            continue
        name = _NAMES.get(node.kind, node.kind.name.lower())
        inside = f"{name}({','.join(below)})"
        if name == "group" and len(below) == 1 and below[0].startswith(f"{name}("):
            inside = below[0]  # a partial grouping before the final one
        if len(inside) > 2 * SHAPE_DIGITS:
            inside = f"{name}({hashlib.sha256(inside.encode()).hexdigest()})"
        shapes[position] = (inside,)
    whole = ",".join(shapes[0]) if shapes else ""
    return hashlib.sha256(whole.encode()).hexdigest()[:SHAPE_DIGITS]


_Node = Mapping[str, object]

LONGEST_DISPLAY_NAME = 160

_MOST_NODES = 2_000
_MOST_NAMES = 3
_LONGEST_PART = 40
_LONGEST_TEXT = 4_000

_BRIDGE = re.compile(
    r"(?P<call>[^ ]{1,80}) at (?:<[^>]{0,80}>|command-\d{1,20}|PythonRDD\.scala|SerDeUtil\.scala"
    r"|(?:NativeMethodAccessorImpl|GeneratedMethodAccessor\d*|DirectMethodHandleAccessor|Method"
    r"|\w*Thread\w*|\w*Future\w*|AccessController|Executors)\.java)(?::\d{1,9})?"
)
_CALLS = {
    "showString": "show",
    "collectToPython": "collect",
    "toPandas": "collect",
    "getRowsToPython": "show",
    "runJob": "",
    "run": "",
    "invoke": "",
    **dict.fromkeys(("save", "saveAsTable", "insertInto", "saveAsTextFile"), "write"),
}
_TABLE = re.compile(r"(?:Scan [\w.$]+ |BatchScan (?:[a-zA-Z]+ )?)([\w`][\w.`$-]*)")
_PATH = re.compile(r"(?:Batch)?Scan [a-zA-Z]+ ([a-zA-Z][\w+.-]*:/\S*)")
_LOCATION = re.compile(r"\w*(?:\(\d+ paths\))? ?\[([^\]]*)(\]?)")
_JDBC = re.compile(r"JDBCRelation\((?:([\w.\"`$]+)\)|)")
_TOPICS = re.compile(r"Kafka.{0,400}?(?:Subscribe|SubscribePattern)\[([^\]]{1,400})\]", re.DOTALL)
_QUOTED = re.compile(r"(?:`[^`]{1,200}`\.){0,3}`[^`]{1,200}`")
_SINK = re.compile(
    r"(?:Execute )?(Insert|Create\w*AsSelect|Save|Append|Overwrite|Replace|Write)\w*"
)
_OPTION = re.compile(r"\b(?:(?:path|dbtable|topic|table) -> |table=)([^,()\s]+)")
_NO_PATH = re.compile(r"[\s\[\](){}'\";]")
_EXTENSION = re.compile(r"\.\w{1,8}$")

_NUMBERS = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d(?:[-_.:T]?\d){5,}")
_ODD = re.compile(r"[^\w.*~+-]+")
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*:/{0,3}")
_DEFAULTS = ("spark_catalog", "default")


def query_name(description: str, plan: object) -> str:
    """Return the description of a query, or what it reads and writes; see the module."""
    call = _call(description)
    if call is None:
        return description
    sources: dict[str, None] = {}
    sinks: dict[str, None] = {}
    for node in _nodes(plan):
        name, text = (_text(node, each) for each in ("nodeName", "simpleString"))
        if _SINK.match(name):
            sinks |= dict.fromkeys(_written(text))
        elif "Scan" in name:
            sources |= dict.fromkeys(_read(name, text, node.get("metadata")))
    return _name(call, list(sources), list(sinks)) or description


def job_name(call_site: str, stages: Iterable[_Node]) -> str:
    """Return the call site of a job without a query, or what it reads; see the module."""
    call = _call(call_site)
    if call is None:
        return call_site
    sources: dict[str, None] = {}
    for stage in stages:
        rdds = stage.get("RDD Info")
        for rdd in rdds[:_MOST_NODES] if isinstance(rdds, list) else ():
            name = _text(rdd, "Name") if isinstance(rdd, Mapping) else ""
            for path in name.split(","):
                is_path = not _NO_PATH.search(path) and ("/" in path or _EXTENSION.search(path))
                if is_path and (last := _last(path)):
                    sources[last] = None
    return _name(call, list(sources), []) or call_site


def _call(description: str) -> str | None:
    """Return the called function of a bridge; None for any other description."""
    match = _BRIDGE.fullmatch(description.strip())
    if match is None:
        return None
    call = match["call"]
    return _CALLS.get(call, "" if "$" in call else call)


def _name(call: str, sources: Sequence[str], sinks: Sequence[str]) -> str:
    if not (sources or sinks):
        return ""
    call = "write" if sinks else call or "query"
    more = len(sources) - _MOST_NAMES
    names = ", ".join(sources[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    sink = "".join(f" -> {each}" for each in sinks[:1])
    return f"{call}{' of ' if sources else ''}{names}{sink}"[:LONGEST_DISPLAY_NAME]


def _nodes(plan: object) -> Iterator[_Node]:
    waiting = [plan]
    for _ in range(_MOST_NODES):
        node = waiting.pop() if waiting else None
        if not isinstance(node, Mapping):
            return
        yield node
        children = node.get("children")
        if isinstance(children, list):
            waiting += reversed([each for each in children if isinstance(each, Mapping)])


def _text(event: _Node, name: str) -> str:
    value = event.get(name)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _read(name: str, text: str, metadata: object) -> Iterator[str]:
    if (match := _JDBC.search(name)) is not None:
        yield _table(match[1]) if match[1] else "a JDBC query"
    elif (match := _TOPICS.search(text)) is not None:
        yield from filter(None, map(_last, match[1].split(", ")))
    elif (match := _PATH.match(name)) is not None:
        yield from filter(None, (_last(match[1]),))
    elif (match := _TABLE.fullmatch(name)) is not None:
        yield _table(match[1])
    elif (match := _QUOTED.search(text.partition("HiveTableRelation")[2])) is not None:
        yield _table(match[0])
    else:
        details = metadata if isinstance(metadata, Mapping) else {}
        place = _text(details, "Location") or text.partition("Location: ")[2]
        if (match := _LOCATION.match(place)) is not None:
            paths = match[1].split(", ")
            if not match[2] or paths[-1].endswith("..."):  # the last path is cut
                paths[-1] = paths[-1].rpartition("/")[0]
            yield from filter(None, map(_last, paths))


def _written(text: str) -> Iterator[str]:
    rest = text.removeprefix("Execute ").partition(" ")[2]
    if (match := _QUOTED.match(rest)) is not None:
        yield _table(match[0])
    elif (match := _OPTION.search(rest)) is not None:
        yield from filter(None, (_last(match[1]),))
    elif _SCHEME.match(rest) or rest.startswith("/"):
        yield from filter(None, (_last(rest.partition(", ")[0]),))


def _table(name: str) -> str:
    """Return the name of a table without a default catalogue and database."""
    parts = [each for each in re.split(r"[.`\"]+", name) if each]
    while len(parts) > 1 and parts[0] in _DEFAULTS:
        parts = parts[1:]
    return ".".join(filter(None, map(_plain, parts[-2:])))


def _last(path: str) -> str:
    """Return the last part of a path that is no date, partition value or hidden file."""
    place = re.split(r"[?#;]", path.strip(), maxsplit=1)[0]
    scheme = _SCHEME.match(place)
    place = (place[scheme.end() :] if scheme else place).rpartition("@")[2]  # without its user
    for part in reversed(re.split(r"[/\\]+", place)):
        if "=" in part or part.startswith(("part-", "_", ".")):
            continue
        if re.search(r"[^\W\d_]", plain := _plain(part)):
            return plain
    return ""


def _plain(part: str) -> str:
    return _ODD.sub("_", _NUMBERS.sub("*", part))[:_LONGEST_PART]
