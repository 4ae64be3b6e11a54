-- Tables in the manner of TPC-H, for DuckDB: {rows} is about the number of rows of lineitem.
-- noise(i, salt) is a hash of both, evenly over 64 bits.

-- name: region
SELECT r AS r_regionkey, ['AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'MIDDLE EAST'][r + 1] AS r_name
FROM range(5) t(r);

-- name: nation
SELECT n AS n_nationkey,
  ['ALGERIA', 'ARGENTINA', 'BRAZIL', 'CANADA', 'EGYPT', 'ETHIOPIA', 'FRANCE', 'GERMANY', 'INDIA',
   'INDONESIA', 'IRAN', 'IRAQ', 'JAPAN', 'JORDAN', 'KENYA', 'MOROCCO', 'MOZAMBIQUE', 'PERU',
   'CHINA', 'ROMANIA', 'SAUDI ARABIA', 'VIETNAM', 'RUSSIA', 'UNITED KINGDOM',
   'UNITED STATES'][n + 1] AS n_name,
  [0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1][n + 1] AS n_regionkey
FROM range(25) t(n);

-- name: supplier
SELECT s AS s_suppkey, 'Supplier#' || lpad(s::VARCHAR, 9, '0') AS s_name,
  'street ' || (noise(s, 1) % 5000) AS s_address, (noise(s, 2) % 25)::INTEGER AS s_nationkey,
  (10 + s % 25) || '-' || (100 + noise(s, 3) % 900) || '-' || (1000 + noise(s, 4) % 9000) AS s_phone,
  ((noise(s, 5) % 1100000)::DOUBLE - 100000) / 100 AS s_acctbal,
  CASE WHEN noise(s, 6) % 100 = 0 THEN 'slow Customer answers, many Complaints'
    ELSE ['even', 'bold', 'quiet', 'ironic'][1 + (noise(s, 7) % 4)::INTEGER] || ' deposits wake' END
    AS s_comment
FROM range(1, 1 + greatest({rows} // 600, 10)) t(s);

-- name: customer
SELECT c AS c_custkey, 'Customer#' || lpad(c::VARCHAR, 9, '0') AS c_name,
  'avenue ' || (noise(c, 1) % 100000) AS c_address, (noise(c, 2) % 25)::INTEGER AS c_nationkey,
  (10 + noise(c, 2) % 25) || '-' || (100 + noise(c, 3) % 900) || '-' || (1000 + noise(c, 4) % 9000)
    AS c_phone,
  ((noise(c, 5) % 1100000)::DOUBLE - 100000) / 100 AS c_acctbal,
  ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'][1 + (noise(c, 6) % 5)::INTEGER]
    AS c_mktsegment,
  ['regular', 'final', 'pending', 'careful', 'silent'][1 + (noise(c, 7) % 5)::INTEGER]
    || ' accounts ' || (noise(c, 8) % 1000) AS c_comment
FROM range(1, 1 + greatest({rows} // 40, 30)) t(c);

-- name: part
SELECT p AS p_partkey,
  w[1 + (noise(p, 1) % 20)::INTEGER] || ' ' || w[1 + (noise(p, 2) % 20)::INTEGER] || ' '
    || w[1 + (noise(p, 3) % 20)::INTEGER] AS p_name,
  'Manufacturer#' || (1 + noise(p, 4) % 5) AS p_mfgr,
  'Brand#' || (1 + noise(p, 4) % 5) || (1 + noise(p, 5) % 5) AS p_brand,
  ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'][1 + (noise(p, 6) % 6)::INTEGER] || ' '
    || ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'][1 + (noise(p, 7) % 5)::INTEGER]
    || ' ' || ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'][1 + (noise(p, 8) % 5)::INTEGER] AS p_type,
  (1 + noise(p, 9) % 50)::INTEGER AS p_size,
  ['SM', 'LG', 'MED', 'JUMBO', 'WRAP'][1 + (noise(p, 10) % 5)::INTEGER] || ' '
    || ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'][1 + (noise(p, 11) % 8)::INTEGER]
    AS p_container,
  900 + (p % 1000) / 10.0 + (noise(p, 12) % 10000) / 100.0 AS p_retailprice
FROM range(1, 1 + greatest({rows} // 30, 40)) t(p), (SELECT
  ['almond', 'azure', 'beige', 'blue', 'brown', 'chocolate', 'coral', 'cream', 'forest', 'gold',
   'green', 'ivory', 'khaki', 'lemon', 'linen', 'maroon', 'olive', 'plum', 'red', 'white'] AS w);

-- name: partsupp
SELECT p AS ps_partkey, 1 + (p + j * (s // 4 + p // s)) % s AS ps_suppkey,
  (1 + noise(p * 4 + j, 1) % 9999)::INTEGER AS ps_availqty,
  1 + (noise(p * 4 + j, 2) % 99900) / 100.0 AS ps_supplycost
FROM range(1, 1 + greatest({rows} // 30, 40)) t(p), range(4) u(j),
  (SELECT greatest({rows} // 600, 10) AS s);

-- name: orders
SELECT o AS o_orderkey, 1 + 3 * (noise(o, 1) % (c // 3))::BIGINT + (noise(o, 2) % 2)::BIGINT
    AS o_custkey,
  CASE WHEN day < 1230 THEN 'F' WHEN day > 1280 THEN 'O' ELSE 'P' END AS o_orderstatus,
  1000 + (noise(o, 4) % 45000000) / 100.0 AS o_totalprice,
  DATE '1992-01-01' + day AS o_orderdate,
  ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'][1 + (noise(o, 5) % 5)::INTEGER]
    AS o_orderpriority,
  'Clerk#' || lpad((noise(o, 6) % greatest({rows} // 6000, 10))::VARCHAR, 9, '0') AS o_clerk,
  0 AS o_shippriority,
  w[1 + (noise(o, 7) % 12)::INTEGER] || ' ' || w[1 + (noise(o, 8) % 12)::INTEGER] || ' '
    || w[1 + (noise(o, 9) % 12)::INTEGER] || ' ' || (noise(o, 10) % 10000) AS o_comment
FROM (SELECT o, (noise(o, 3) % 2406)::INTEGER AS day FROM range(1, 1 + {rows} // 4) t(o)),
  (SELECT greatest({rows} // 40, 30) AS c), (SELECT
  ['special', 'requests', 'furious', 'packages', 'sleep', 'above', 'express', 'ideas', 'nag',
   'blithe', 'theodolites', 'haggle'] AS w);

-- name: lineitem
SELECT o AS l_orderkey, p AS l_partkey,
  1 + (p + (noise(o * 8 + n, 2) % 4)::BIGINT * (s // 4 + p // s)) % s AS l_suppkey,
  (n + 1)::INTEGER AS l_linenumber, (1 + noise(o * 8 + n, 3) % 50)::DOUBLE AS l_quantity,
  (1 + noise(o * 8 + n, 3) % 50) * (900 + (noise(o * 8 + n, 4) % 100000) / 100.0) AS l_extendedprice,
  (noise(o * 8 + n, 5) % 11) / 100.0 AS l_discount, (noise(o * 8 + n, 6) % 9) / 100.0 AS l_tax,
  CASE WHEN day + ship + arrive > 1263 THEN 'N' WHEN noise(o * 8 + n, 7) % 2 = 0 THEN 'A' ELSE 'R' END
    AS l_returnflag,
  CASE WHEN day + ship > 1263 THEN 'O' ELSE 'F' END AS l_linestatus,
  DATE '1992-01-01' + (day + ship) AS l_shipdate,
  DATE '1992-01-01' + (day + 30 + (noise(o * 8 + n, 9) % 61)::INTEGER) AS l_commitdate,
  DATE '1992-01-01' + (day + ship + arrive) AS l_receiptdate,
  ['DELIVER IN PERSON', 'COLLECT COD', 'NONE', 'TAKE BACK RETURN'][1 + (noise(o * 8 + n, 10) % 4)::INTEGER]
    AS l_shipinstruct,
  ['AIR', 'AIR REG', 'FOB', 'MAIL', 'RAIL', 'SHIP', 'TRUCK'][1 + (noise(o * 8 + n, 11) % 7)::INTEGER]
    AS l_shipmode
FROM (
  SELECT *, 1 + (noise(o * 8 + n, 1) % greatest({rows} // 30, 40))::BIGINT AS p,
    (1 + noise(o * 8 + n, 8) % 121)::INTEGER AS ship, (1 + noise(o * 8 + n, 12) % 30)::INTEGER AS arrive
  FROM (
    SELECT o, (noise(o, 3) % 2406)::INTEGER AS day,
      unnest(range((1 + noise(o, 11) % 7)::BIGINT)) AS n
    FROM range(1, 1 + {rows} // 4) t(o))),
  (SELECT greatest({rows} // 600, 10) AS s);
