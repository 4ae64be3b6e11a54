"""campaign.toml: allowed content, its meaning, and errors that list all problems."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedperf_campaigns.campaign.definition import MAX_FILE_BYTES, load_campaign
from fedperf_campaigns.campaign.grid import MAX_CONFIGURATIONS
from fedperf_shared.errors import ConfigurationError
from tests.pages import ENGINEER
from tests.unit.client.profiling.campaign.campaigns import (
    COMPONENT,
    GRID,
    campaign_text,
    make_campaign,
    write_campaign,
)


def grid(columns: str, constraints: str = "[]") -> str:
    return (
        f'[grid]\nsize = "rows"\nparallelism = "workers"\nconstraints = {constraints}\n'
        f"[grid.columns]\n{columns}\n"
    )


def component(name: str, what: str = 'command = ["true"]', after: str = "") -> str:
    return f'[[component]]\nname = "{name}"\n{what}\nafter = [{after}]\n'


def test_grid_is_the_product_of_its_columns(tmp_path: Path) -> None:
    columns = (
        "rows = { start = 100, stop = 900, doubling = true }\n"
        "workers = { start = 1, stop = 5, step = 2 }\n"
        'platform = ["duckdb", "spark"]\ncached = [true, false]\nshare = [0.5, 1]'
    )
    found = make_campaign(tmp_path, grid=grid(columns)).grid
    assert found.columns["rows"] == (100, 200, 400, 800)
    assert found.columns["workers"] == (1, 3, 5)
    assert len(found.configurations) == 4 * 3 * 2 * 2 * 2
    assert found.configurations[1] == {
        **{"rows": 100, "workers": 1, "platform": "duckdb", "cached": True, "share": 1}
    }
    assert found.table()["cached"][:4] == ["true", "true", "false", "false"]
    assert found.further == ("platform", "cached", "share")


def test_grid_range_of_decimals_includes_its_stop(tmp_path: Path) -> None:
    columns = "rows = { start = 0.1, stop = 0.7, step = 0.1 }\nworkers = [1]"
    values = make_campaign(tmp_path, grid=grid(columns)).grid.columns["rows"]
    assert values == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7))
    assert values == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # exact, as constraints need it


def test_grid_range_doubles_from_smallest_positive_float(tmp_path: Path) -> None:
    columns = "rows = { start = 5e-324, stop = 1, doubling = true }\nworkers = [1]"
    values = make_campaign(tmp_path, grid=grid(columns)).grid.columns["rows"]
    assert (len(values), values[-1]) == (1075, 1.0)


def test_grid_constraints_exclude_configurations(tmp_path: Path) -> None:
    text = grid("rows = [100, 200]\nworkers = [1, 2, 4]", '["workers <= 2 or rows >= 200"]')
    found = make_campaign(tmp_path, grid=text).grid
    assert len(found.configurations) == 5
    assert found.ruled_out == 1
    assert {"rows": 100, "workers": 4} not in found.configurations


def test_campaign_id_ignores_comments_and_budgets(tmp_path: Path) -> None:
    first = make_campaign(tmp_path).campaign_id
    commented = campaign_text(run="max_trials = 7 # at most\nmax_wall_seconds = 60")
    assert load_campaign(write_campaign(tmp_path, "# note\n" + commented)).campaign_id == first


@pytest.mark.parametrize(
    "change",
    [
        {"run": "repetitions = 4"},
        {"run": "seed = 2"},
        {"run": "timeout_seconds = 9"},
        {"grid": GRID.replace("[1, 2]", "[2, 1]")},
        {"grid": GRID.replace("rows = [100, 200]\n", "") + "rows = [100, 200]\n"},
        {"components": COMPONENT.replace("true", "false")},
        {"more": '[machine]\nnode_type = "large"'},
    ],
)
def test_campaign_id_changes_with_definition(tmp_path: Path, change: dict[str, str]) -> None:
    assert make_campaign(tmp_path).campaign_id != make_campaign(tmp_path, **change).campaign_id


def test_campaign_targets_follow_components_setting(tmp_path: Path) -> None:
    both = component("a") + component("b", after='"a"')
    found = make_campaign(tmp_path, components=both, run='components = "both"')
    assert found.targets == ("a", "b", "whole")
    assert found.components_of("b")[0].after == ()
    assert found.components_of("whole")[1].after == ("a",)
    alone = make_campaign(tmp_path, components=both, run='components = "alone"')
    assert alone.targets == ("a", "b")
    assert make_campaign(tmp_path, run='components = "both"').targets == ("whole",)


def test_campaign_example_of_documentation_loads(tmp_path: Path) -> None:
    _, name, rest = ENGINEER.read_text(encoding="utf-8").partition('name = "nightly"\n')
    found = load_campaign(write_campaign(tmp_path, name + rest.partition("```")[0]))
    assert found.targets == ("extract", "train", "score", "whole")
    assert found.grid.ruled_out == 8


WRONG_COMPONENTS = {
    "component name": (component("a b"), ": name: a name starts with"),
    "component whole": (component("whole"), ": name: a name starts with"),
    "nothing runs": (component("a", ""), "component a: needs exactly"),
    "too much runs": (
        component("a", 'command = ["x"]\ncallable = "m:f"'),
        "component a: needs exactly one",
    ),
    "empty command": (component("a", "command = []"), "command"),
    "callable": (component("a", 'callable = "m.f"'), "component a: callable:"),
    "kind": (component("a", 'command=["x"]\nkind="sorting"'), "component a: kind: known kinds"),
    "placeholder": (
        component("a", 'command = ["x", "{size}"]'),
        "component a: command: there is no column 'size'",
    ),
    "url": (component("a", 'http = { url = "ftp://x" }'), "component a: http.url"),
    "two bodies": (
        component("a", 'http = {url="http://x", body="a", body_file="b"}'),
        "component a: http.body_file",
    ),
    "body file": (
        component("a", 'http = { url = "http://x", body_file = "{day}" }'),
        "component a: http.body_file: there is no column 'day'",
    ),
}
WRONG_GRIDS = {
    "no size": (grid("workers = [1]"), "grid.size: no column 'rows'"),
    "words as size": (grid('rows = ["a"]\nworkers = [1]'), "columns.rows"),
    "no parallelism": (grid("rows = [1]\nworkers = [0]"), "columns.workers"),
    "mixed": (grid('rows=[1]\nworkers=[1]\nx = [1, "a"]'), "columns.x"),
    "twice": (grid("rows = [1, 1]\nworkers = [1]"), "a value twice"),
    "twice in a range": (
        grid("rows = {start=1e14,stop=100000000000001,step=0.001}\nworkers=[1]"),
        "a value twice",
    ),
    "NaN": (grid("rows = [nan]\nworkers = [1]"), "grid.columns.rows"),
    "infinite": (grid("rows = [inf]\nworkers = [1]"), "grid.columns.rows"),
    "empty": (grid("rows = []\nworkers = [1]"), "grid.columns.rows"),
    "endless": (grid("rows = {start=1,stop=1e15,step=1e-9}\nworkers=[1]"), "grid.columns.rows"),
    "backwards": (grid("rows = {start=2,stop=1,step=1}\nworkers=[1]"), "grid.columns.rows"),
    "no step": (grid("rows = {start=1,stop=2}\nworkers=[1]"), "grid.columns.rows"),
    "step 0": (grid("rows = {start=1,stop=2,step=0}\nworkers=[1]"), "grid.columns.rows"),
    "doubling 0": (grid("rows = {start=0,stop=2,doubling=true}\nworkers=[1]"), "grid.columns.rows"),
    "too large": (
        grid("rows={start=1,stop=1000,step=1}\nworkers={start=1,stop=101,step=1}"),
        f"at most {MAX_CONFIGURATIONS}",
    ),
    "column name": (grid('rows=[1]\nworkers=[1]\n"a-b"=[1]'), "columns.a-b"),
    "taken name": (grid("rows=[1]\nworkers=[1]\nstatus=[1]"), "name is taken"),
    "constraint": (
        grid("rows=[1]\nworkers=[1]", '["rows > 0", "open(1)"]'),
        "grid.constraints: constraint 'open(1)': ",
    ),
    "no value": (grid("rows=[1]\nworkers=[1]", '["1 / (rows - 1) > 0"]'), "grid.constraints"),
    "all ruled out": (grid("rows=[1]\nworkers=[1]", '["rows > 1"]'), "no configuration"),
}
WRONG_RUNS = {
    "unknown key": ("repetition = 3", "run.repetition:"),
    "timeout NaN": ("timeout_seconds = nan", "run.timeout_seconds"),
    "timeout 0": ("timeout_seconds = 0", "run.timeout_seconds"),
    "repetitions": ("repetitions = 0", "run.repetitions"),
    "repetitions true": ("repetitions = true", "run.repetitions"),
    "a date": ("seed = 2020-01-01", "run.seed"),
}
WRONG = {
    "not TOML": ("name = ", "is not TOML"),
    "unknown table": (campaign_text(more="[runs]"), "runs:"),
    "no component": (campaign_text(components="component = []"), "component:"),
    "hostile name": (campaign_text().replace("nightly", "../../x"), "name:"),
    "same name": (campaign_text(components=component("a") * 2), "two are named 'a'"),
    "circle": (
        campaign_text(components=component("a", after='"b"') + component("b", after='"a"')),
        "circle",
    ),
    "after nothing": (
        campaign_text(components=component("a", after='"z"')),
        "component a: after: there is no component 'z'",
    ),
    "after itself": (campaign_text(components=component("a", after='"a"')), "circle"),
    "strategy": (campaign_text(more='[sampling]\nstrategy = "best"'), "sampling.strategy"),
    "most of all": (
        campaign_text(more="[sampling]\nmax_configurations = 3"),
        "sampling.max_configurations",
    ),
    "deep": ("a = " + "[" * 5000, "is not TOML"),
    "long": ("#" * (MAX_FILE_BYTES + 1), "at most"),
    **{
        case: (campaign_text(components=text), named)
        for case, (text, named) in WRONG_COMPONENTS.items()
    },
    **{case: (campaign_text(grid=text), named) for case, (text, named) in WRONG_GRIDS.items()},
    **{case: (campaign_text(run=text), named) for case, (text, named) in WRONG_RUNS.items()},
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_campaign_names_the_offending_key(tmp_path: Path, case: str) -> None:
    text, named = WRONG[case]
    with pytest.raises(ConfigurationError) as refused:
        load_campaign(write_campaign(tmp_path, text))
    assert named in str(refused.value)


def test_invalid_campaign_lists_all_problems_at_once(tmp_path: Path) -> None:
    text = campaign_text(
        components=component("a", 'command = ["{nope}"]', after='"z"'),
        grid=grid("workers = [0]\nx = [1, true]", '["y > 1"]'),
    )
    with pytest.raises(ConfigurationError) as refused:
        load_campaign(write_campaign(tmp_path, text))
    for key in (
        "grid.size",
        "columns.workers",
        "columns.x",
        "grid.constraints",
        "after",
        "command: ",
    ):
        assert key in str(refused.value)


def test_missing_or_unreadable_campaign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_campaign(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_campaign(tmp_path)


VALUES = st.sampled_from(
    [
        *("1", "0", "-1", "1e400", "nan", "inf", "true", '""', '"x"', "[]", "[1, 2]", "{}"),
        *("9" * 400, '["a", 1]', "2020-01-01", "{start=1,stop=9,step=2}", "[[1]]", '"{rows}"'),
        *("{start=1e-300,stop=1e15,doubling=true}", '"http://[::1"', '"\\u0000"', '["\\u0000"]'),
    ]
)
KEYS = st.sampled_from(
    [
        *("name", "component", "grid.size", "grid.columns.rows", "grid.columns.x", "run.seed"),
        *("run.repetitions", "run.max_trials", "sampling.strategy", "machine.node_type", "grid"),
        *("run.timeout_seconds", "grid.constraints", "run.components", "grid.columns", "x"),
    ]
)
COMPONENT_KEYS = st.sampled_from(
    ["name", "command", "callable", "http", "http.url", "http.headers", "after", "environment"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.dictionaries(KEYS, VALUES, max_size=8),
    st.lists(st.dictionaries(COMPONENT_KEYS, VALUES, max_size=4), max_size=3),
)
def test_load_campaign_of_any_settings_succeeds_or_raises_configuration_error(
    tmp_path: Path, content: dict[str, str], components: list[dict[str, str]]
) -> None:
    base = {"name": '"n"', "grid.size": '"rows"', "grid.parallelism": '"workers"'}
    base |= {"grid.columns.rows": "[1]", "grid.columns.workers": "[1]"}
    lines = [f"{key} = {value}" for key, value in (base | content).items()]
    for each in components or [{"name": '"a"', "command": '["true"]'}]:
        lines += ["[[component]]", *(f"{key} = {value}" for key, value in each.items())]
    check("\n".join(lines).encode(), tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8")))
def test_load_campaign_of_any_bytes_succeeds_or_raises_configuration_error(
    tmp_path: Path, content: bytes
) -> None:
    check(content, tmp_path)


def check(content: bytes, directory: Path) -> None:
    path = directory / "campaign.toml"
    path.write_bytes(content)
    with contextlib.suppress(ConfigurationError):
        load_campaign(path)
