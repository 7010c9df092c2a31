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
