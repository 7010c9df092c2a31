-- schema: min_reader 18, min_writer 20
--
-- children: what a step records of its child jobs, as JSON. owns: it waits for them. parent: of a job that is a child, its
-- owner: JOB/INDEX/STEP/DEPTH.
ALTER TABLE perdure_step ADD COLUMN children TEXT;
ALTER TABLE perdure_step ADD COLUMN owns INTEGER;
ALTER TABLE perdure_step ADD COLUMN parent TEXT;

-- Changes of children that their owners have not counted yet. A transaction of a child only inserts; that of the owner deletes
-- what it counts.
CREATE TABLE perdure_child_news (
	number     INTEGER PRIMARY KEY AUTOINCREMENT,
	job        BLOB NOT NULL,     -- the owner: job and index of the step
	idx        INTEGER NOT NULL,
	child      BLOB NOT NULL,
	from_state INTEGER NOT NULL,  -- 0 active, 1 parked, 2 done, 3 undone, 4 unsure
	to_state   INTEGER NOT NULL,
	at         INTEGER NOT NULL   -- the owner is due then
);
CREATE INDEX perdure_child_news_owner ON perdure_child_news (job, idx, number);
CREATE INDEX perdure_child_news_at ON perdure_child_news (at);

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
	strftime('%Y-%m-%d %H:%M:%S', s.stop_requested_at / 1000000, 'unixepoch') || printf('.%06d', s.stop_requested_at % 1000000) AS stop_requested_at, s.host, s.topic, s.approval, s.children, coalesce(s.owns, 0) AS owns
FROM perdure_step s LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = s.idx
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), 0, b.name, b.type, b.priority, 'undone', 'done', 'ready', 0, 0, NULL, NULL, 1, b.agent, NULL, NULL,
	NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, nullif(b.ageing, 0) / 1e6, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL, NULL, NULL, NULL, 0
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size
WHERE n.i >= b.taken;

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
	strftime('%Y-%m-%d %H:%M:%S', s.reopened_at / 1000000, 'unixepoch') || printf('.%06d', s.reopened_at % 1000000) AS reopened_at, s.traceparent, s.job_limits AS limits, s.submitter,
	strftime('%Y-%m-%d %H:%M:%S', s.start_at / 1000000, 'unixepoch') || printf('.%06d', s.start_at % 1000000) AS start_at,
	strftime('%Y-%m-%d %H:%M:%S', s.start_by / 1000000, 'unixepoch') || printf('.%06d', s.start_by % 1000000) AS start_by, o.output, s.output_error, s.made_from, s.parent
FROM perdure_step s LEFT JOIN perdure_shape d ON d.id = s.shape LEFT JOIN perdure_payload p ON s.apart AND p.job = s.job AND p.idx = -1
	LEFT JOIN perdure_payload o ON s.job_has_output AND o.job = s.job AND o.idx = -1
WHERE s.idx = 0
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), NULL, b.type, b.priority, NULL, NULL, 'undone', 'done', 'waiting', NULL, 0, 0, 1, 0, 1, NULL, NULL, 0, NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000),
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL,
	lower(hex(substr(b.hashes, 32 * n.i + 1, 32))), d.text,
	nullif(CAST(substr(b.inputs, 1 + iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER)),
		CAST(substr(b.ends, 8 * n.i + 1, 8) AS INTEGER) - iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER))) AS TEXT), ''), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size LEFT JOIN perdure_shape d ON d.id = b.shape
WHERE n.i >= b.taken;
