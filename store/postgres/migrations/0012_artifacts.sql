-- schema: min_reader 9, min_writer 12
--
-- artifact_use: which artifacts the values of a job refer to. An artifact without a row is deleted after a day, so programs
-- that would not write the rows are refused.
create table perdure.artifact_use (
	job  uuid not null,
	hash bytea not null,
	primary key (job, hash)
);
create index artifact_use_hash on perdure.artifact_use (hash);
comment on column perdure.artifact_use.hash is 'the SHA-256 of the artifact';
