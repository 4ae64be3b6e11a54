"""The interface of all engines, their table by platform, and the operations each supports.

An engine turns a Parquet file or an Arrow table into a frame of its own. It applies operations to
frames, lazily where the engine can, and collects a frame into an Arrow table at a platform switch
or a sink. Engines are imported when they are opened, so a process imports only those that its plan
uses. What a platform supports is decided without importing its engine.

`threads` is honoured by DuckDB and Spark. Polars reads POLARS_MAX_THREADS, and the linear algebra
libraries read OMP_NUM_THREADS, when they are imported: the parent of a trial's process sets both.
pandas uses one thread.

`memory_bytes` caps the whole process. DuckDB and Spark get a share of it, so that they spill, or
fail by themselves, before it is reached. The other engines have no such setting, and the parent of
the process watches them. None leaves every engine to its own default.
"""

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from fedperf_engines.platforms.operations import OPERATIONS, AnyOperation, Operation
from fedperf_shared.errors import InvalidInputError
from fedperf_shared.workflow.vocabulary import OperatorKind, Platform

if TYPE_CHECKING:
    import pyarrow as pa

Frame = TypeVar("Frame")

# Platform -> distribution that must be importable, module, class.
ENGINES = {
    Platform.DUCKDB: ("duckdb", "fedperf_engines.platforms.duckdb_engine", "DuckDbEngine"),
    Platform.POLARS: ("polars", "fedperf_engines.platforms.polars_engine", "PolarsEngine"),
    Platform.PANDAS: ("pandas", "fedperf_engines.platforms.pandas_engine", "PandasEngine"),
    Platform.SKLEARN: ("sklearn", "fedperf_engines.platforms.sklearn_engine", "SklearnEngine"),
    Platform.SPARK: ("pyspark", "fedperf_engines.platforms.spark_engine", "SparkEngine"),
}

EMBEDDED_PLATFORMS = (Platform.DUCKDB, Platform.POLARS, Platform.PANDAS, Platform.SKLEARN)
"""Platforms that run inside the process of a trial and come with fedperf itself.

Random draws and comparisons keep to these. So they are a function of the seed, the same on every
machine: an installed extra changes nothing, and no JVM starts unasked. Other platforms run where
they are named.
"""

_ANALYTIC_KINDS = frozenset(
    {
        OperatorKind.GRAPH_ITERATE,
        OperatorKind.ML_TRAIN,
        OperatorKind.ML_PREDICT,
        OperatorKind.SINK,
    }
)
_ALL_KINDS = frozenset(each.kind for each in OPERATIONS)
_SUPPORTED = {
    Platform.DUCKDB: _ALL_KINDS,
    Platform.POLARS: _ALL_KINDS,
    Platform.PANDAS: _ALL_KINDS,
    Platform.SKLEARN: _ANALYTIC_KINDS,
    Platform.SPARK: _ALL_KINDS,
}
# Kinds of other systems' operators that no operation here has -> a kind that runs alike.
_EQUIVALENT_KINDS = {
    OperatorKind.TABLE_SOURCE: OperatorKind.FILE_SOURCE,
    OperatorKind.CROSS: OperatorKind.JOIN,
    OperatorKind.SAMPLE: OperatorKind.FILTER,
    OperatorKind.EXCHANGE: OperatorKind.MAP,
}


class UnsupportedOperationError(InvalidInputError):
    """An operation was given to a platform that cannot run it."""

    def __init__(self, operation: str, platform: Platform) -> None:
        super().__init__(f"{platform.name} cannot run {operation}")
        self.operation = operation
        self.platform = platform


class Engine(ABC, Generic[Frame]):
    """Runs operations on frames of its own kind.

    A subclass has a method for each type of operation that it runs, for example `_join` for
    `Join`. It takes the operation and its input frames, and returns the result's frame.
    """

    platform: ClassVar[Platform]

    def __init__(self, *, threads: int, memory_bytes: int | None = None) -> None:
        del threads, memory_bytes

    def read(self, path: Path, columns: tuple[str, ...]) -> Frame:
        """Return a frame over columns of a Parquet file."""
        raise UnsupportedOperationError("read_parquet", self.platform)

    @abstractmethod
    def load(self, table: "pa.Table") -> Frame:
        """Return a frame over an Arrow table that another engine hands over."""

    def apply(self, operation: AnyOperation, inputs: Sequence[Frame]) -> Frame:
        """Return the operation's result. Iterative operations run at once.

        Raises:
            UnsupportedOperationError: this engine does not run such operations.
        """
        method = getattr(self, f"_{operation.type}", None)
        if method is None:
            raise UnsupportedOperationError(operation.type, self.platform)
        return cast("Frame", method(operation, *inputs))

    def keep(self, frame: Frame) -> Frame:
        """Return the same rows, computed now, to be read several times."""
        return frame

    @abstractmethod
    def collect(self, frame: Frame) -> "pa.Table":
        """Return the rows as an Arrow table. Column types may still be the engine's own."""

    def close(self) -> None:
        """Release what the engine holds. Its frames are invalid afterwards."""


def open_engine(
    platform: Platform, *, threads: int, memory_bytes: int | None = None
) -> Engine[Any]:
    """Import and open the engine of a platform, for a process of at most `memory_bytes`.

    Raises:
        UnsupportedOperationError: fedperf has no engine for this platform.
    """
    if platform not in ENGINES:
        raise UnsupportedOperationError("anything yet: fedperf has no engine for it", platform)
    _, module, name = ENGINES[platform]
    engine = getattr(import_module(module), name)
    return cast("Engine[Any]", engine(threads=threads, memory_bytes=memory_bytes))


def supports(operation: Operation | OperatorKind, platform: Platform) -> bool:
    """Return whether the platform can run the operation, installed or not."""
    kind = operation if isinstance(operation, OperatorKind) else operation.kind
    return kind in _SUPPORTED.get(platform, frozenset())


def could_run(kind: OperatorKind, platform: Platform) -> bool:
    """Return whether an operator of a job that another platform ran could run there."""
    return supports(_EQUIVALENT_KINDS.get(kind, kind), platform)


def supporting(
    operation: Operation | OperatorKind, among: Collection[Platform] = EMBEDDED_PLATFORMS
) -> tuple[Platform, ...]:
    """Return the platforms that can run the operation, in the order of the vocabulary."""
    return tuple(each for each in ENGINES if each in among and supports(operation, each))


def installed_platforms(among: Collection[Platform] = tuple(ENGINES)) -> tuple[Platform, ...]:
    """Return the platforms whose library is installed, in the order of the vocabulary.

    Spark needs Java as well. Its version is checked when it starts.
    """
    return tuple(
        platform
        for platform, (name, *_) in ENGINES.items()
        if platform in among and find_spec(name) and (platform is not Platform.SPARK or _java())
    )


def _java() -> str | None:
    """Return the program `java` as Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
