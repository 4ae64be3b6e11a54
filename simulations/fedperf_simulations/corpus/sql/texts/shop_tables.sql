-- A shop with many branches, for DuckDB: {rows} rows of entries, skewed keys, texts, gaps.
-- noise(i, salt) is a hash of both, evenly over 64 bits.

-- name: stores
SELECT i AS store_id, 'Store ' || i AS label,
  ['north', 'south', 'east', 'west', 'abroad'][1 + (noise(i, 1) % 5)::INTEGER] AS area,
  (40 + noise(i, 2) % 2000)::INTEGER AS square_metres
FROM range(200) t(i);

-- name: buyers
SELECT i AS buyer_id, 'buyer ' || (noise(i, 1) % 1000000) AS name,
  'b' || (noise(i, 2) % 10000000) || '@' || ['mail', 'post', 'web', 'box'][
    1 + (noise(i, 3) % 4)::INTEGER] || '.example' AS email,
  'town_' || (300 * pow((noise(i, 4) % 10000) / 10000.0, 2))::INTEGER AS town,
  ['basic', 'silver', 'gold', 'black'][1 + least(3, (noise(i, 5) % 10)::INTEGER // 3)] AS tier,
  DATE '2012-01-01' + (noise(i, 6) % 4300)::INTEGER AS joined,
  (1940 + noise(i, 7) % 68)::INTEGER AS birth_year,
  ((noise(i, 8) % 900000)::DOUBLE - 50000) / 100 AS credit
FROM range(greatest({rows} // 30, 50)) t(i);

-- name: products
SELECT i AS product_id,
  w[1 + (noise(i, 1) % 10)::INTEGER] || ' ' || w[1 + (noise(i, 2) % 10)::INTEGER] || ' ' || i AS title,
  'category_' || (noise(i, 3) % 24) AS category,
  'vendor_' || (150 * pow((noise(i, 4) % 10000) / 10000.0, 2))::INTEGER AS vendor,
  (noise(i, 5) % 50000) / 100.0 AS list_price, (1 + noise(i, 6) % 9000)::INTEGER AS grams,
  DATE '2015-01-01' + (noise(i, 7) % 3200)::INTEGER AS launched
FROM range(greatest({rows} // 100, 40)) t(i), (SELECT
  ['oak', 'steel', 'lamp', 'chair', 'cable', 'tea', 'soft', 'large', 'mini', 'set'] AS w);

-- name: purchases
SELECT i AS purchase_id,
  (b * pow((noise(i, 1) % 1000000) / 1000000.0, 1.6))::BIGINT % b AS buyer_id,
  (200 * pow((noise(i, 2) % 10000) / 10000.0, 2))::BIGINT % 200 AS store_id,
  TIMESTAMP '2019-01-01' + to_seconds((i * 157680000.0 / ({rows} // 3))::BIGINT) AS bought_at,
  ['web', 'app', 'phone', 'desk'][1 + least(3, (noise(i, 3) % 8)::INTEGER // 2)] AS channel,
  ['paid', 'open', 'sent', 'back'][1 + (noise(i, 4) % 4)::INTEGER] AS state,
  (noise(i, 5) % 2000000) / 100.0 AS total,
  CASE WHEN noise(i, 6) % 6 = 0 THEN 'C' || (noise(i, 7) % 400) END AS coupon
FROM range({rows} // 3) t(i), (SELECT greatest({rows} // 30, 50) AS b);

-- name: entries
SELECT i // 3 AS purchase_id,
  (p * pow((noise(i, 1) % 1000000) / 1000000.0, 1.8))::BIGINT % p AS product_id,
  (1 + noise(i, 2) % 12)::INTEGER AS pieces, (noise(i, 3) % 90000) / 100.0 AS price,
  (noise(i, 4) % 6) / 20.0 AS rebate,
  CASE WHEN noise(i, 5) % 12 > 0 THEN DATE '2019-01-01' + (noise(i, 6) % 1900)::INTEGER END AS sent_on,
  w[1 + (noise(i, 7) % 12)::INTEGER] || ' ' || w[1 + (noise(i, 8) % 12)::INTEGER] || ' '
    || w[1 + (noise(i, 9) % 12)::INTEGER] AS note
FROM range({rows}) t(i), (SELECT greatest({rows} // 100, 40) AS p), (SELECT
  ['gift', 'wrap', 'leave', 'door', 'call', 'fragile', 'none', 'quick', 'ring', 'desk', 'blue',
   'later'] AS w);

-- name: reviews
SELECT i AS review_id,
  (p * pow((noise(i, 1) % 1000000) / 1000000.0, 2.2))::BIGINT % p AS product_id,
  (noise(i, 2) % b)::BIGINT AS buyer_id, (1 + noise(i, 3) % 5)::INTEGER AS stars,
  DATE '2019-01-01' + (noise(i, 4) % 1900)::INTEGER AS written_on,
  w[1 + (noise(i, 5) % 10)::INTEGER] || ' ' || w[1 + (noise(i, 6) % 10)::INTEGER] || ', ' ||
  w[1 + (noise(i, 7) % 10)::INTEGER] || ' ' || w[1 + (noise(i, 8) % 10)::INTEGER] || ' but ' ||
  w[1 + (noise(i, 9) % 10)::INTEGER] || ' ' || (noise(i, 10) % 10000) AS body
FROM range(greatest({rows} // 5, 50)) t(i), (SELECT greatest({rows} // 100, 40) AS p),
  (SELECT greatest({rows} // 30, 50) AS b), (SELECT
  ['good', 'slow', 'broken', 'nice', 'cheap', 'late', 'again', 'never', 'box', 'colour'] AS w);

-- name: clicks
SELECT i AS click_id,
  CASE WHEN noise(i, 1) % 4 > 0
    THEN (b * pow((noise(i, 2) % 1000000) / 1000000.0, 2.5))::BIGINT % b END AS buyer_id,
  (noise(i, 3) % p)::BIGINT AS product_id,
  TIMESTAMP '2023-01-01' + to_seconds((noise(i, 4) % 31536000)::BIGINT) AS clicked_at,
  ['phone', 'tablet', 'laptop'][1 + (noise(i, 5) % 3)::INTEGER] AS device,
  '/p/' || (noise(i, 3) % p) || '/' || ['view', 'cart', 'zoom', 'share'][
    1 + least(3, (noise(i, 6) % 12)::INTEGER // 3)] AS path,
  (noise(i, 7) % 60000)::INTEGER AS millis
FROM range({rows}) t(i), (SELECT greatest({rows} // 30, 50) AS b),
  (SELECT greatest({rows} // 100, 40) AS p);
