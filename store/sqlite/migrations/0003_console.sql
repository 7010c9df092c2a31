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

-- Statistics
--
-- The type of the job and the error code of the step's latest failure are recorded with each alert, because
-- alerts are counted by them.
ALTER TABLE perdure_alert ADD COLUMN type TEXT NOT NULL DEFAULT ''; -- '': unknown, or the alert is about no job
ALTER TABLE perdure_alert ADD COLUMN code TEXT NOT NULL DEFAULT '';

DROP VIEW perdure_alerts;
CREATE VIEW perdure_alerts AS SELECT
	id, CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, nullif(step, '') AS step, kind, nullif(name, '') AS name, message,
	strftime('%Y-%m-%d %H:%M:%S', raised_at / 1000000, 'unixepoch') || printf('.%06d', raised_at % 1000000) AS raised_at,
	strftime('%Y-%m-%d %H:%M:%S', closed_at / 1000000, 'unixepoch') || printf('.%06d', closed_at % 1000000) AS closed_at,
	nullif(closed_by, '') AS closed_by, job AS job_id, nullif(type, '') AS type, nullif(code, '') AS code
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
