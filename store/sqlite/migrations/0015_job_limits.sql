-- schema: min_reader 13, min_writer 15
--
-- The permits of named limits that the job needs, as JSON. It holds them, under idx -1 of perdure_permit, while column permit
-- is 1.
ALTER TABLE perdure_step ADD COLUMN job_limits TEXT;

DROP VIEW perdure_jobs;
CREATE VIEW perdure_jobs AS SELECT
	'job_' || lower(hex(s.job)) AS job, s.job_key AS key, s.type, s.priority, s.labels, s.states,
	CASE s.job_current WHEN 1 THEN 'done' WHEN 2 THEN 'unsure' ELSE 'undone' END AS current,
	CASE s.job_desired WHEN 1 THEN 'done' ELSE 'undone' END AS desired,
	CASE s.job_phase WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' WHEN 4 THEN 'parked' ELSE 'settled' END AS phase,
	iif(s.job_then, 'done', NULL) AS "then",
	coalesce(s.restarts, 0) AS restarts, coalesce(s.permit, 0) AS permit, coalesce(s.unsettled, 0) AS unsettled, coalesce(s.running, 0) AS running, coalesce(s.active, 0) AS active,
	strftime('%Y-%m-%d %H:%M:%S', s.job_complete_by / 1000000, 'unixepoch') || printf('.%06d', s.job_complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', s.parked_at / 1000000, 'unixepoch') || printf('.%06d', s.parked_at % 1000000) AS parked_at,
	coalesce(s.overdue, 0) AS overdue, s.given_up_by, s.given_up_reason,
	strftime('%Y-%m-%d %H:%M:%S', s.created_at / 1000000, 'unixepoch') || printf('.%06d', s.created_at % 1000000) AS created_at,
	strftime('%Y-%m-%d %H:%M:%S', s.job_updated_at / 1000000, 'unixepoch') || printf('.%06d', s.job_updated_at % 1000000) AS updated_at,
	strftime('%Y-%m-%d %H:%M:%S', s.settled_at / 1000000, 'unixepoch') || printf('.%06d', s.settled_at % 1000000) AS settled_at,
	lower(hex(s.hash)) AS hash, d.text AS definition, coalesce(s.input, p.input) AS input, s.job AS job_id,
	strftime('%Y-%m-%d %H:%M:%S', s.reopened_at / 1000000, 'unixepoch') || printf('.%06d', s.reopened_at % 1000000) AS reopened_at, s.traceparent, s.job_limits AS limits
FROM perdure_step s LEFT JOIN perdure_shape d ON d.id = s.shape LEFT JOIN perdure_payload p ON s.apart AND p.job = s.job AND p.idx = -1
WHERE s.idx = 0
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), NULL, b.type, b.priority, NULL, NULL, 'undone', 'done', 'waiting', NULL, 0, 0, 1, 0, 1, NULL, NULL, 0, NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000),
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL,
	lower(hex(substr(b.hashes, 32 * n.i + 1, 32))), d.text,
	nullif(CAST(substr(b.inputs, 1 + iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER)),
		CAST(substr(b.ends, 8 * n.i + 1, 8) AS INTEGER) - iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER))) AS TEXT), ''), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size LEFT JOIN perdure_shape d ON d.id = b.shape
WHERE n.i >= b.taken;
