"""Rules of thumb say a plan that can run, and the best of them is found."""

from fedperf_engines.platforms.engine import supports
from fedperf_shared.workflow.vocabulary import OperatorClass
from fedperf_simulations.baselines.platform_rules import (
    PlatformRule,
    best_rule,
    class_rules,
    constant_rules,
)
from tests.unit.simulations.compared import DUCKDB, PANDAS, POLARS, PROGRAM, SKLEARN, workflow


def test_a_constant_rule_keeps_to_its_platform() -> None:
    rules = {rule.name: rule for rule in constant_rules()}
    assert rules["always polars"].plan(PROGRAM, workflow()) == (POLARS,) * 4
    assert len(rules) == 3  # not scikit-learn, which reads no files


def test_what_a_platform_cannot_run_goes_where_it_came_from() -> None:
    rule = PlatformRule("odd", dict.fromkeys(OperatorClass, SKLEARN))
    assert rule.plan(PROGRAM, workflow()) == (DUCKDB,) * 4


def test_every_way_to_give_classes_platforms_is_a_rule() -> None:
    plans = {rule.plan(PROGRAM, workflow()) for rule in class_rules()}
    assert plans == {(each,) * 4 for each in (DUCKDB, POLARS, PANDAS)}
    assert len(list(class_rules())) == 4 ** len(OperatorClass)


def test_the_best_rule_has_the_smallest_regret() -> None:
    best = best_rule(class_rules(), lambda rule: float(rule.plan(PROGRAM, workflow())[0] != PANDAS))
    assert best.platforms[OperatorClass.RELATIONAL] is PANDAS
    assert all(
        supports(step.operation, platform)
        for step, platform in zip(PROGRAM.steps, best.plan(PROGRAM, workflow()), strict=True)
    )
