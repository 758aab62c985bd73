-- The same as pipelines.plays_per_show, in Spark SQL; streams are views.
SELECT
  window.start AS window_start,
  show_id,
  count(*) AS plays,
  sum(view_seconds) AS view_seconds
FROM playbacks
GROUP BY window(event_ts, '10 minutes'), show_id
