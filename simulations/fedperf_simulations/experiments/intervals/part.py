"""A part of the experiment: one judged set, or one way to ask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedperf_simulations.harness.experiment import Row, Settings, Target

Cases = Sequence[Row]


@dataclass(frozen=True, slots=True)
class EvaluationPart:
    """A part of the experiment, as `experiment` runs it.

    Attributes:
        name: of what is judged.
        files: of that, in the folder of public data sets or among what ships; a part whose
            files are missing raises `MissingDataError`.
        cases: computes the raw rows, by cells.
        rows: the table that cases come to.
        targets: what was promised, of cases and rows.
        notes: what a reader must know.
    """

    name: str
    files: Callable[[Path | None], Sequence[Path]]
    cases: Callable[[Settings], Cases]
    rows: Callable[[Cases], list[Row]]
    targets: Callable[[Cases, list[Row]], list[Target]]
    notes: tuple[str, ...] = ()
