"""Join queries in the manner of TPC-H over customers, orders, lines and parts.

`rows` are the rows of `lines`. Foreign keys all point to existing, unique keys, so
no join gives more rows than its larger side has.
"""

import numpy as np

from fedperf_engines.platforms import operations as ops
from fedperf_engines.platforms.program import Program
from fedperf_engines.workloads.data import DAYS, HIGHEST_NUMBER, read
from fedperf_engines.workloads.program_draft import (
    Draft,
    between,
    chance,
    count,
    descending,
    eighths,
    mean,
    minus,
    pick,
    times,
    total,
    where,
)

_REVENUE = ops.ComputedColumn("revenue", "discount", (times(-1.0), minus(-1.0), times("price")))


def draw_tpch(rng: np.random.Generator, rows: int) -> Program:
    """One of six queries with drawn parameters."""
    queries = (
        _pricing_summary,
        _shipping_priority,
        _nation_volume,
        _returned_items,
        _brand_revenue,
        _large_orders,
    )
    return queries[int(rng.integers(len(queries)))](rng, rows)


def _pricing_summary(rng: np.random.Generator, rows: int) -> Program:
    """As query 1: one pass over lines, few groups."""
    draft = Draft()
    lines = draft.add(
        read("lines", rows, "quantity", "price", "discount", "ship_day", "return_flag")
    )
    shipped = draft.add(where("ship_day", "<=", _day(rng)), lines)
    priced = draft.add(ops.Project(("return_flag", "quantity", "price"), (_REVENUE,)), shipped)
    figures = (total("quantity", "pieces"), total("revenue", "net"), mean("price", "mean_price"))
    summary = draft.add(ops.Aggregate(("return_flag",), (*figures, count())), priced)
    return draft.finish(draft.add(ops.Sort(descending("net")), summary))


def _shipping_priority(rng: np.random.Generator, rows: int) -> Program:
    """As query 3: three tables, selective, best orders."""
    draft = Draft()
    day = _day(rng)
    customers = draft.add(read("customers", rows, "customer", "segment"))
    chosen = draft.add(where("segment", "=", f"segment_{between(rng, 0, 4):02d}"), customers)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    early = draft.add(where("order_day", "<", day), orders)
    bought = draft.add(ops.Join("order_customer", "customer"), early, chosen)
    lines = draft.add(read("lines", rows, "line_order", "price", "discount", "ship_day"))
    late = draft.add(where("ship_day", ">", day), lines)
    joined = draft.add(ops.Join("line_order", "order_id"), late, bought)
    priced = draft.add(ops.Project(("line_order", "order_day"), (_REVENUE,)), joined)
    summed = draft.add(
        ops.Aggregate(("line_order", "order_day"), (total("revenue", "net"),)), priced
    )
    return draft.finish(draft.add(ops.TopK(descending("net"), between(rng, 5, 100)), summed))


def _nation_volume(rng: np.random.Generator, rows: int) -> Program:
    """As query 5: three tables, a range of days, revenue per nation."""
    draft = Draft()
    first = between(rng, 0, DAYS // 2)
    last = first + between(rng, 100, DAYS // 2)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    since = draft.add(where("order_day", ">=", first), orders)
    period = draft.add(where("order_day", "<", last), since)
    customers = draft.add(read("customers", rows, "customer", "nation"))
    bought = draft.add(ops.Join("order_customer", "customer"), period, customers)
    lines = draft.add(read("lines", rows, "line_order", "price", "discount"))
    joined = draft.add(ops.Join("line_order", "order_id"), lines, bought)
    priced = draft.add(ops.Project(("nation",), (_REVENUE,)), joined)
    volume = draft.add(ops.Aggregate(("nation",), (total("revenue", "net"), count())), priced)
    return draft.finish(draft.add(ops.Sort(descending("net")), volume))


def _returned_items(rng: np.random.Generator, rows: int) -> Program:
    """As query 10: customers by lost revenue; many groups."""
    draft = Draft()
    lines = draft.add(read("lines", rows, "line_order", "price", "discount", "return_flag"))
    flag = f"flag_{between(rng, 0, 2):02d}"
    returned = draft.add(where("return_flag", "=", flag), lines)
    orders = draft.add(read("orders", rows, "order_id", "order_customer", "order_day"))
    recent = draft.add(where("order_day", ">", _day(rng)), orders)
    joined = draft.add(ops.Join("line_order", "order_id"), returned, recent)
    priced = draft.add(ops.Project(("order_customer",), (_REVENUE,)), joined)
    lost = draft.add(ops.Aggregate(("order_customer",), (total("revenue", "net"),)), priced)
    customers = draft.add(read("customers", rows))
    named = draft.add(ops.Join("order_customer", "customer"), lost, customers)
    return draft.finish(draft.add(ops.TopK(descending("net"), between(rng, 5, 200)), named))


def _brand_revenue(rng: np.random.Generator, rows: int) -> Program:
    """As queries 14 and 19: lines with parts of some size, by brand or altogether."""
    draft = Draft()
    parts = draft.add(read("parts", rows))
    small = draft.add(where("size", "<=", between(rng, 3, 50)), parts)
    lines = draft.add(read("lines", rows, "line_part", "price", "discount", "quantity"))
    few = draft.add(where("quantity", ">", between(rng, 0, 40)), lines)
    joined = draft.add(ops.Join("line_part", "part"), few, small)
    priced = draft.add(ops.Project(("brand", "quantity"), (_REVENUE,)), joined)
    figures = (total("revenue", "net"), mean("quantity", "mean_quantity"), count())
    if chance(rng, 0.3):
        return draft.finish(draft.add(ops.GlobalAggregate(figures), priced))
    return draft.finish(draft.add(ops.Aggregate(("brand",), figures), priced))


def _large_orders(rng: np.random.Generator, rows: int) -> Program:
    """As query 18: group all lines by order first, then join the large ones."""
    draft = Draft()
    lines = draft.add(read("lines", rows, "line_order", "quantity", "price"))
    figures = (total("quantity", "pieces"), total("price", "gross"))
    grouped = draft.add(ops.Aggregate(("line_order",), figures), lines)
    large = draft.add(where("pieces", ">", between(rng, 50, 200)), grouped)
    orders = draft.add(read("orders", rows))
    rich = draft.add(where("total", ">", eighths(rng, 0, HIGHEST_NUMBER * 0.7)), orders)
    joined = draft.add(ops.Join("line_order", "order_id"), large, rich)
    by = pick(rng, ("gross", "total", "pieces"))
    return draft.finish(draft.add(ops.TopK(descending(by), between(rng, 5, 500)), joined))


def _day(rng: np.random.Generator) -> int:
    return between(rng, DAYS // 10, DAYS * 9 // 10)
