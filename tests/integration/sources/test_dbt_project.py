"""A project that dbt itself runs: its results as history, its models as queries."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.client.data_directories import empty_home, fedperf

duckdb = pytest.importorskip("duckdb", reason="DuckDB is of the extra engines")

DBT = os.environ.get("FEDPERF_DBT") or shutil.which("dbt")
PROJECT = {
    "dbt_project.yml": "{name: shop, version: '1.0', profile: shop}",
    "profiles.yml": "shop: {target: a, outputs: {a: {type: duckdb, path: shop.duckdb}}}",
    "models/totals.sql": "{{ config(materialized='table') }} "
    "select item, sum(price) as total from main.events where price < 0.9 group by item",
    "models/kinds.sql": "select item % 7 as kind, max(total) as most from {{ ref('totals') }} "
    "group by 1",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        DBT is None,
        reason="dbt is not installed (it does not fit beside flwr): "
        "pip install dbt-core==1.10.23 dbt-duckdb==1.10.1 elsewhere and set FEDPERF_DBT to its dbt",
    ),
]


def dbt(project: Path, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [str(DBT), *arguments, "--profiles-dir", ".", "--no-version-check"],
        cwd=project,
        env=environment | {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false"},
        check=True,
        capture_output=True,
        timeout=240,
    )


def test_project_that_dbt_ran_is_history_and_its_models_are_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = empty_home(tmp_path, monkeypatch), tmp_path / "project"
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    database = project / "shop.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE events AS SELECT range % 99 AS item, random() AS price FROM range(100000)"
        )
    dbt(project, "run")
    predict = ("predict", project, "--database", database, "--json")

    def rows() -> dict[str, dict[str, object]]:
        found = fedperf(home, *predict).json()
        assert isinstance(found, list)
        return {each["query"]: each for each in found}

    before = rows()
    assert [*before] == ["model.shop.kinds", "model.shop.totals"]
    assert {each["rows_from"] for each in before.values()} == {"estimates"}
    results = project / "target" / "run_results.json"
    for new in (2, 0):
        taken = fedperf(home, "ingest", results, "--json").json()
        assert isinstance(taken, dict)
        assert (taken["read"], taken["new"], taken["skipped"]) == (2, new, {})
    assert {each["rows_from"] for each in rows().values()} == {"dbt runs"}
    changed = PROJECT["models/totals.sql"].replace("sum(price)", "max(price)")
    (project / "models" / "totals.sql").write_text(changed)
    dbt(project, "compile")
    after = {name: each["rows_from"] for name, each in rows().items()}
    assert after == {"model.shop.kinds": "dbt runs", "model.shop.totals": "estimates"}
