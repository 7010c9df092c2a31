-- schema: min_reader 2, min_writer 3
--
-- What operators look for, found without reading a whole table.

-- The few jobs that operators look for, among many.
ALTER TABLE perdure_step ADD COLUMN parked   INTEGER; -- 1: the job is parked
ALTER TABLE perdure_step ADD COLUMN undoing  INTEGER; -- 1: it is to be undone, and is not settled
ALTER TABLE perdure_step ADD COLUMN not_done INTEGER; -- 1: it has settled otherwise than done and wanted done

-- A column that is NULL has the value 0.
UPDATE perdure_step SET parked   = 1 WHERE idx = 0 AND job_phase = 4;
UPDATE perdure_step SET undoing  = 1 WHERE idx = 0 AND job_phase <> 0 AND coalesce(job_desired, 0) = 0;
UPDATE perdure_step SET not_done = 1 WHERE idx = 0 AND coalesce(job_phase, 0) = 0 AND (coalesce(job_current, 0) <> 1 OR coalesce(job_desired, 0) <> 1);

CREATE INDEX perdure_step_parked   ON perdure_step (job) WHERE parked   IS NOT NULL;
CREATE INDEX perdure_step_undoing  ON perdure_step (job) WHERE undoing  IS NOT NULL;
CREATE INDEX perdure_step_not_done ON perdure_step (job) WHERE not_done IS NOT NULL;

CREATE INDEX perdure_alert_kind ON perdure_alert (kind, job) WHERE closed_at IS NULL;

-- Recorded runs

-- The run that an entry records. turn is null for other entries, and for those of older programs. direction is null for do.
ALTER TABLE perdure_entry ADD COLUMN turn INTEGER;
ALTER TABLE perdure_entry ADD COLUMN direction INTEGER;
ALTER TABLE perdure_entry ADD COLUMN ready_at INTEGER;
ALTER TABLE perdure_entry ADD COLUMN started_at INTEGER;

-- The recorded runs of a job in the order of their starts. If the start is not known, the end has its place.
CREATE INDEX perdure_entry_run ON perdure_entry (job, coalesce(started_at, at), step, run, id)
	WHERE run > 0 AND event IN ('done', 'failed', 'rejected', 'returned', 'expired');

DROP VIEW perdure_history;

CREATE VIEW perdure_history AS SELECT
	id, 'job_' || lower(hex(job)) AS job, nullif(step, '') AS step, nullif(run, 0) AS run,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	event, nullif(author, '') AS author, nullif(detail, '') AS detail, job AS job_id,
	turn, CASE WHEN turn IS NOT NULL THEN CASE direction WHEN 1 THEN 'undo' ELSE 'do' END END AS direction,
	strftime('%Y-%m-%d %H:%M:%S', ready_at / 1000000, 'unixepoch') || printf('.%06d', ready_at % 1000000) AS ready_at,
	strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06d', started_at % 1000000) AS started_at
FROM perdure_entry;

-- What operators group alerts by. type and job_key are the job's; code and attempts are those of the step when the alert
-- was raised.
ALTER TABLE perdure_alert ADD COLUMN type     TEXT NOT NULL DEFAULT '';
ALTER TABLE perdure_alert ADD COLUMN job_key  TEXT NOT NULL DEFAULT '';
ALTER TABLE perdure_alert ADD COLUMN code     TEXT NOT NULL DEFAULT '';
ALTER TABLE perdure_alert ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;

UPDATE perdure_alert SET type = j.type, job_key = coalesce(j.job_key, '') FROM perdure_step j WHERE j.job = perdure_alert.job AND j.idx = 0;
UPDATE perdure_alert SET code = coalesce(s.error_code, ''), attempts = coalesce(s.failures, 0) FROM perdure_step s
WHERE perdure_alert.closed_at IS NULL AND perdure_alert.step <> '' AND s.job = perdure_alert.job AND s.name = perdure_alert.step;

-- Open alerts with one value, newest first.
CREATE INDEX perdure_alert_open_code ON perdure_alert (code, id) WHERE closed_at IS NULL;
CREATE INDEX perdure_alert_open_step ON perdure_alert (step, id) WHERE closed_at IS NULL;
CREATE INDEX perdure_alert_open_type ON perdure_alert (type, id) WHERE closed_at IS NULL;
CREATE INDEX perdure_alert_open_kind ON perdure_alert (kind, id) WHERE closed_at IS NULL;

DROP VIEW perdure_alerts;
CREATE VIEW perdure_alerts AS SELECT
	id, CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, nullif(step, '') AS step, kind, nullif(name, '') AS name, message,
	strftime('%Y-%m-%d %H:%M:%S', raised_at / 1000000, 'unixepoch') || printf('.%06d', raised_at % 1000000) AS raised_at,
	strftime('%Y-%m-%d %H:%M:%S', closed_at / 1000000, 'unixepoch') || printf('.%06d', closed_at % 1000000) AS closed_at,
	nullif(closed_by, '') AS closed_by, job AS job_id,
	nullif(type, '') AS type, nullif(job_key, '') AS job_key, nullif(code, '') AS code, attempts
FROM perdure_alert;

-- The statistics that the leader of the role supervisor computes, in JSON.
CREATE TABLE perdure_stats (
	one  INTEGER PRIMARY KEY CHECK (one = 1),
	text TEXT NOT NULL
) STRICT;

-- How often something has happened in a minute, as each node has counted it.
CREATE TABLE perdure_series (
	minute  INTEGER NOT NULL,             -- its beginning
	node    TEXT    NOT NULL,
	scope   INTEGER NOT NULL,             -- 1: name is a type of jobs, 2: name is an agent
	name    TEXT    NOT NULL,
	outcome TEXT    NOT NULL,
	n       INTEGER NOT NULL,
	PRIMARY KEY (minute, scope, name, outcome, node)
) STRICT, WITHOUT ROWID;

-- Bulk acts: one act on many jobs, those that match a filter or those that were listed. The role courier goes through the
-- jobs in the order of their ids.
CREATE TABLE perdure_bulk (
	id             TEXT PRIMARY KEY,  -- bulk_ and 32 hexadecimal digits; they grow with time
	key            TEXT,              -- makes a repeated start safe
	request        TEXT NOT NULL,     -- the act and the filter, in JSON
	author         TEXT NOT NULL,
	reason         TEXT NOT NULL,
	listed_count   INTEGER NOT NULL,
	listed         BLOB NOT NULL,     -- the ids of the jobs that were listed, 16 bytes each, in order; empty if there is a filter
	below          BLOB NOT NULL,     -- jobs with this id and later ones were submitted after the start
	expected       INTEGER NOT NULL,  -- how many jobs there were at the start
	capped         INTEGER NOT NULL,  -- 1: there may have been more
	state          TEXT NOT NULL,     -- running, done, stopped
	stopped_by     TEXT NOT NULL,
	cursor         BLOB NOT NULL,     -- all jobs up to this one were met
	done           INTEGER NOT NULL,
	unchanged      INTEGER NOT NULL,
	refused        INTEGER NOT NULL,
	started_at     INTEGER NOT NULL,
	updated_at     INTEGER NOT NULL,
	ended_at       INTEGER,
	resumed_at     INTEGER NOT NULL,  -- when it began to run, and how many jobs it had met then
	matched_before INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_bulk_key ON perdure_bulk (key) WHERE key IS NOT NULL;
CREATE INDEX perdure_bulk_running ON perdure_bulk (id) WHERE state = 'running';

-- The first jobs on which a bulk act was refused.
CREATE TABLE perdure_bulk_refusal (
	bulk    TEXT NOT NULL,
	number  INTEGER NOT NULL,  -- from 1, in the order in which the jobs were met
	job     BLOB NOT NULL,
	code    TEXT NOT NULL,
	message TEXT NOT NULL,
	PRIMARY KEY (bulk, number)
) STRICT, WITHOUT ROWID;
