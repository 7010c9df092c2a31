-- schema: min_reader 8, min_writer 11
--
-- perdure_artifact_use: which artifacts the values of a job refer to. An artifact without a row is deleted after a day, so
-- programs that would not write the rows are refused.
CREATE TABLE perdure_artifact_use (
	job  BLOB NOT NULL,
	hash BLOB NOT NULL, -- the SHA-256 of the artifact
	PRIMARY KEY (job, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX perdure_artifact_use_hash ON perdure_artifact_use (hash);
