-- schema: min_reader 14, min_writer 16
--
-- job_limits: the permits of named limits that the job needs, as JSON. It holds them, under idx -1 of table permit, while
-- column permit is true.
alter table perdure.step add column job_limits text;
