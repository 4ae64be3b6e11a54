-- Judged, never trained on: 20 queries of our own over sensors and visitors of a web site.

-- name: t01_bad_readings
SELECT device_id, ts, value FROM readings
WHERE metric = 'vibration' AND quality = 5 AND value > 99.5 ORDER BY ts, device_id, value;

-- name: t02_figures_of_a_metric
SELECT metric, COUNT(*) AS n, COUNT(quality) AS judged, AVG(value) AS mean, MIN(value) AS least,
  MAX(value) AS most, STDDEV_SAMP(value) AS spread
FROM readings GROUP BY metric ORDER BY metric;

-- name: t03_hours_of_devices
SELECT COUNT(*) AS hours, MAX(mean) AS hottest
FROM (SELECT device_id, DATE_TRUNC('hour', ts) AS hour, AVG(value) AS mean FROM readings
  WHERE metric = 'temperature' GROUP BY device_id, DATE_TRUNC('hour', ts)) AS hourly;

-- name: t04_countries_and_models
SELECT country, model, COUNT(*) AS n, AVG(value) AS mean
FROM readings r JOIN devices d ON d.device_id = r.device_id JOIN sites s ON s.site_id = d.site_id
WHERE s.kind IN ('plant', 'farm') AND d.installed >= DATE '2018-01-01'
GROUP BY country, model ORDER BY n DESC, country, model LIMIT 40;

-- name: t05_jumps
SELECT device_id, COUNT(*) AS jumps
FROM (SELECT device_id, value, LAG(value) OVER (PARTITION BY device_id, metric ORDER BY ts) AS before
  FROM readings WHERE quality >= 3) AS steps
WHERE ABS(value - before) > 90 GROUP BY device_id ORDER BY jumps DESC, device_id LIMIT 20;

-- name: t06_silent_devices
SELECT model, COUNT(*) AS silent FROM devices d
WHERE NOT EXISTS (SELECT 1 FROM readings r
  WHERE r.device_id = d.device_id AND r.metric = 'power' AND r.ts >= TIMESTAMP '2024-12-26 00:00:00')
GROUP BY model ORDER BY silent DESC, model;

-- name: t07_open_alerts
SELECT severity, COUNT(*) AS open_alerts, MIN(raised_at) AS oldest FROM alerts
WHERE cleared_at IS NULL AND message LIKE '%overheat%' GROUP BY severity ORDER BY severity;

-- name: t08_devices_with_critical_alerts
SELECT s.city, COUNT(*) AS devices, COUNT(DISTINCT d.owner) AS owners
FROM devices d JOIN sites s ON s.site_id = d.site_id
WHERE d.device_id IN (SELECT device_id FROM alerts WHERE severity = 'critical')
GROUP BY s.city HAVING COUNT(*) > 1 ORDER BY devices DESC, s.city LIMIT 30;

-- name: t09_first_alert_of_device
SELECT severity, COUNT(*) AS n
FROM (SELECT severity, ROW_NUMBER() OVER (PARTITION BY device_id ORDER BY raised_at, alert_id) AS place
  FROM alerts) AS ordered
WHERE place = 1 GROUP BY severity ORDER BY n DESC;

-- name: t10_busiest_pages
SELECT page, COUNT(*) AS views, SUM(seconds) AS seconds, COUNT(DISTINCT visitor_id) AS visitors
FROM visits WHERE agent NOT LIKE '%Bot%' GROUP BY page ORDER BY views DESC, page LIMIT 50;

-- name: t11_sections_and_sources
SELECT SUBSTRING(page, 2, 4) AS section, COALESCE(SUBSTRING(referrer, 9, 6), 'direct') AS source,
  COUNT(*) AS n, AVG(pages) AS depth
FROM visits WHERE LENGTH(page) > 8
GROUP BY SUBSTRING(page, 2, 4), COALESCE(SUBSTRING(referrer, 9, 6), 'direct')
ORDER BY n DESC, section, source;

-- name: t12_rollup_of_visits
SELECT country, agent, COUNT(*) AS n, AVG(seconds) AS seconds FROM visits
WHERE started >= TIMESTAMP '2024-01-01 00:00:00'
GROUP BY ROLLUP (country, agent) ORDER BY n DESC;

-- name: t13_gaps_between_visits
SELECT country, AVG(pages - before) AS change, COUNT(*) AS returns
FROM (SELECT country, pages,
    LAG(pages) OVER (PARTITION BY visitor_id ORDER BY started, visit_id) AS before FROM visits) AS s
WHERE before IS NOT NULL GROUP BY country ORDER BY country;

-- name: t14_loyal_visitors
WITH counted AS (
  SELECT visitor_id, country, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits
  GROUP BY visitor_id, country),
means AS (SELECT country, AVG(n) AS usual FROM counted GROUP BY country)
SELECT c.country, COUNT(*) AS loyal, SUM(c.seconds) AS seconds
FROM counted c JOIN means m ON m.country = c.country
WHERE c.n > 3 * m.usual GROUP BY c.country ORDER BY loyal DESC;

-- name: t15_all_that_happened
SELECT kind, DATE_TRUNC('month', moment) AS month, COUNT(*) AS n
FROM (SELECT 'reading' AS kind, ts AS moment FROM readings WHERE quality IS NULL
  UNION ALL SELECT 'alert' AS kind, raised_at AS moment FROM alerts
  UNION ALL SELECT 'visit' AS kind, started AS moment FROM visits WHERE pages > 20) AS happened
GROUP BY kind, DATE_TRUNC('month', moment) ORDER BY kind, month;

-- name: t16_above_the_models_mean
SELECT COUNT(*) AS devices FROM devices d
WHERE (SELECT AVG(r.value) FROM readings r WHERE r.device_id = d.device_id)
  > (SELECT AVG(value) FROM readings);

-- name: t17_longest_visits
SELECT visit_id, visitor_id, seconds, UPPER(agent) AS agent, LENGTH(page) AS letters FROM visits
WHERE seconds > 60 ORDER BY seconds DESC, visit_id LIMIT 1000;

-- name: t18_sites_at_day_and_night
SELECT s.kind, SUM(CASE WHEN EXTRACT(HOUR FROM r.ts) BETWEEN 6 AND 17 THEN r.value ELSE 0 END) AS day,
  SUM(CASE WHEN EXTRACT(HOUR FROM r.ts) NOT BETWEEN 6 AND 17 THEN r.value ELSE 0 END) AS night
FROM readings r JOIN devices d ON d.device_id = r.device_id
  LEFT JOIN sites s ON s.site_id = d.site_id AND s.elevation > 400
WHERE r.metric = 'power' GROUP BY s.kind ORDER BY s.kind;

-- name: t19_alerts_soon_after_another
SELECT a.severity AS earlier, b.severity AS later, COUNT(*) AS n
FROM alerts a JOIN alerts b ON b.device_id = a.device_id AND b.message = a.message
  AND b.raised_at > a.raised_at
WHERE a.severity IN ('major', 'critical')
GROUP BY a.severity, b.severity ORDER BY n DESC, earlier, later;

-- name: t20_distinct_paths
SELECT COUNT(*) AS paths, COUNT(DISTINCT page) AS pages
FROM (SELECT DISTINCT visitor_id, page FROM visits WHERE referrer IS NOT NULL) AS d;
