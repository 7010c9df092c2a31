-- schema: min_reader 13, min_writer 13
--
-- When the progress of the latest run changed last, when an operator requested that the run in flight stop, and the host
-- of the latest do run.
ALTER TABLE perdure_step ADD COLUMN progress_at INTEGER;
ALTER TABLE perdure_step ADD COLUMN stop_requested_at INTEGER;
ALTER TABLE perdure_step ADD COLUMN host TEXT;

DROP VIEW perdure_steps;

CREATE VIEW perdure_steps AS SELECT
	'job_' || lower(hex(s.job)) AS job, s.idx, s.name, s.type, s.priority,
	CASE s.current WHEN 1 THEN 'done' WHEN 2 THEN 'unsure' ELSE 'undone' END AS current,
	CASE s.desired WHEN 1 THEN 'done' ELSE 'undone' END AS desired,
	CASE s.phase WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' WHEN 4 THEN 'parked' ELSE 'settled' END AS phase,
	coalesce(s.skipped, 0) AS skipped, coalesce(s.run, 0) AS run,
	CASE WHEN s.run IS NULL THEN NULL WHEN s.direction = 1 THEN 'undo' ELSE 'do' END AS direction,
	CASE WHEN s.run IS NULL THEN NULL WHEN s.was = 1 THEN 'done' WHEN s.was = 2 THEN 'unsure' ELSE 'undone' END AS was,
	coalesce(s.turn, 0) AS turn, s.agent, s.locked_by, s.request,
	strftime('%Y-%m-%d %H:%M:%S', s.complete_by / 1000000, 'unixepoch') || printf('.%06d', s.complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', s.locked_until / 1000000, 'unixepoch') || printf('.%06d', s.locked_until % 1000000) AS locked_until,
	s.heartbeat / 1e6 AS heartbeat_seconds,
	coalesce(s.failures, 0) AS failures, coalesce(s.rung, 0) AS rung, coalesce(s.waits, 0) AS waits, coalesce(s.returns, 0) AS returns,
	strftime('%Y-%m-%d %H:%M:%S', s.available_at / 1000000, 'unixepoch') || printf('.%06d', s.available_at % 1000000) AS available_at,
	CASE s.outcome WHEN 1 THEN 'done' WHEN 2 THEN 'failed' WHEN 3 THEN 'rejected' WHEN 4 THEN 'returned' WHEN 5 THEN 'expired' END AS outcome,
	s.error_code, s.last_error, s.progress, p.input, p.output,
	coalesce(s.own_input, 0) AS own_input, CASE s.edited WHEN 1 THEN 'do' WHEN 2 THEN 'undo' WHEN 3 THEN 'do' END AS edited, coalesce(s.has_output, 0) AS has_output,
	coalesce(s.given_up, 0) AS given_up, coalesce(s.blockers, 0) AS blockers, s.ageing / 1e6 AS ageing_seconds, s.limits,
	strftime('%Y-%m-%d %H:%M:%S', s.ready_at / 1000000, 'unixepoch') || printf('.%06d', s.ready_at % 1000000) AS ready_at,
	strftime('%Y-%m-%d %H:%M:%S', s.started_at / 1000000, 'unixepoch') || printf('.%06d', s.started_at % 1000000) AS started_at,
	strftime('%Y-%m-%d %H:%M:%S', s.ended_at / 1000000, 'unixepoch') || printf('.%06d', s.ended_at % 1000000) AS ended_at,
	strftime('%Y-%m-%d %H:%M:%S', s.updated_at / 1000000, 'unixepoch') || printf('.%06d', s.updated_at % 1000000) AS updated_at,
	s.job AS job_id,
	strftime('%Y-%m-%d %H:%M:%S', s.progress_at / 1000000, 'unixepoch') || printf('.%06d', s.progress_at % 1000000) AS progress_at,
	strftime('%Y-%m-%d %H:%M:%S', s.stop_requested_at / 1000000, 'unixepoch') || printf('.%06d', s.stop_requested_at % 1000000) AS stop_requested_at, s.host
FROM perdure_step s LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = s.idx
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), 0, b.name, b.type, b.priority, 'undone', 'done', 'ready', 0, 0, NULL, NULL, 1, b.agent, NULL, NULL,
	NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, nullif(b.ageing, 0) / 1e6, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size
WHERE n.i >= b.taken;
