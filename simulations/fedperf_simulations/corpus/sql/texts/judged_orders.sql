-- Judged, never trained on: 20 queries of our own over the tables in the manner of TPC-H.

-- name: o01_selective_scan
SELECT l_orderkey, l_linenumber, l_extendedprice, l_shipmode FROM lineitem
WHERE l_quantity = 50 AND l_discount = 0.1 AND l_tax = 0.08 AND l_shipmode = 'TRUCK'
  AND l_shipdate BETWEEN DATE '1995-05-01' AND DATE '1995-05-31'
ORDER BY l_orderkey, l_linenumber;

-- name: o02_dearest_lines
SELECT l_orderkey, l_partkey, l_extendedprice * (1 + l_tax) AS gross, l_receiptdate FROM lineitem
ORDER BY gross DESC, l_orderkey LIMIT 500;

-- name: o03_lines_of_each_order
SELECT AVG(lines) AS mean_lines, MAX(worth) AS largest, COUNT(*) AS orders_seen
FROM (SELECT l_orderkey, COUNT(*) AS lines, SUM(l_extendedprice) AS worth
  FROM lineitem GROUP BY l_orderkey) AS per_order;

-- name: o04_rollup_of_ways
SELECT l_shipmode, l_shipinstruct, l_returnflag, COUNT(*) AS lines, SUM(l_quantity) AS pieces,
  AVG(l_discount) AS discount
FROM lineitem GROUP BY ROLLUP (l_shipmode, l_shipinstruct, l_returnflag)
ORDER BY lines DESC;

-- name: o05_customers_by_month
SELECT EXTRACT(YEAR FROM o_orderdate) AS y, EXTRACT(MONTH FROM o_orderdate) AS m,
  COUNT(DISTINCT o_custkey) AS customers, COUNT(DISTINCT o_clerk) AS clerks, SUM(o_totalprice) AS total
FROM orders GROUP BY EXTRACT(YEAR FROM o_orderdate), EXTRACT(MONTH FROM o_orderdate)
ORDER BY y, m;

-- name: o06_three_best_of_segment
SELECT c_mktsegment, c_name, spent, place
FROM (SELECT c_mktsegment, c_name, spent,
    RANK() OVER (PARTITION BY c_mktsegment ORDER BY spent DESC) AS place
  FROM (SELECT c_mktsegment, c_name, SUM(o_totalprice) AS spent
    FROM customer JOIN orders ON o_custkey = c_custkey GROUP BY c_mktsegment, c_name) AS sums) AS ranked
WHERE place <= 3 ORDER BY c_mktsegment, place, c_name;

-- name: o07_days_between_orders
SELECT o_orderpriority, COUNT(*) AS pairs, AVG(o_totalprice - before_price) AS rise
FROM (SELECT o_orderpriority, o_totalprice,
    LAG(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS before_price
  FROM orders) AS sequence
WHERE before_price IS NOT NULL GROUP BY o_orderpriority ORDER BY o_orderpriority;

-- name: o08_parts_never_sold_by_mail
SELECT p_brand, COUNT(*) AS parts FROM part
WHERE NOT EXISTS (SELECT 1 FROM lineitem
  WHERE l_partkey = p_partkey AND l_shipmode = 'MAIL' AND l_returnflag = 'R')
GROUP BY p_brand ORDER BY parts DESC, p_brand;

-- name: o09_customers_of_green_parts
SELECT n_name, COUNT(*) AS customers FROM customer JOIN nation ON c_nationkey = n_nationkey
WHERE c_custkey IN (
  SELECT o_custkey FROM orders JOIN lineitem ON l_orderkey = o_orderkey
    JOIN part ON p_partkey = l_partkey
  WHERE p_name LIKE '%green%' AND p_container LIKE 'JUMBO%')
GROUP BY n_name ORDER BY customers DESC;

-- name: o10_quarters_as_union
SELECT 'first' AS part_of_year, COUNT(*) AS n, SUM(l_extendedprice) AS worth FROM lineitem
WHERE EXTRACT(MONTH FROM l_shipdate) <= 3
UNION ALL
SELECT 'last' AS part_of_year, COUNT(*) AS n, SUM(l_extendedprice) AS worth FROM lineitem
WHERE EXTRACT(MONTH FROM l_shipdate) >= 10
UNION ALL
SELECT 'open' AS part_of_year, COUNT(*) AS n, SUM(o_totalprice) AS worth FROM orders
WHERE o_orderstatus = 'O';

-- name: o11_words_of_comments
SELECT UPPER(SUBSTRING(o_comment, 1, 4)) AS beginning, COUNT(*) AS n,
  AVG(LENGTH(o_comment)) AS letters, MAX(CONCAT(o_orderpriority, '/', o_clerk)) AS tag
FROM orders WHERE o_comment LIKE '%haggle%' OR o_comment LIKE 'express%'
GROUP BY UPPER(SUBSTRING(o_comment, 1, 4)) ORDER BY n DESC;

-- name: o12_suppliers_together
SELECT a.l_suppkey AS one, b.l_suppkey AS other, COUNT(*) AS times
FROM lineitem a JOIN lineitem b ON a.l_orderkey = b.l_orderkey AND a.l_suppkey < b.l_suppkey
WHERE a.l_shipdate >= DATE '1997-06-01' AND a.l_shipdate < DATE '1997-08-01'
GROUP BY a.l_suppkey, b.l_suppkey ORDER BY times DESC, one, other LIMIT 25;

-- name: o13_above_the_customers_mean
SELECT COUNT(*) AS orders_above, SUM(o_totalprice) AS worth FROM orders o
WHERE o_totalprice > (SELECT 1.5 * AVG(i.o_totalprice) FROM orders i WHERE i.o_custkey = o.o_custkey);

-- name: o14_margin_chain
WITH costs AS (
  SELECT ps_partkey, MIN(ps_supplycost) AS least, MAX(ps_supplycost) AS most
  FROM partsupp GROUP BY ps_partkey),
margins AS (
  SELECT p_mfgr, l_extendedprice / l_quantity - least AS best, l_extendedprice / l_quantity - most
    AS worst
  FROM lineitem JOIN costs ON ps_partkey = l_partkey JOIN part ON p_partkey = l_partkey
  WHERE l_returnflag <> 'R')
SELECT p_mfgr, AVG(best) AS best, AVG(worst) AS worst, COUNT(*) AS n FROM margins
GROUP BY p_mfgr ORDER BY p_mfgr;

-- name: o15_ten_tables_star
SELECT r.r_name AS buyers, r2.r_name AS sellers, COUNT(*) AS lines, SUM(l_quantity) AS pieces
FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
  JOIN nation n ON n.n_nationkey = c_nationkey JOIN region r ON r.r_regionkey = n.n_regionkey
  JOIN supplier ON s_suppkey = l_suppkey JOIN nation n2 ON n2.n_nationkey = s_nationkey
  JOIN region r2 ON r2.r_regionkey = n2.n_regionkey JOIN part ON p_partkey = l_partkey
WHERE p_size > 10 AND o_orderdate >= DATE '1993-01-01'
GROUP BY r.r_name, r2.r_name ORDER BY pieces DESC;

-- name: o16_running_total
SELECT MAX(running) AS highest, AVG(moving) AS level
FROM (SELECT SUM(total) OVER (ORDER BY o_orderdate) AS running,
    AVG(total) OVER (ORDER BY o_orderdate ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS moving
  FROM (SELECT o_orderdate, SUM(o_totalprice) AS total FROM orders GROUP BY o_orderdate) AS days) AS w;

-- name: o17_distinct_pairs
SELECT COUNT(*) AS pairs FROM (SELECT DISTINCT l_partkey, l_suppkey, l_shipmode FROM lineitem
  WHERE l_shipdate >= DATE '1994-01-01') AS d;

-- name: o18_days_late
SELECT l_shipmode, COUNT(*) FILTER (WHERE l_receiptdate > l_commitdate) AS late,
  COUNT(*) AS all_lines, MIN(l_shipdate) AS earliest, STDDEV_SAMP(l_extendedprice) AS spread
FROM lineitem WHERE l_linestatus = 'F' GROUP BY l_shipmode ORDER BY late DESC;

-- name: o19_customers_without_and_with
SELECT c_mktsegment, COUNT(*) AS customers, COUNT(spent) AS buyers, AVG(COALESCE(spent, 0)) AS mean
FROM customer LEFT JOIN (SELECT o_custkey, SUM(o_totalprice) AS spent FROM orders
    WHERE o_orderdate >= DATE '1998-01-01' GROUP BY o_custkey) AS recent ON o_custkey = c_custkey
GROUP BY c_mktsegment ORDER BY c_mktsegment;

-- name: o20_last_line_of_order
SELECT COUNT(*) AS n, AVG(l_extendedprice) AS price
FROM (SELECT l_extendedprice,
    ROW_NUMBER() OVER (PARTITION BY l_orderkey ORDER BY l_shipdate DESC, l_linenumber) AS place
  FROM lineitem WHERE l_quantity > 5) AS numbered
WHERE place = 1;
