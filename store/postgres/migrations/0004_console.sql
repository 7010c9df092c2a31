-- schema: min_reader 3, min_writer 4
--
-- What operators look for, found without reading a whole table.

-- exception: the few jobs that operators look for, among many. kind is 1 if the job is parked, 2 if it is to be undone and is
-- not settled, and 3 if it has settled otherwise than done and wanted done. A job may be listed twice, and most never are.
create table perdure.exception (
	kind smallint not null,
	job  uuid not null,
	primary key (kind, job)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

insert into perdure.exception
select k.kind, s.job from perdure.step s cross join (values (1), (2), (3)) k (kind)
where s.idx = 0 and case k.kind
	when 1 then s.job_phase = 4
	when 2 then s.job_phase <> 0 and s.job_desired = 0
	else s.job_phase = 0 and (s.job_current <> 1 or s.job_desired <> 1) end;

create index alert_kind on perdure.alert (kind, job) where closed_at is null and kind <> '';

-- Bulk acts: one act on many jobs, those that match a filter or those that were listed. The role courier goes through the
-- jobs in the order of their ids.
create table perdure.bulk (
	id             text collate "C" primary key,  -- bulk_ and 32 hexadecimal digits; they grow with time
	key            text collate "C" unique,       -- makes a repeated start safe
	request        text not null,                 -- the act and the filter, in JSON
	author         text not null,
	reason         text not null,
	listed_count   int not null,
	listed         bytea not null,                -- the ids of the jobs that were listed, 16 bytes each, in order; empty if there is a filter
	below          uuid not null,                 -- jobs with this id and later ones were submitted after the start
	expected       int not null,                  -- how many jobs there were at the start
	capped         boolean not null,              -- there may have been more
	state          text not null check (state in ('running', 'done', 'stopped')),
	stopped_by     text not null,
	cursor         uuid not null,                 -- all jobs up to this one were met
	done           int not null,
	unchanged      int not null,
	refused        int not null,
	started_at     timestamptz not null,
	updated_at     timestamptz not null,
	ended_at       timestamptz,
	resumed_at     timestamptz not null,          -- when it began to run, and how many jobs it had met then
	matched_before int not null
);
create index bulk_running on perdure.bulk (id) where state = 'running';

-- The first jobs on which a bulk act was refused.
create table perdure.bulk_refusal (
	bulk    text collate "C" not null references perdure.bulk on delete cascade,
	number  int not null,                         -- from 1, in the order in which the jobs were met
	job     uuid not null,
	code    text not null,
	message text not null,
	primary key (bulk, number)
);
