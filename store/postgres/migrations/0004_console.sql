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

-- Recorded runs

-- The run that an entry records. turn is null for other entries, and for those of older programs.
alter table perdure.entry
	add turn       int,
	add direction  smallint,
	add ready_at   timestamptz,
	add started_at timestamptz;

-- The recorded runs of a job in the order of their starts. If the start is not known, the end has its place.
create index entry_run on perdure.entry (job, (coalesce(started_at, at)), step, run, id)
	where run > 0 and event in ('done', 'failed', 'rejected', 'returned', 'expired');

create or replace view perdure.history as
select id, perdure.job_text(job) as job, nullif(step, '') as step, nullif(run, 0) as run, at, event,
	nullif(author, '') as author, nullif(detail, '') as detail, job as job_id,
	turn, case when turn is not null then perdure.direction(direction) end as direction, ready_at, started_at
from perdure.entry;

-- alert: what operators group alerts by. type and job_key are the job's; code and attempts are those of the step when the
-- alert was raised.
alter table perdure.alert
	add column type     text collate "C" not null default '',
	add column job_key  text collate "C" not null default '',
	add column code     text collate "C" not null default '',
	add column attempts int not null default 0;

update perdure.alert a set type = j.type, job_key = coalesce(j.job_key, '') from perdure.step j where j.job = a.job and j.idx = 0;
update perdure.alert a set code = coalesce(s.error_code, ''), attempts = coalesce(s.failures, 0) from perdure.step s
where a.closed_at is null and a.step <> '' and s.job = a.job and s.name = a.step;

-- Open alerts with one value, newest first. Only lists by this value contain the condition.
create index alert_open_code on perdure.alert (code, id) where closed_at is null and code <> '';
create index alert_open_step on perdure.alert (step, id) where closed_at is null and step <> '';
create index alert_open_type on perdure.alert (type, id) where closed_at is null and type <> '';
create index alert_open_kind on perdure.alert (kind, id) where closed_at is null and kind <> '';

create or replace view perdure.alerts as
select id, perdure.job_text(nullif(job, '00000000-0000-0000-0000-000000000000')) as job, nullif(step, '') as step, kind, nullif(name, '') as name, message,
	raised_at, closed_at, nullif(closed_by, '') as closed_by, job as job_id,
	nullif(type, '') as type, nullif(job_key, '') as job_key, nullif(code, '') as code, attempts
from perdure.alert;

-- Statistics

-- stats: the statistics that the leader of the role supervisor computes, in JSON.
create table perdure.stats (
	one  boolean primary key default true check (one),
	text text not null
) with (fillfactor = 10);

-- series: how often something has happened in a minute, as each node has counted it.
create table perdure.series (
	minute  timestamptz not null, -- its beginning
	node    text collate "C" not null,
	scope   smallint not null,    -- 1: name is a type of jobs, 2: name is an agent
	name    text collate "C" not null,
	outcome text collate "C" not null,
	n       bigint not null,
	primary key (minute, scope, name, outcome, node)
) with (fillfactor = 80);

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
