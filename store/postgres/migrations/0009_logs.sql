-- schema: min_reader 8, min_writer 8
--
-- What the runs of steps write on their standard output (stdout) and standard error (stderr).
create table perdure.log (
	job uuid not null,
	step text collate "C" not null,
	run bigint not null,
	stream text collate "C" not null,
	holder text not null,
	next bigint not null,      -- offset of the next byte
	last bigint not null,      -- offset of the last row in log_chunk
	complete boolean not null, -- nothing follows
	artifact bytea,            -- the SHA-256 of the artifact that has the bytes; null: they are in log_chunk
	movable boolean not null,  -- the bytes are to be moved to an artifact
	primary key (job, step, run, stream)
) with (fillfactor = 70);

-- The predicate has no column that changes with each write to a log: such an index would make each of these writes more
-- expensive (no HOT update).
create index log_movable on perdure.log (job, step, run, stream) where movable;

-- The bytes. Each row has the bytes from the offset at on. A log keeps its beginning and its end.
create table perdure.log_chunk (
	job uuid not null,
	step text collate "C" not null,
	run bigint not null,
	stream text collate "C" not null,
	at bigint not null,
	data bytea not null,
	primary key (job, step, run, stream, at)
);

-- As for notifications: a server without LZ4 has another compression, which costs more than it saves.
do $$ begin
	alter table perdure.log_chunk alter column data set compression lz4;
exception when feature_not_supported then
	alter table perdure.log_chunk alter column data set storage external;
end $$;
