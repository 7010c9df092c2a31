-- schema: min_reader 7, min_writer 7
--
-- perdure_log: what the runs of steps write on their standard output (stdout) and standard error (stderr).
CREATE TABLE perdure_log (
	job      BLOB NOT NULL,
	step     TEXT NOT NULL,
	run      INTEGER NOT NULL,
	stream   TEXT NOT NULL,
	holder   TEXT NOT NULL,
	next     INTEGER NOT NULL, -- offset of the next byte
	last     INTEGER NOT NULL, -- offset of the last row in perdure_log_chunk
	complete INTEGER NOT NULL, -- 1: nothing follows
	artifact BLOB,             -- the SHA-256 of the artifact that has the bytes; NULL: they are in perdure_log_chunk
	movable  INTEGER NOT NULL, -- 1: the bytes are to be moved to an artifact
	PRIMARY KEY (job, step, run, stream)
) STRICT, WITHOUT ROWID;
CREATE INDEX perdure_log_movable ON perdure_log (job, step, run, stream) WHERE movable = 1;

-- perdure_log_chunk: the bytes. Each row has the bytes from the offset at on. A log keeps its beginning and its end.
CREATE TABLE perdure_log_chunk (
	job    BLOB NOT NULL,
	step   TEXT NOT NULL,
	run    INTEGER NOT NULL,
	stream TEXT NOT NULL,
	at     INTEGER NOT NULL,
	data   BLOB NOT NULL,
	PRIMARY KEY (job, step, run, stream, at)
) STRICT;
