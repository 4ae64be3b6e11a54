"""Tests of display names: a query without a description is named by its inputs and outputs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedperf_client.sources.spark.names import LONGEST_DISPLAY_NAME, job_name, query_name
from tests.fakes.spark_logs import SparkLog, grouped, node, read_log

Json = dict[str, object]
COUNT = "count at NativeMethodAccessorImpl.java:0"


def scan(name: str, text: str = "", location: str = "") -> Json:
    return {**node(name, description=text or name), "metadata": {"Location": location}}


def files(*paths: str, form: str = "parquet") -> Json:
    where = f"InMemoryFileIndex({len(paths)} paths)[{', '.join(paths)}]"
    return scan(f"Scan {form} ", location=where)


def written(command: str, *below: Json) -> Json:
    return node(command.partition("Command")[0] + "Command", *below, description=command)


INSERT = "Execute InsertIntoHadoopFsRelationCommand {}, false, Parquet, [path=x], Overwrite, [id]"
READ = [
    (files("file:/data/orders.parquet"), "orders.parquet"),
    (files("hdfs://nn:8020/warehouse/sales/orders/date=2026-11-27"), "orders"),
    (files("s3a://bucket/orders/2026/11/27"), "orders"),
    (files("s3a://bucket/orders_2026-11-27.csv", form="csv"), "orders_*.csv"),
    (files("s3a://KEY:SECRET@bucket"), "bucket"),
    (files("s3a://KEY:SE/CRET@bucket"), "bucket"),
    (files("https://acme.example/orders?sig=SECRET#SECRET"), "orders"),
    (files("abfss://box@store.dfs.core.windows.net/lake/orders/_delta_log"), "orders"),
    (files("/a/orders/part-00000-1c9a-SECRET.snappy.parquet"), "orders"),
    (files("/a/orders", "/a/customers"), "orders, customers"),
    (files(*[f"/a/t{n}x" for n in range(9)]), "t0x, t1x, t2x and 6 more"),
    (scan("Scan parquet spark_catalog.default.people"), "people"),
    (scan("Scan parquet spark_catalog.sales.orders"), "sales.orders"),
    (scan("Scan hive default.people"), "people"),
    (scan("BatchScan prod.sales.orders"), "sales.orders"),
    (scan("BatchScan parquet file:/data/orders"), "orders"),
    (
        scan("BatchScan", "BatchScan[a#1] X Location: InMemoryFileIndex[file:/d/orders], P"),
        "orders",
    ),
    (scan("Scan JDBCRelation(shop.orders) [numPartitions=1] "), "shop.orders"),
    (scan("Scan JDBCRelation((SELECT * FROM t WHERE x='SECRET') q) [n=1] "), "a JDBC query"),
    (scan("MicroBatchScan", "MicroBatchScan[] KafkaV2[Subscribe[orders]]"), "orders"),
    (
        scan("HiveTableScan", "HiveTableScan [k#1], HiveTableRelation [`db`.`orders`, org.x, ["),
        "db.orders",
    ),
    (scan("Scan csv ", location="InMemoryFileIndex(1 paths)[file:/data/lake/ord..."), "lake"),
    (scan("Scan csv ", location="InMemoryFileIndex(1 paths)[file:/data/lake/ord"), "lake"),
]


@pytest.mark.parametrize(("plan", "told"), READ)
def test_query_name_contains_tables_and_files_read(plan: Json, told: str) -> None:
    assert query_name(COUNT, node("HashAggregate", plan)) == f"count of {told}"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (INSERT.format("file:/out/daily"), "daily"),
        (INSERT.format("s3a://KEY:SECRET@b/out/daily/dt=2026-11-27"), "daily"),
        ("Execute CreateDataSourceTableAsSelectCommand `default`.`daily`, Overwrite, [v]", "daily"),
        ("Execute InsertIntoHiveTableCommand `db`.`daily`, org.apache", "db.daily"),
        (
            "Execute SaveIntoDataSourceCommand org.x.Delta@1f, Map(path -> s3a://b/daily, k -> v)",
            "daily",
        ),
        (
            "Execute SaveIntoDataSourceCommand org.x.Jdbc@1f, Map(password -> SECRET, "
            "url -> jdbc:x://h/d?user=SECRET, dbtable -> shop.daily), Append",
            "shop.daily",
        ),
    ],
)
def test_query_name_contains_target_written(command: str, told: str) -> None:
    plan = written(command, files("/data/orders"))
    said = query_name("parquet at NativeMethodAccessorImpl.java:0", plan)
    assert said == f"write of orders -> {told}"


@pytest.mark.parametrize(
    "bridge",
    [
        "showString at NativeMethodAccessorImpl.java:0",
        "show at DirectMethodHandleAccessor.java:103",
        "show at <stdin>:1",
        "show at <unknown>:0",
        "show at <ipython-input-3-5f1c>:2",
        "show at <console>:26",
        "show at command-4321:1",
    ],
)
def test_query_name_replaces_generic_call_sites(bridge: str) -> None:
    assert query_name(bridge, files("/data/orders")) == "show of orders"


@pytest.mark.parametrize(
    "described",
    [
        "nightly sum",
        "count at /home/me/etl.py:13",
        "count at Etl.scala:13",
        "save what was seen at night",
        "select 1 at <once>",
        "",
    ],
)
def test_informative_description_is_kept_as_name(described: str) -> None:
    assert query_name(described, files("/data/orders")) == described
    assert job_name(described, []) == described


def test_query_name_without_inputs_and_outputs_keeps_its_call_site() -> None:
    assert query_name(COUNT, node("HashAggregate", node("Range"))) == COUNT
    assert query_name(COUNT, files("/2026/11/27")) == COUNT
    assert query_name("run at ThreadPoolExecutor.java:1149", files("/d/x")) == "query of x"


def test_job_name_of_rdds_contains_files_read(tmp_path: Path) -> None:
    rdds = [
        {"RDD ID": 1, "Name": "PythonRDD", "Parent IDs": [0]},
        {"RDD ID": 0, "Name": "s3a://KEY:SECRET@b/logs/words.txt", "Parent IDs": []},
    ]
    log = SparkLog().begin()
    log.job(None, rdds=rdds, call_site="collect at <stdin>:1")
    log.job(
        None,
        rdds=rdds,
        call_site="collect at <stdin>:1",
        description="words of ACME",
        at=4000,
        end=5000,
    )
    log.job(None, rdds=rdds, call_site="collect at /me/a.py:1", at=6000, end=7000)
    (plain, described, placed), _ = read_log(log.write(tmp_path / "log"))
    assert plain.origin.description == "collect of words.txt"
    assert described.origin.description == "words of ACME"
    assert placed.origin.description == "collect at /me/a.py:1"


def test_workload_and_id_are_independent_of_data_names(tmp_path: Path) -> None:
    found = []
    for name in ("orders", "customers"):
        log = SparkLog().begin()
        log.start(1, files(f"/data/{name}"), description=COUNT).job(1).finish(1)
        found += read_log(log.write(tmp_path / "log"))[0]
    assert [each.origin.description for each in found] == ["count of orders", "count of customers"]
    assert found[0].workload == found[1].workload
    assert found[0].execution_id == found[1].execution_id


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


@given(
    name=st.text(max_size=60) | st.sampled_from(["Scan parquet ", "Scan json a.b", "Execute Save"]),
    text=st.text(max_size=300) | JSON,
    location=st.text(max_size=300) | JSON,
)
def test_query_name_of_any_plan_is_bounded_and_one_line(
    name: str, text: object, location: object
) -> None:
    plan = {"nodeName": name, "simpleString": text, "metadata": {"Location": location}}
    said = query_name(COUNT, {**plan, "children": [plan, location]})
    assert len(said) <= LONGEST_DISPLAY_NAME
    assert said == COUNT or "\n" not in said
    job_name(COUNT, [{"RDD Info": [{"Name": text}, location]}, {"RDD Info": location}])


def test_names_of_very_long_texts_are_computed() -> None:
    """What comes far behind its beginning is not read."""
    hostile = "Scan Kafka" * 10_000 + "/" * 100_000 + "`" * 100_000
    for each in (
        scan(hostile + "JDBCRelation(shop.orders)"),
        scan("HiveTableScan", hostile + "HiveTableRelation [`db`.`orders`"),
        scan("Scan parquet ", hostile + "Location: x[/data/orders]", "x[" + hostile),
    ):
        assert query_name(COUNT, each) == COUNT
    assert job_name(COUNT, [{"RDD Info": [{"Name": hostile + ",/data/orders"}]}]) == COUNT


PINNED = {
    "a51bd2f0dae16d1e12a8ea2aa71dd18f": "nightly-orders/0f5abebe9f2d",
    "d13f96588b284dadea554c2e1a8300d3": "nightly-orders/0f5abebe9f2d",
    "16f2199b35b1b35c7e17b0e1851165a1": (
        "nightly-orders/collect-at-nativemethodaccessorimpl-java-bfc513f8bb6e"
    ),
    "135d48a1dd1a948c428b7cee6e9e8dd5": "pysparkshell/0f5abebe9f2d",
    "e01f7102f58237116afd093f21ac6aa3": "pysparkshell/count-at-acme-py-bfc513f8bb6e",
}
"""Ids and workloads from before runs were named by their data."""


def own_logs() -> tuple[SparkLog, SparkLog]:
    one = SparkLog(app_id="app-7", app_name="Nightly orders 2026-11-27").begin()
    one.query(1, grouped(node("Scan parquet ", rows=1)), {1: 9, 2: 4, 3: 4})
    place = node("Scan parquet db.t", rows=1)
    one.start(2, grouped(place), at=9000, description="count at <stdin>:1")
    one.job(2, {1: 9}, at=9100, end=9900).finish(2, at=9950)
    rdd = {"RDD ID": 0, "Name": "/data/words.txt", "Parent IDs": []}
    asked = "collect at NativeMethodAccessorImpl.java:0"
    one.job(None, rdds=[rdd], call_site=asked, at=11000, end=12000)
    other = SparkLog(app_id="app-8", app_name="PySparkShell").begin()
    other.query(5, node("HashAggregate", place), {1: 9})
    other.job(None, rdds=[rdd], call_site="count at /me/acme.py:13", at=9000, end=9900)
    return one, other


def test_execution_ids_and_workloads_equal_pinned_values(tmp_path: Path) -> None:
    found = [run for log in own_logs() for run in read_log(log.write(tmp_path / "log"))[0]]
    assert {each.execution_id: each.workload for each in found} == PINNED
    descriptions = [each.origin.description for each in found]
    assert {"count of db.t", "collect of words.txt"} <= set(descriptions)
