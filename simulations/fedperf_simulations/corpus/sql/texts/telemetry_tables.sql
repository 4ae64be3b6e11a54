-- Sensors and visitors of a web site, for DuckDB: {rows} rows of readings, skewed keys, gaps.
-- noise(i, salt) is a hash of both, evenly over 64 bits.

-- name: sites
SELECT i AS site_id, 'city_' || (noise(i, 1) % 400) AS city,
  ['DE', 'FR', 'PL', 'US', 'IN', 'BR', 'JP', 'ZA'][1 + (noise(i, 2) % 8)::INTEGER] AS country,
  ['plant', 'office', 'farm', 'harbour'][1 + (noise(i, 3) % 4)::INTEGER] AS kind,
  DATE '2005-01-01' + (noise(i, 4) % 6000)::INTEGER AS opened,
  (noise(i, 5) % 25000) / 10.0 AS elevation
FROM range(greatest({rows} // 20000, 20)) t(i);

-- name: devices
SELECT i AS device_id, (noise(i, 1) % greatest({rows} // 20000, 20))::BIGINT AS site_id,
  ['TX', 'RX', 'QL', 'PV'][1 + (noise(i, 2) % 4)::INTEGER] || '-' || (100 + noise(i, 3) % 30) AS model,
  'v' || (1 + noise(i, 4) % 3) || '.' || (noise(i, 5) % 10) || '.' || (noise(i, 6) % 20) AS firmware,
  'user' || (noise(i, 7) % 900) || '@' || ['alpha.example', 'beta.example', 'gamma.example'][
    1 + (noise(i, 8) % 3)::INTEGER] AS owner,
  DATE '2016-01-01' + (noise(i, 9) % 2500)::INTEGER AS installed, noise(i, 10) % 5 = 0 AS is_mobile
FROM range(greatest({rows} // 500, 50)) t(i);

-- name: readings
SELECT (d * pow((noise(i, 1) % 1000000) / 1000000.0, 2))::BIGINT % d AS device_id,
  TIMESTAMP '2023-01-01' + to_seconds((i * 63072000.0 / {rows})::BIGINT) AS ts,
  ['temperature', 'humidity', 'pressure', 'power', 'vibration'][1 + (noise(i, 2) % 5)::INTEGER]
    AS metric,
  (noise(i, 3) % 100000) / 1000.0 + (noise(i, 4) % 1000) / 1000.0 AS value,
  CASE WHEN noise(i, 5) % 10 < 9 THEN (noise(i, 6) % 6)::INTEGER END AS quality
FROM range({rows}) t(i), (SELECT greatest({rows} // 500, 50) AS d);

-- name: alerts
SELECT i AS alert_id, (d * pow((noise(i, 1) % 1000000) / 1000000.0, 3))::BIGINT % d AS device_id,
  raised AS raised_at,
  CASE WHEN noise(i, 3) % 8 > 0 THEN raised + to_seconds((noise(i, 4) % 200000)::BIGINT) END
    AS cleared_at,
  ['info', 'minor', 'major', 'critical'][1 + least(3, (noise(i, 5) % 9)::INTEGER // 2)] AS severity,
  w[1 + (noise(i, 6) % 8)::INTEGER] || ' ' || w[1 + (noise(i, 7) % 8)::INTEGER] || ' code '
    || (noise(i, 8) % 500) AS message
FROM (
  SELECT i, TIMESTAMP '2023-01-01' + to_seconds((noise(i, 2) % 63072000)::BIGINT) AS raised
  FROM range(greatest({rows} // 50, 100)) t(i)),
  (SELECT greatest({rows} // 500, 50) AS d),
  (SELECT ['battery', 'link', 'sensor', 'overheat', 'reset', 'drift', 'tamper', 'lost'] AS w);

-- name: visits
SELECT i AS visit_id, (v * pow((noise(i, 1) % 1000000) / 1000000.0, 4))::BIGINT % v AS visitor_id,
  TIMESTAMP '2023-01-01' + to_seconds((noise(i, 2) % 63072000)::BIGINT) AS started,
  '/' || ['home', 'docs', 'shop', 'blog', 'help'][1 + (noise(i, 3) % 5)::INTEGER] || '/' ||
    (2000 * pow((noise(i, 4) % 10000) / 10000.0, 3))::INTEGER ||
    CASE WHEN noise(i, 5) % 3 = 0 THEN '?ref=mail' ELSE '' END AS page,
  CASE WHEN noise(i, 6) % 5 < 3 THEN 'https://' ||
    ['search.example', 'news.example', 'social.example'][1 + (noise(i, 7) % 3)::INTEGER] || '/q/' ||
    (noise(i, 8) % 50) END AS referrer,
  ['Mozilla/5.0 (X11; Linux)', 'Mozilla/5.0 (Windows NT 10.0)', 'Mozilla/5.0 (Macintosh)',
   'curl/8.5', 'GoodBot/2.1 (+https://bot.example)'][1 + (noise(i, 9) % 5)::INTEGER] AS agent,
  ['DE', 'FR', 'PL', 'US', 'IN', 'BR', 'JP', 'ZA'][1 + (8 * pow((noise(i, 10) % 1000) / 1000.0, 2)
    )::INTEGER % 8] AS country,
  (1 + noise(i, 11) % 30)::INTEGER AS pages, (noise(i, 12) % 360000) / 100.0 AS seconds
FROM range({rows} // 2) t(i), (SELECT greatest({rows} // 40, 50) AS v);
