"""Learning operations as SQL expressions, shared by the engines that speak SQL.

The passes over rows are queries. The state between them has the size of a model and is kept in
this process (`algebra`).
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.algebra import (
    NO_CENTER,
    Vector,
    centers_moved_by,
    ridge,
    starting_centers,
)
from fedperf_engines.platforms.engine import Engine, Frame


class SqlEngine(Engine[Frame]):
    """Engine whose frames are queries. A subclass adds its dialect of SQL."""

    @abstractmethod
    def fetch(self, frame: Frame) -> list[tuple[Any, ...]]:
        """Run a query with a small result."""

    @abstractmethod
    def _select(self, frame: Frame, parts: Sequence[str], names: Sequence[str]) -> Frame:
        """Return a query of expressions, which gives columns of these names."""

    @abstractmethod
    def _grouped(self, frame: Frame, key: str, parts: Sequence[str]) -> Frame:
        """Return a query of the key and of aggregates for each of its values."""

    @abstractmethod
    def _columns(self, frame: Frame) -> Sequence[str]: ...

    @abstractmethod
    def _model(self, names: Sequence[str], rows: Sequence[Sequence[float]]) -> Frame:
        """Return a trained model as a query. Its column `cluster` holds whole numbers."""

    @abstractmethod
    def _name(self, name: str) -> str:
        """Return a quoted name."""

    @abstractmethod
    def _literal(self, value: float) -> str:
        """Return a float as a literal of type DOUBLE."""

    @abstractmethod
    def _integer(self, value: int) -> str:
        """Return a literal of type BIGINT."""

    @abstractmethod
    def _square(self, expression: str) -> str: ...

    def _named(self, expression: str, name: str) -> str:
        return f"{expression} AS {self._name(name)}"

    def _double(self, name: str) -> str:
        return f"CAST({self._name(name)} AS DOUBLE)"

    def _computed(self, computed: ops.ComputedColumn) -> str:
        expression = self._double(computed.column)
        for step in computed.steps:
            operand = (
                self._double(step.operand)
                if isinstance(step.operand, str)
                else self._literal(float(step.operand))
            )
            expression = f"({expression} {step.operator.value} {operand})"
        return self._named(expression, computed.name)

    def _project(self, operation: ops.Project, rows: Frame) -> Frame:
        parts = [*map(self._name, operation.keep), *map(self._computed, operation.computed)]
        names = (*operation.keep, *(each.name for each in operation.computed))
        return self._select(rows, parts, names)

    def _k_means(self, operation: ops.KMeans, rows: Frame) -> Frame:
        columns, names = operation.columns, ("cluster", *operation.columns)
        points = self.keep(self._doubles(rows, columns, columns))
        extremes = [f"{function}({self._name(c)})" for function in ("min", "max") for c in columns]
        bounds = self.fetch(self._select(points, extremes, extremes))[0]
        if bounds[0] is None:
            return self._model(names, [])
        low, high = np.split(np.array(bounds, dtype=np.float64), 2)
        centers = starting_centers(operation, low, high)
        sums = [f"sum({self._name(column)})" for column in columns]
        for _ in range(operation.iterations):
            nearest = self._nearest(points, columns, centers, name="cluster__")
            sums_by_cluster = self.fetch(self._grouped(nearest, "cluster__", ["count(*)", *sums]))
            centers = centers_moved_by(centers, sums_by_cluster)
        return self._model(names, [(n, *center) for n, center in enumerate(centers.tolist())])

    def _k_means_assign(self, operation: ops.KMeansAssign, rows: Frame, model: Frame) -> Frame:
        names = ("cluster", *operation.columns)
        table = sorted(self.fetch(self._select(model, [*map(self._name, names)], names)))
        centers = np.array(table, dtype=np.float64).reshape(len(table), len(names))[:, 1:]
        return self._nearest(rows, operation.columns, centers, name=operation.name)

    def _linear_regression(self, operation: ops.LinearRegression, rows: Frame) -> Frame:
        columns, names = (
            (*operation.features, operation.target),
            ops.model_columns(operation.features),
        )
        plain = tuple(f"c{number}" for number in range(len(columns)))
        points = self.keep(self._doubles(rows, columns, plain))
        averages = [f"avg({name})" for name in plain]
        means = self.fetch(self._select(points, averages, averages))[0]
        if means[0] is None:
            return self._model(names, [])
        centered = [f"({n} - {self._literal(mean)})" for n, mean in zip(plain, means, strict=True)]
        products = [f"sum({left} * {right})" for left in centered for right in centered]
        sums = self.fetch(self._select(points, products, products))[0]
        matrix = np.array(sums, dtype=np.float64).reshape(len(columns), len(columns))
        solution = ridge(matrix, np.array(means, dtype=np.float64), operation.penalty)
        return self._model(names, [solution.tolist()])

    def _linear_predict(self, operation: ops.LinearPredict, rows: Frame, model: Frame) -> Frame:
        names = ops.model_columns(operation.features)
        weights = self.fetch(self._select(model, [*map(self._name, names)], names))
        *coefficients, intercept = weights[0] if weights else [0.0] * len(names)
        terms = [
            f"{self._literal(coefficient)} * {self._name(name)}"
            for coefficient, name in zip(coefficients, operation.features, strict=True)
        ]
        total = self._named(" + ".join([*terms, self._literal(intercept)]), operation.name)
        return self._select(rows, ["*", total], (*self._columns(rows), operation.name))

    def _doubles(self, rows: Frame, columns: Iterable[str], names: Sequence[str]) -> Frame:
        """Return some of the columns as DOUBLE, under new names."""
        pairs = zip(columns, names, strict=True)
        return self._select(rows, [self._named(self._double(c), name) for c, name in pairs], names)

    def _nearest(self, rows: Frame, columns: Sequence[str], centers: Vector, *, name: str) -> Frame:
        """Return the rows and, as `name`, the number of the nearest center."""
        names = self._columns(rows)
        if not len(centers):
            none = self._named(self._integer(NO_CENTER), name)
            return self._select(rows, ["*", none], (*names, name))
        distances = [f"distance_{number}__" for number in range(len(centers))]
        terms = [
            " + ".join(
                self._square(f"({self._name(column)} - {self._literal(coordinate)})")
                for column, coordinate in zip(columns, center, strict=True)
            )
            for center in centers.tolist()
        ]
        measured = ["*", *map(self._named, terms, distances)]
        # Spark's least() refuses a single argument.
        smallest = f"least({', '.join(distances)})" if len(distances) > 1 else distances[0]
        whens = " ".join(
            f"WHEN {distance} THEN {self._integer(number)}"
            for number, distance in enumerate(distances)
        )
        return self._select(
            self._select(rows, measured, (*names, *distances)),
            [*map(self._name, names), self._named(f"CASE {smallest} {whens} END", name)],
            (*names, name),
        )
