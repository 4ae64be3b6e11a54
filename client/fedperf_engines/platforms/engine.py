"""One interface for engines, and the only place that knows which class belongs to which platform.

An engine turns a Parquet file or an Arrow table into a frame of its own. It applies operations to
frames, lazily where the engine can, and collects a frame into an Arrow table at a platform switch
or a sink. Engines are imported when they are opened, so a process imports only those that its plan
uses.

`threads` is honoured by DuckDB and Spark. Polars reads POLARS_MAX_THREADS, and the linear
algebra libraries read OMP_NUM_THREADS, when they are imported: whoever starts the
process of a trial sets both in its environment first. pandas uses one thread.

`memory_bytes` caps the whole process. DuckDB and Spark are told a share of it, so that
they spill, or fail by themselves, before it is reached; the others cannot be told:
whoever runs the process watches it. None leaves every engine to its own default.

The operations that each platform can run, decided without importing an engine.
"""

import os
import shutil
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from fedperf_engines.platforms.operations import AnyOperation, Operation
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

if TYPE_CHECKING:
    from fedperf_engines.platforms.arrow import Table


Frame = TypeVar("Frame")

ENGINES = {
    Platform.DUCKDB: ("duckdb", "fedperf_engines.platforms.duckdb_engine", "DuckDbEngine"),
    Platform.POLARS: ("polars", "fedperf_engines.platforms.polars_engine", "PolarsEngine"),
    Platform.PANDAS: ("pandas", "fedperf_engines.platforms.pandas_engine", "PandasEngine"),
    Platform.SKLEARN: ("sklearn", "fedperf_engines.platforms.sklearn_engine", "SklearnEngine"),
    Platform.SPARK: ("pyspark", "fedperf_engines.platforms.spark_engine", "SparkEngine"),
}
"""Platform -> distribution that must be importable, module, class."""


class UnsupportedOperationError(InvalidInputError):
    """An operation was given to a platform that cannot run it."""

    def __init__(self, operation: str, platform: Platform) -> None:
        super().__init__(f"{platform.name} cannot run {operation}")
        self.operation = operation
        self.platform = platform


class Engine(Protocol[Frame]):
    """Runs operations on frames of its own kind; the module says what engines are given."""

    def read(self, path: Path, columns: tuple[str, ...]) -> Frame:
        """A frame over columns of a Parquet file."""
        ...

    def load(self, table: "Table") -> Frame:
        """A frame over an Arrow table handed over by another engine."""
        ...

    def apply(self, operation: AnyOperation, inputs: Sequence[Frame]) -> Frame:
        """The operation's result; UnsupportedOperationError where this engine has none."""
        ...

    def keep(self, frame: Frame) -> Frame:
        """The same rows, computed now, to be read several times."""
        ...

    def collect(self, frame: Frame) -> "Table":
        """The rows as an Arrow table; column types may still be the engine's own."""
        ...

    def close(self) -> None:
        """Give back what the engine holds; its frames are invalid afterwards."""
        ...


def open_engine(
    platform: Platform, *, threads: int, memory_bytes: int | None = None
) -> Engine[Any]:
    """The engine of a platform, imported now, for a process of at most `memory_bytes`.

    Raises:
        UnsupportedOperationError: fedperf has no engine for this platform.
    """
    if platform not in ENGINES:
        raise UnsupportedOperationError("anything yet: fedperf has no engine for it", platform)
    _, module, name = ENGINES[platform]
    engine = getattr(import_module(module), name)
    return cast("Engine[Any]", engine(threads=threads, memory_bytes=memory_bytes))


TABULAR_KINDS = frozenset(
    {
        OperatorKind.FILE_SOURCE,
        OperatorKind.MAP,
        OperatorKind.FILTER,
        OperatorKind.FLATMAP,
        OperatorKind.AGGREGATE,
        OperatorKind.GLOBAL_AGGREGATE,
        OperatorKind.DISTINCT,
        OperatorKind.SORT,
        OperatorKind.TOPK,
        OperatorKind.JOIN,
        OperatorKind.UNION,
        OperatorKind.WINDOW,
    }
)
ANALYTIC_KINDS = frozenset(
    {
        OperatorKind.GRAPH_ITERATE,
        OperatorKind.ML_TRAIN,
        OperatorKind.ML_PREDICT,
        OperatorKind.SINK,
    }
)

_SUPPORTED = {
    Platform.DUCKDB: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.POLARS: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.PANDAS: TABULAR_KINDS | ANALYTIC_KINDS,
    Platform.SKLEARN: ANALYTIC_KINDS,
    Platform.SPARK: TABULAR_KINDS | ANALYTIC_KINDS,
}

EMBEDDED_PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN)
"""Platforms that run inside the process of a trial and come with fedperf itself.

Code that draws or compares platforms by itself keeps to these. So what it draws is a function
of the seed, the same on every machine: an extra that happens to be installed does not change
it and makes nobody wait for a JVM. Other platforms run where they are named.
"""

_ALIKE = {
    OperatorKind.TABLE_SOURCE: OperatorKind.FILE_SOURCE,
    OperatorKind.CROSS: OperatorKind.JOIN,
    OperatorKind.SAMPLE: OperatorKind.FILTER,
    OperatorKind.EXCHANGE: OperatorKind.MAP,
}
"""Operator kinds of foreign jobs that no operation here has, each with a kind that runs alike."""

_NEED_JAVA = frozenset({Platform.SPARK})


def supports(operation: Operation | OperatorKind, platform: Platform) -> bool:
    """Whether the platform can run the operation, installed or not."""
    kind = operation if isinstance(operation, OperatorKind) else operation.kind
    return kind in _SUPPORTED.get(platform, frozenset())


def could_run(kind: OperatorKind, platform: Platform) -> bool:
    """Whether an operator of a job that was written for another platform could run there."""
    return supports(_ALIKE.get(kind, kind), platform)


def supporting(
    operation: Operation | OperatorKind, among: Collection[Platform] = EMBEDDED_PLATFORMS
) -> tuple[Platform, ...]:
    """The platforms that can run the operation, in the order of the vocabulary."""
    return tuple(each for each in ENGINES if each in among and supports(operation, each))


def installed_platforms(among: Collection[Platform] = tuple(ENGINES)) -> tuple[Platform, ...]:
    """The platforms whose library is here, and Java where they need it.

    In the order of the vocabulary. Which Java it is shows only when it starts.
    """
    return tuple(
        platform
        for platform, (name, *_) in ENGINES.items()
        if platform in among and find_spec(name) and (platform not in _NEED_JAVA or _java())
    )


def _java() -> str | None:
    """The program `java` as Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
