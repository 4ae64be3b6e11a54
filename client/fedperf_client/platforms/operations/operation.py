"""The base of every operation: its place in the public vocabulary and its output schema.

The vocabulary says kind, class and complexity of the code inside. An operation derives the schema
of its output from those of its inputs. It refuses inputs that do not fit before any engine starts.
"""

from typing import ClassVar

from fedperf_client.platforms.operations.columns import ProgramPart, Schema
from fedperf_shared.workflow.vocabulary import Complexity, OperatorClass, OperatorKind


class Operation(ProgramPart):
    """The base of all operations: their place in the vocabulary and their output schema."""

    __slots__ = ()

    kind: ClassVar[OperatorKind]
    operator_class: ClassVar[OperatorClass] = OperatorClass.RELATIONAL
    arity: ClassVar[int] = 1

    @property
    def code_steps(self) -> int:
        """Elementary steps of the user code inside, per row; 0 where there is none."""
        return 0

    @property
    def complexity(self) -> Complexity:
        """How that code grows with its input."""
        return Complexity.LINEAR if self.code_steps else Complexity.NONE

    @property
    def rounds(self) -> int:
        """Iterations of an iterative operation, 0 elsewhere."""
        return 0

    def output_schema(self, inputs: tuple[Schema, ...]) -> Schema:
        """Columns of the result, or InvalidProgramError when the inputs do not fit."""
        raise NotImplementedError
