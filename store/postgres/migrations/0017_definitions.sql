-- schema: min_reader 17, min_writer 17
--
-- start_at: nothing of the job is dispatched before. start_by: a run must be dispatched by then. The output of a job is in
-- its payload with the index -1, which also has a large input; output_error: why there is none.
alter table perdure.step add column start_at timestamptz, add column start_by timestamptz,
	add column job_has_output boolean, add column output_error text, add column made_from text;

create or replace view perdure.jobs as
select perdure.job_text(s.job) as job, s.job_key as key, s.type, s.priority,
	perdure.state(s.job_current) as current, perdure.state(s.job_desired) as desired, perdure.phase(s.job_phase) as phase,
	case when s.job_then then 'done' end as "then", coalesce(s.restarts, 0) as restarts,
	coalesce(s.permit, false) as permit, s.unsettled, s.running, s.active,
	s.job_complete_by as complete_by, s.parked_at, coalesce(s.overdue, false) as overdue,
	s.given_up_by, s.given_up_reason,
	s.labels, s.states, s.created_at, s.job_updated_at as updated_at, s.settled_at,
	encode(s.hash, 'hex') as hash, perdure.json_text(h.text) as definition,
	perdure.json_text(coalesce(s.input, p.input)) as input, s.job as job_id,
	s.reopened_at, s.traceparent, s.job_limits::jsonb as limits, s.start_at, s.start_by, perdure.json_text(o.output) as output, s.output_error, s.made_from
from perdure.step s
	left join perdure.shape h on h.id = s.shape
	left join perdure.payload p on s.apart and p.job = s.job and p.idx = -1
	left join perdure.payload o on s.job_has_output and o.job = s.job and o.idx = -1
where s.idx = 0
union all
select perdure.job_text(u.job), null, b.type, b.priority,
	perdure.state(0::smallint), perdure.state(1::smallint), perdure.phase(1::smallint),
	null, 0, false, b.steps, 0, 1, null, null, false, null, null,
	null, null, b.created_at, b.created_at, null,
	encode(substr(b.hashes, 32 * u.n::int - 31, 32), 'hex'), perdure.json_text(h.text),
	perdure.json_text(b.inputs[u.n]), u.job, null, null, null, null, null, null, null, null
from perdure.bundle b
	cross join lateral unnest(b.jobs) with ordinality as u (job, n)
	left join perdure.shape h on h.id = b.shape
where u.n > b.taken;

-- The jobs that are unique, each with its type and key: no other job is made with them. until: for so long; null: until the
-- job is settled, which deletes the row.
create table perdure.unique_key (
	type  text collate "C" not null,
	key   text collate "C" not null,
	job   uuid not null,
	until timestamptz,
	primary key (type, key)
);
create index unique_key_job on perdure.unique_key (job) where until is null;
create index unique_key_until on perdure.unique_key (until, type, key) where until is not null;

-- Stored definitions: a row for each name, and one for each version. The name means version current; latest is the highest
-- number that was used.
create table perdure.definition (
	name       text collate "C" primary key,
	current    bigint not null,
	latest     bigint not null,
	updated_at timestamptz not null
);
create table perdure.definition_version (
	name       text collate "C" not null,
	version    bigint not null,
	hash       bytea not null,
	author     text not null,
	created_at timestamptz not null,
	text       text not null,
	primary key (name, version)
);
