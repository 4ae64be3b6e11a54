"""Tests of platform rules: each returns a supported plan, and the best one is found."""

from fedperf_engines.platforms.engine import supports
from fedperf_shared.workflow.vocabulary import OperatorClass
from fedperf_simulations.baselines.platform_rules import (
    PlatformRule,
    best_rule,
    class_rules,
    constant_rules,
)
from tests.unit.simulations.comparison_cases import (
    DUCKDB,
    PANDAS,
    POLARS,
    PROGRAM,
    SKLEARN,
    workflow,
)


def test_constant_platform_rule_places_all_operators_on_its_platform() -> None:
    rules = {rule.name: rule for rule in constant_rules()}
    assert rules["always polars"].plan(PROGRAM, workflow()) == (POLARS,) * 4
    assert len(rules) == 3  # without scikit-learn, which reads no files


def test_platform_rule_with_unsupported_platform_uses_that_of_its_input() -> None:
    rule = PlatformRule("odd", dict.fromkeys(OperatorClass, SKLEARN))
    assert rule.plan(PROGRAM, workflow()) == (DUCKDB,) * 4


def test_class_rules_enumerate_all_class_to_platform_assignments() -> None:
    plans = {rule.plan(PROGRAM, workflow()) for rule in class_rules()}
    assert plans == {(each,) * 4 for each in (DUCKDB, POLARS, PANDAS)}
    assert len(list(class_rules())) == 4 ** len(OperatorClass)


def test_best_rule_has_the_smallest_regret_and_supported_platforms() -> None:
    best = best_rule(class_rules(), lambda rule: float(rule.plan(PROGRAM, workflow())[0] != PANDAS))
    assert best.platforms[OperatorClass.RELATIONAL] is PANDAS
    assert all(
        supports(step.operation, platform)
        for step, platform in zip(PROGRAM.steps, best.plan(PROGRAM, workflow()), strict=True)
    )
