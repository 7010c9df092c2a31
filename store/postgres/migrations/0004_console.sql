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

-- Statistics
--
-- The type of the job and the error code of the step's latest failure are recorded with each alert, because
-- alerts are counted by them.
alter table perdure.alert add column type text collate "C" not null default ''; -- '': unknown, or the alert is about no job
alter table perdure.alert add column code text collate "C" not null default '';

create or replace view perdure.alerts as
select id, perdure.job_text(nullif(job, '00000000-0000-0000-0000-000000000000')) as job, nullif(step, '') as step, kind, nullif(name, '') as name, message,
	raised_at, closed_at, nullif(closed_by, '') as closed_by, job as job_id, nullif(type, '') as type, nullif(code, '') as code
from perdure.alert;

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
