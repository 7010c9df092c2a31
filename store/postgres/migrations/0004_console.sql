-- schema: min_reader 3, min_writer 3

-- Statistics. The type of the job and the error code of the step's latest failure are recorded with each alert, because
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
