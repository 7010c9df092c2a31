-- schema: min_reader 18, min_writer 21
--
-- The steps that stand in line for a key of a limit with an order, ready or waiting to be tried again. Only the first of them is
-- dispatched.
CREATE TABLE perdure_line (
	name TEXT    NOT NULL,
	key  TEXT    NOT NULL,
	rank INTEGER NOT NULL, -- 1: its job has begun; 2: it has not
	job  BLOB    NOT NULL,
	idx  INTEGER NOT NULL,
	PRIMARY KEY (name, key, rank, job, idx)
) STRICT, WITHOUT ROWID;

CREATE VIEW perdure_lines AS SELECT name, key, rank = 1 AS begun, 'job_' || lower(hex(job)) AS job, idx FROM perdure_line;
