from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.release.accountant import PrivacyBudget
from fedperf_client.release.policy import (
    ConfigurationSecrecy,
    Policy,
    ReleaseMode,
    load_policy,
    parse_policy,
    policy_template,
)
from fedperf_shared.errors import ConfigurationError
from fedperf_shared.releases.release import ReleaseKind, SizeClass

WHOLE = """
size_class = "large"
nominal_workloads = 2500
workloads_per_window = 800
configurations = "private"

[budget]
epsilon = 2.0
delta = 1e-6
lifetime_epsilon = 5

[release]
residual_report = "never"
model_update = "auto"

[report]
share = 0.3
residual_clip = 1
occupied_cells = 12

[training]
clip_norm = 0.25
sampling_probability = 0.1
steps = 20
"""


def load(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return load_policy(path)


def test_load_policy_reads_all_keys(tmp_path: Path) -> None:
    policy = load(tmp_path, WHOLE)
    assert policy == Policy(
        size_class=SizeClass.LARGE,
        nominal_workloads=2500,
        workloads_per_window=800.0,
        epsilon=2.0,
        delta=1e-6,
        lifetime_epsilon=5.0,
        configurations=ConfigurationSecrecy.PRIVATE,
        residual_report=ReleaseMode.NEVER,
        model_update=ReleaseMode.AUTO,
        report_share=0.3,
        residual_clip=1.0,
        occupied_cells=12,
    )
    assert policy.mode(ReleaseKind.RESIDUAL_REPORT) is ReleaseMode.NEVER
    assert policy.mode(ReleaseKind.MODEL_UPDATE) is ReleaseMode.AUTO


def test_policy_template_sets_epsilon_one_and_default_values(tmp_path: Path) -> None:
    policy = load(tmp_path, policy_template(SizeClass.SMALL, 90))
    assert policy == Policy(size_class=SizeClass.SMALL, nominal_workloads=90)
    assert (policy.epsilon, policy.delta) == (1.0, 1e-5)
    assert policy.lifetime == PrivacyBudget(10.0, 1e-5)
    assert policy.configurations is ConfigurationSecrecy.PRIVATE


def test_policy_without_epsilon_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"budget\.epsilon: missing, must be a number"):
        load(tmp_path, 'size_class = "small"\nnominal_workloads = 90\n')


def test_policy_lifetime_below_one_period_is_refused(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE).lifetime == PrivacyBudget(5.0, 1e-6)
    with pytest.raises(ConfigurationError, match=r"lifetime_epsilon: must be at least budget"):
        load(tmp_path, WHOLE.replace("lifetime_epsilon = 5", "lifetime_epsilon = 1.9"))


def test_policy_with_more_workloads_per_window_than_per_period_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"workloads_per_window: must be at most nominal"):
        load(tmp_path, WHOLE.replace("workloads_per_window = 800", "workloads_per_window = 2501"))


@pytest.mark.parametrize(
    ("line", "wrong", "right"),
    [
        ("residual_clip = 1\n", "residual_clip = 11\n", "report.residual_clip: .* at most 10"),
        ("residual_clip = 1\n", "residual_clip = 1e-9\n", "report.residual_clip: .* least 0.01"),
        ("nominal_workloads = 2500", "nominal_workloads = 1e8", "workloads: .* at most 1e\\+07"),
    ],
)
def test_policy_values_outside_declarable_bounds_are_refused(
    tmp_path: Path, line: str, wrong: str, right: str
) -> None:
    with pytest.raises(ConfigurationError, match=right):
        load(tmp_path, WHOLE.replace(line, wrong))


def test_invalid_policy_reports_all_problems_at_once(tmp_path: Path) -> None:
    text = """
size_class = "medium"
colour = "red"
[budget]
epsilon = 0
delta = "small"
[release]
model_update = "always"
[report]
ocupied_cells = 3
"""
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    message = str(refused.value)
    for part in (
        'size_class: must be "small" or "large", got \'medium\'',
        "nominal_workloads: missing, must be a number at least 1",
        "budget.epsilon: must be a number above 0",
        "budget.delta: must be a number above 0 and at most 0.1, got 'small'",
        'release.model_update: must be "auto" or "ask" or "never"',
        "colour: unknown key; expected one of size_class, ",
        'report.ocupied_cells: unknown key; did you mean "report.occupied_cells"?',
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize("epsilon", ["0", "0.0", "-1", "nan", "inf", "true", '"off"', "[]"])
def test_policy_with_invalid_epsilon_is_refused(tmp_path: Path, epsilon: str) -> None:
    text = f'size_class = "small"\nnominal_workloads = 90\n[budget]\nepsilon = {epsilon}\n'
    with pytest.raises(ConfigurationError, match=r"budget\.epsilon: must be a number above 0"):
        load(tmp_path, text)


def test_policy_configurations_are_private_unless_declared_public(tmp_path: Path) -> None:
    text = 'size_class = "small"\nnominal_workloads = 90\n'
    budget = "[budget]\nepsilon = 1.0\n"
    path = tmp_path / "policy.toml"
    for line, expected in (
        ("", ConfigurationSecrecy.PRIVATE),
        ('configurations = "private"\n', ConfigurationSecrecy.PRIVATE),
        ('configurations = "public"\n', ConfigurationSecrecy.PUBLIC),
    ):
        path.write_text(text + line + budget)
        assert load_policy(path).configurations is expected
    path.write_text(text + 'configurations = "open"\n' + budget)
    with pytest.raises(ConfigurationError, match='must be "private" or "public"'):
        load_policy(path)


def test_policy_with_delta_too_large_for_declared_size_is_refused(tmp_path: Path) -> None:
    text = 'size_class = "small"\nnominal_workloads = 90\n[budget]\nepsilon = 1\ndelta = 0.05\n'
    with pytest.raises(ConfigurationError, match=r"budget\.delta: must be below 1 / nominal"):
        load(tmp_path, text)


def test_unreadable_policy_file_raises_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_policy(tmp_path / "absent.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_policy(tmp_path)
    with pytest.raises(ConfigurationError, match="not TOML"):
        load(tmp_path, "size_class = [")
    (tmp_path / "policy.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not TOML"):
        load_policy(tmp_path / "policy.toml")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)


@given(
    content=st.dictionaries(
        st.sampled_from(["size_class", "nominal_workloads", "budget", "training", "x"]),
        VALUES
        | st.dictionaries(
            st.sampled_from(["epsilon", "delta", "lifetime_epsilon", "steps", "y"]), VALUES
        ),
    )
)
def test_parse_policy_of_any_content_succeeds_or_raises_configuration_error(
    content: dict[str, object],
) -> None:
    with suppress(ConfigurationError):
        assert isinstance(parse_policy(content, "test"), Policy)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("epsilonn = 1", "budget.epsilon"),
        ("[budget]\nresidual_report = 1", "release.residual_report"),
    ],
)
def test_policy_key_in_wrong_table_suggests_the_right_one(
    tmp_path: Path, text: str, meant: str
) -> None:
    with pytest.raises(ConfigurationError, match=f'unknown key; did you mean "{meant}"'):
        load(tmp_path, text)
