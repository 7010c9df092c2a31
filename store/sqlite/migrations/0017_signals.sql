-- schema: min_reader 13, min_writer 17
--
-- The name and the key of the signals for which a step waits, with a slash between them; what an approval asks and who has
-- approved, as JSON; and who submitted the job, if an approval excludes the submitter.
ALTER TABLE perdure_step ADD COLUMN topic TEXT;
ALTER TABLE perdure_step ADD COLUMN approval TEXT;
ALTER TABLE perdure_step ADD COLUMN submitter TEXT;

CREATE INDEX perdure_step_topic ON perdure_step (topic, job, idx) WHERE topic IS NOT NULL;

-- Signals that are kept for the next step that waits, and those that are remembered, so that they have no effect when they
-- are sent again.
CREATE TABLE perdure_signal (
	number   INTEGER PRIMARY KEY AUTOINCREMENT, -- of signals of one topic, the later has the higher number
	topic    TEXT NOT NULL,                     -- name/key
	job      BLOB NOT NULL,                     -- only its steps receive the signal; zero: steps of any job
	id       TEXT NOT NULL,
	data     TEXT,                              -- NULL: it was received
	at       INTEGER NOT NULL,
	until_at INTEGER NOT NULL,                  -- it is kept and remembered until then
	taken    TEXT,                              -- the steps that have received it, a JSON list; NULL: it is kept
	UNIQUE (topic, job, id)
);

CREATE INDEX perdure_signal_kept ON perdure_signal (topic, number) WHERE taken IS NULL;
CREATE INDEX perdure_signal_until ON perdure_signal (until_at);

-- The signals of a store, the oldest first.
CREATE VIEW perdure_signals AS SELECT
	substr(topic, 1, instr(topic, '/') - 1) AS name, substr(topic, instr(topic, '/') + 1) AS key,
	CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, id, data,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	strftime('%Y-%m-%d %H:%M:%S', until_at / 1000000, 'unixepoch') || printf('.%06d', until_at % 1000000) AS until,
	taken
FROM perdure_signal ORDER BY number;

CREATE VIEW perdure_waiters AS SELECT
	substr(topic, 1, instr(topic, '/') - 1) AS name, substr(topic, instr(topic, '/') + 1) AS key, 'job_' || lower(hex(job)) AS job, idx
FROM perdure_step WHERE topic IS NOT NULL AND phase = 1;

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
	strftime('%Y-%m-%d %H:%M:%S', s.stop_requested_at / 1000000, 'unixepoch') || printf('.%06d', s.stop_requested_at % 1000000) AS stop_requested_at, s.host, s.topic, s.approval
FROM perdure_step s LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = s.idx
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), 0, b.name, b.type, b.priority, 'undone', 'done', 'ready', 0, 0, NULL, NULL, 1, b.agent, NULL, NULL,
	NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, nullif(b.ageing, 0) / 1e6, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL, NULL, NULL
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
	strftime('%Y-%m-%d %H:%M:%S', s.reopened_at / 1000000, 'unixepoch') || printf('.%06d', s.reopened_at % 1000000) AS reopened_at, s.traceparent, s.job_limits AS limits, s.submitter
FROM perdure_step s LEFT JOIN perdure_shape d ON d.id = s.shape LEFT JOIN perdure_payload p ON s.apart AND p.job = s.job AND p.idx = -1
WHERE s.idx = 0
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), NULL, b.type, b.priority, NULL, NULL, 'undone', 'done', 'waiting', NULL, 0, 0, 1, 0, 1, NULL, NULL, 0, NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000),
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL,
	lower(hex(substr(b.hashes, 32 * n.i + 1, 32))), d.text,
	nullif(CAST(substr(b.inputs, 1 + iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER)),
		CAST(substr(b.ends, 8 * n.i + 1, 8) AS INTEGER) - iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER))) AS TEXT), ''), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL, NULL
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size LEFT JOIN perdure_shape d ON d.id = b.shape
WHERE n.i >= b.taken;
