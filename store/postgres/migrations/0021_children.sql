-- schema: min_reader 19, min_writer 21
--
-- children: what a step records of its child jobs, as JSON. owns: it waits for them. parent: of a job that is a child, its
-- owner: JOB/INDEX/STEP/DEPTH.
alter table perdure.step add column children text, add column owns boolean, add column parent text;

-- child_news: changes of children that their owners have not counted yet. A transaction of a child only inserts; that of the
-- owner deletes what it counts.
create table perdure.child_news (
	job        uuid not null,      -- the owner: job and index of the step
	idx        int not null,
	number     bigint generated always as identity,
	child      uuid not null,
	from_state smallint not null,  -- 0 active, 1 parked, 2 done, 3 undone, 4 unsure
	to_state   smallint not null,
	at         timestamptz not null, -- the owner is due then
	primary key (job, idx, number)
);
create index child_news_at on perdure.child_news (at);

create or replace view perdure.steps as
select perdure.job_text(s.job) as job, x.name, x.idx, s.type, s.priority,
	perdure.state(x.current) as current, perdure.state(x.desired) as desired, perdure.phase(x.phase) as phase,
	coalesce(x.skipped, false) as skipped, x.run,
	case when x.run > 0 then perdure.direction(coalesce(x.direction, 0::smallint)) end as direction,
	case when x.run > 0 then perdure.state(coalesce(x.was, 0::smallint)) end as was, coalesce(x.turn, 0) as turn,
	x.agent, x.locked_by, x.complete_by, x.locked_until,
	x.heartbeat / 1e6::double precision as heartbeat_seconds, x.request,
	coalesce(x.failures, 0) as failures, coalesce(x.rung, 0) as rung, coalesce(x.waits, 0) as waits,
	coalesce(x.returns, 0) as returns, x.available_at, coalesce(x.blockers, 0) as blockers, x.ageing / 1e6::double precision as ageing_seconds, x.limits::jsonb as limits,
	perdure.outcome(x.outcome) as outcome, x.error_code, x.last_error, x.progress,
	perdure.json_text(p.input) as input, perdure.json_text(p.output) as output,
	coalesce(x.own_input, false) as own_input, (array['do', 'undo', 'do'])[x.edited] as edited,
	coalesce(x.has_output, false) as has_output, coalesce(x.given_up, false) as given_up,
	x.ready_at, x.started_at, x.ended_at, x.updated_at, s.job as job_id, x.progress_at, x.stop_requested_at, x.host, x.topic, x.approval, x.children::jsonb as children, coalesce(x.owns, false) as owns
from perdure.step s
	cross join lateral (
		select
			s.idx, s.name, s.current, s.desired, s.phase, s.skipped, s.run, s.direction, s.was, s.turn, s.agent,
			s.locked_by, s.complete_by, s.locked_until, s.heartbeat, s.request, s.failures, s.rung, s.waits,
			s.returns, s.available_at, s.blockers, s.ageing, s.limits, s.outcome, s.error_code, s.last_error, s.progress, s.own_input,
			s.edited, s.has_output, s.given_up, s.ready_at, s.started_at, s.ended_at, s.updated_at, s.progress_at, s.stop_requested_at, s.host, s.topic, s.approval, s.children, s.owns
		union all
		select
			l.idx, l.name collate "C", 0::smallint, 1::smallint, 1::smallint, null::boolean, 0::bigint,
			null::smallint, null::smallint, 1, null::text, null::text, null::timestamptz, null::timestamptz,
			null::bigint, null::text, null::int, null::int, null::int, null::int, null::timestamptz, l.blockers, null::bigint, null::text,
			null::smallint, null::text, null::text, null::text, null::boolean, null::smallint, null::boolean,
			null::boolean, null::timestamptz, null::timestamptz, null::timestamptz, s.created_at, null::timestamptz, null::timestamptz, null::text, null::text, null::text, null::text, null::boolean
		from (select later from perdure.shape where id = s.shape offset 0) h
			cross join lateral jsonb_to_recordset(h.later) as l (idx int, name text, blockers int)
		where s.idx = 0 and s.job_phase <> 0 and h.later is not null
			and not exists (select from perdure.step t where t.job = any(array[s.job]) and t.idx = l.idx offset 0)
	) x
	left join perdure.payload p on p.job = s.job and p.idx = x.idx
union all
select perdure.job_text(u.job), x.name, x.idx, b.type, b.priority,
	perdure.state(0::smallint), perdure.state(1::smallint), perdure.phase(x.phase),
	false, 0, null, null, 1, x.agent, null, null, null, null, null, 0, 0, 0, 0, null, x.blockers, x.ageing, null,
	null, null, null, null, null, null, false, null, false, false,
	x.ready_at, null, null, b.created_at, u.job, null, null, null, null, null, null, false
from perdure.bundle b
	cross join lateral unnest(b.jobs) with ordinality as u (job, n)
	cross join lateral (
		select 0 as idx, b.name, 2::smallint as phase, b.agent, 0 as blockers, nullif(b.ageing, 0) / 1e6::double precision as ageing, b.created_at as ready_at
		union all
		select l.idx, l.name collate "C", 1::smallint, null, l.blockers, null, null
		from (select later from perdure.shape where id = b.shape offset 0) h
			cross join lateral jsonb_to_recordset(h.later) as l (idx int, name text, blockers int)
	) x
where u.n > b.taken;

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
	s.reopened_at, s.traceparent, s.job_limits::jsonb as limits, s.submitter, s.start_at, s.start_by, perdure.json_text(o.output) as output, s.output_error, s.made_from, s.parent
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
	perdure.json_text(b.inputs[u.n]), u.job, null, null, null, null, null, null, null, null, null, null
from perdure.bundle b
	cross join lateral unnest(b.jobs) with ordinality as u (job, n)
	left join perdure.shape h on h.id = b.shape
where u.n > b.taken;
