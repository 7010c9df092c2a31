-- schema: min_reader 13, min_writer 15
--
-- The permits of named limits that the job needs, as JSON. It holds them, under idx -1 of perdure_permit, while column permit
-- is 1.
ALTER TABLE perdure_step ADD COLUMN job_limits TEXT;
