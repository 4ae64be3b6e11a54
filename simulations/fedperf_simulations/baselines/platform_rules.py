"""Rules of thumb that a choice has to beat: one platform for everything, or one per class.

A rule reads only the classes of a workflow's operators. An operator that the rule's platform cannot
run goes where the operator before it ran, or else to the first platform that can.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from fedperf_engines.optimizer.enumeration import Assignment
from fedperf_engines.platforms.engine import EMBEDDED_PLATFORMS, supporting, supports
from fedperf_engines.platforms.operations import Sink
from fedperf_engines.platforms.program import Program
from fedperf_shared.workflow.graph import Workflow
from fedperf_shared.workflow.vocabulary import OperatorClass, OperatorKind, Platform

PER_CLASS = "best rule per class"


@dataclass(frozen=True, slots=True)
class PlatformRule:
    """A platform for each class of operators.

    Attributes:
        name: in tables.
        platforms: of every class.
    """

    name: str
    platforms: Mapping[OperatorClass, Platform]

    def plan(self, program: Program, workflow: Workflow) -> Assignment:
        """Return the rule's plan of a workflow. A sink runs where its input does."""
        platforms: list[Platform] = []
        for step, operator in zip(program.steps, workflow.operators, strict=True):
            able = supporting(step.operation)
            before = [platforms[parent] for parent in step.inputs]
            preferred = [self.platforms[operator.operator_class], *before]
            if isinstance(step.operation, Sink):
                preferred = before
            platforms.append(next((each for each in preferred if each in able), able[0]))
        return tuple(platforms)


def constant_rules() -> Iterator[PlatformRule]:
    """Always the same platform, of those that can run everything."""
    for platform in EMBEDDED_PLATFORMS:
        if supports(OperatorKind.FILE_SOURCE, platform):
            yield PlatformRule(
                f"always {platform.name.lower()}", dict.fromkeys(OperatorClass, platform)
            )


def class_rules() -> Iterator[PlatformRule]:
    """Yield every way to give each class of operators a platform."""
    for platforms in product(EMBEDDED_PLATFORMS, repeat=len(OperatorClass)):
        yield PlatformRule(PER_CLASS, dict(zip(OperatorClass, platforms, strict=True)))


def best_rule(
    rules: Iterable[PlatformRule], mean_regret: Callable[[PlatformRule], float]
) -> PlatformRule:
    """Return the rule with the smallest mean regret, the first of equal ones."""
    return min(rules, key=mean_regret)
