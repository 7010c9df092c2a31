-- schema: min_reader 16, min_writer 16
--
-- start_at: nothing of the job is dispatched before. start_by: a run must be dispatched by then. The output of a job is in
-- its payload with the index -1, which also has a large input; output_error: why there is none.
ALTER TABLE perdure_step ADD COLUMN start_at INTEGER;
ALTER TABLE perdure_step ADD COLUMN start_by INTEGER;
ALTER TABLE perdure_step ADD COLUMN job_has_output INTEGER;
ALTER TABLE perdure_step ADD COLUMN output_error TEXT;
ALTER TABLE perdure_step ADD COLUMN made_from TEXT;

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
	strftime('%Y-%m-%d %H:%M:%S', s.reopened_at / 1000000, 'unixepoch') || printf('.%06d', s.reopened_at % 1000000) AS reopened_at, s.traceparent, s.job_limits AS limits,
	strftime('%Y-%m-%d %H:%M:%S', s.start_at / 1000000, 'unixepoch') || printf('.%06d', s.start_at % 1000000) AS start_at,
	strftime('%Y-%m-%d %H:%M:%S', s.start_by / 1000000, 'unixepoch') || printf('.%06d', s.start_by % 1000000) AS start_by, o.output, s.output_error, s.made_from
FROM perdure_step s LEFT JOIN perdure_shape d ON d.id = s.shape LEFT JOIN perdure_payload p ON s.apart AND p.job = s.job AND p.idx = -1
	LEFT JOIN perdure_payload o ON s.job_has_output AND o.job = s.job AND o.idx = -1
WHERE s.idx = 0
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), NULL, b.type, b.priority, NULL, NULL, 'undone', 'done', 'waiting', NULL, 0, 0, 1, 0, 1, NULL, NULL, 0, NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000),
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL,
	lower(hex(substr(b.hashes, 32 * n.i + 1, 32))), d.text,
	nullif(CAST(substr(b.inputs, 1 + iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER)),
		CAST(substr(b.ends, 8 * n.i + 1, 8) AS INTEGER) - iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER))) AS TEXT), ''), substr(b.jobs, 16 * n.i + 1, 16), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size LEFT JOIN perdure_shape d ON d.id = b.shape
WHERE n.i >= b.taken;

-- The jobs that are unique, each with its type and key: no other job is made with them. until: for so long; null: until the
-- job is settled, which deletes the row.
CREATE TABLE perdure_unique_key (
	type  TEXT NOT NULL,
	key   TEXT NOT NULL,
	job   BLOB NOT NULL,
	until INTEGER,
	PRIMARY KEY (type, key)
) WITHOUT ROWID;
CREATE INDEX perdure_unique_key_job ON perdure_unique_key (job) WHERE until IS NULL;
CREATE INDEX perdure_unique_key_until ON perdure_unique_key (until, type, key) WHERE until IS NOT NULL;

-- Stored definitions: a row for each name, and one for each version. The name means version current; latest is the highest
-- number that was used.
CREATE TABLE perdure_definition (
	name       TEXT PRIMARY KEY,
	current    INTEGER NOT NULL,
	latest     INTEGER NOT NULL,
	updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE perdure_definition_version (
	id         INTEGER PRIMARY KEY,
	name       TEXT NOT NULL,
	version    INTEGER NOT NULL,
	hash       BLOB NOT NULL,
	author     TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	text       TEXT NOT NULL
);
CREATE UNIQUE INDEX perdure_definition_version_name ON perdure_definition_version (name, version);
