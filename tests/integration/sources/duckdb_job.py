"""Queries over tables like those of TPC-H, profiled by the DuckDB that runs this file.

Run it with a directory. It writes the profiles `{native,parquet}-{threads}-{query}.json`.
"""

import sys
from pathlib import Path

SIZES = {"lineitem": 600_000, "orders": 150_000, "customer": 15_000, "part": 20_000, "nation": 25}

TABLES = {
    "nation": "SELECT i::INT AS n_nationkey, 'n' || i AS n_name, (i % 5)::INT AS n_regionkey",
    "customer": """SELECT i AS c_custkey, (hash(i) % 25)::INT AS c_nationkey,
        'S' || (hash(i + 7) % 5) AS c_segment, (hash(i + 3) % 1000000) / 100.0 AS c_balance""",
    "part": """SELECT i AS p_partkey, 'Brand#' || (hash(i + 1) % 25) AS p_brand,
        (hash(i + 2) % 50)::INT AS p_size""",
    "orders": """SELECT i AS o_orderkey, (hash(i + 11) % 15000)::BIGINT AS o_custkey,
        DATE '1992-01-01' + (hash(i + 1) % 2400)::INT AS o_date,
        (hash(i) % 5)::INT AS o_priority""",
    "lineitem": """SELECT i // 4 AS l_orderkey, (hash(i) % 20000)::BIGINT AS l_partkey,
        (hash(i + 1) % 50)::INT AS l_quantity, (hash(i + 2) % 100000) / 10.0 AS l_price,
        (hash(i + 3) % 11) / 100.0 AS l_discount, 'M' || (hash(i + 6) % 7) AS l_mode,
        DATE '1992-01-01' + (hash(i + 4) % 2500)::INT AS l_date""",
}

QUERIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "q1": (
        "SELECT l_mode, sum(l_price) FROM lineitem l WHERE l_date <= DATE '1998-06-02' GROUP BY 1",
        ("lineitem",),
    ),
    "q6": (
        "SELECT sum(l_price * l_discount) FROM lineitem l WHERE l_date >= DATE '1994-01-01' AND "
        "l_date < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        ("lineitem",),
    ),
    "whole": ("SELECT sum(l_price), max(l_quantity) FROM lineitem l", ("lineitem",)),
    "equal": ("SELECT sum(l_price) FROM lineitem l WHERE l_mode = 'M3'", ("lineitem",)),
    "q3": (
        "SELECT o_orderkey, sum(l_price) AS revenue FROM customer c, orders o, lineitem l WHERE "
        "c_segment = 'S1' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND "
        "o_date < DATE '1995-03-15' AND l_date > DATE '1995-03-15' "
        "GROUP BY 1 ORDER BY revenue DESC LIMIT 10",
        ("customer", "orders", "lineitem"),
    ),
    "q4": (
        "SELECT o_priority, count(*) FROM orders o WHERE o_date >= DATE '1993-07-01' AND "
        "o_orderkey IN (SELECT l_orderkey FROM lineitem l WHERE l_quantity < 30) GROUP BY 1",
        ("orders", "lineitem"),
    ),
    "q5": (
        "SELECT n_name, sum(l_price) FROM customer c, orders o, lineitem l, nation n WHERE "
        "c_custkey = o_custkey AND l_orderkey = o_orderkey AND c_nationkey = n_nationkey AND "
        "o_date >= DATE '1994-01-01' GROUP BY 1",
        ("customer", "orders", "lineitem", "nation"),
    ),
    "q14": (
        "SELECT sum(CASE WHEN p_brand = 'Brand#1' THEN l_price END) FROM lineitem l, part p WHERE "
        "l_partkey = p_partkey AND l_date BETWEEN DATE '1995-09-01' AND DATE '1995-10-01'",
        ("lineitem", "part"),
    ),
    "sizes": ("SELECT count(*) FROM part p WHERE p_size < 15", ("part",)),
    "customers": ("SELECT c_segment, sum(c_balance) FROM customer c GROUP BY 1", ("customer",)),
    "balance": ("SELECT sum(c_balance) FROM customer c WHERE c_balance > 9000", ("customer",)),
    "nations": ("SELECT n_name, max(n_regionkey) FROM nation n GROUP BY 1", ("nation",)),
    "limit": ("SELECT l_price FROM lineitem l WHERE l_quantity < 10 LIMIT 10", ()),
}
"""SQL of each query, and the tables that it reads completely."""


def main(directory: Path) -> None:
    """Create the tables and profile every query on 1 and 4 threads."""
    import duckdb

    database = duckdb.connect(str(directory / "tables.db"))
    database.execute("CREATE SCHEMA parquet")
    for name, columns in TABLES.items():
        file = directory / f"{name}.parquet"
        database.execute(f"CREATE TABLE {name} AS {columns} FROM range({SIZES[name]}) t(i)")
        database.execute(f"COPY {name} TO '{file}' (FORMAT parquet)")
        database.execute(f"CREATE VIEW parquet.{name} AS FROM read_parquet('{file}')")
    database.execute("CHECKPOINT")
    for schema, place in (("main", "native"), ("parquet", "parquet")):
        database.execute(f"USE {schema}")
        for threads in (1, 4):
            database.execute(f"SET threads = {threads}")
            for name, (query, _) in QUERIES.items():
                profile = directory / f"{place}-{threads}-{name}.json"
                database.execute("SET enable_profiling = 'json'")
                database.execute(f"SET profiling_output = '{profile}'")
                database.execute(query).fetchall()
                database.execute("PRAGMA disable_profiling")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
