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
