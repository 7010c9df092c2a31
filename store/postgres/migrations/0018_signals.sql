-- schema: min_reader 14, min_writer 18
--
-- The name and the key of the signals for which a step waits, with a slash between them; what an approval asks and who has
-- approved, as JSON; and who submitted the job, if an approval excludes the submitter.
alter table perdure.step add column topic text, add column approval text, add column submitter text;

-- waiter: the steps that wait for a signal.
create table perdure.waiter (
	topic text collate "C" not null,
	job   uuid not null,
	idx   int not null,
	primary key (topic, job, idx)
);

-- signal: signals that are kept for the next step that waits, and those that are remembered, so that they have no effect when
-- they are sent again. A transaction that writes one has locked its topic (an advisory lock).
create table perdure.signal (
	number   bigint generated always as identity primary key, -- of signals of one topic, the later has the higher number
	topic    text collate "C" not null, -- name/key
	job      uuid not null,             -- only its steps receive the signal; zero: steps of any job
	id       text collate "C" not null,
	data     text,                      -- null: it was received
	at       timestamptz not null,
	until_at timestamptz not null,      -- it is kept and remembered until then
	taken    jsonb,                     -- the steps that have received it; null: it is kept
	unique (topic, job, id)
);

create index signal_kept on perdure.signal (topic, number) where taken is null;
create index signal_until on perdure.signal (until_at);

-- The signals of a store.
create view perdure.signals as
select number, split_part(topic, '/', 1) as name, split_part(topic, '/', 2) as key,
	case when job <> '00000000-0000-0000-0000-000000000000' then perdure.job_text(job) end as job, id, data, at, until_at as until, taken
from perdure.signal;

create view perdure.waiters as
select split_part(topic, '/', 1) as name, split_part(topic, '/', 2) as key, perdure.job_text(job) as job, idx
from perdure.waiter;

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
	x.ready_at, x.started_at, x.ended_at, x.updated_at, s.job as job_id, x.progress_at, x.stop_requested_at, x.host, x.topic, x.approval
from perdure.step s
	cross join lateral (
		select
			s.idx, s.name, s.current, s.desired, s.phase, s.skipped, s.run, s.direction, s.was, s.turn, s.agent,
			s.locked_by, s.complete_by, s.locked_until, s.heartbeat, s.request, s.failures, s.rung, s.waits,
			s.returns, s.available_at, s.blockers, s.ageing, s.limits, s.outcome, s.error_code, s.last_error, s.progress, s.own_input,
			s.edited, s.has_output, s.given_up, s.ready_at, s.started_at, s.ended_at, s.updated_at, s.progress_at, s.stop_requested_at, s.host, s.topic, s.approval
		union all
		select
			l.idx, l.name collate "C", 0::smallint, 1::smallint, 1::smallint, null::boolean, 0::bigint,
			null::smallint, null::smallint, 1, null::text, null::text, null::timestamptz, null::timestamptz,
			null::bigint, null::text, null::int, null::int, null::int, null::int, null::timestamptz, l.blockers, null::bigint, null::text,
			null::smallint, null::text, null::text, null::text, null::boolean, null::smallint, null::boolean,
			null::boolean, null::timestamptz, null::timestamptz, null::timestamptz, s.created_at, null::timestamptz, null::timestamptz, null::text, null::text, null::text
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
	x.ready_at, null, null, b.created_at, u.job, null, null, null, null, null
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
	s.reopened_at, s.traceparent, s.job_limits::jsonb as limits, s.submitter
from perdure.step s
	left join perdure.shape h on h.id = s.shape
	left join perdure.payload p on s.apart and p.job = s.job and p.idx = -1
where s.idx = 0
union all
select perdure.job_text(u.job), null, b.type, b.priority,
	perdure.state(0::smallint), perdure.state(1::smallint), perdure.phase(1::smallint),
	null, 0, false, b.steps, 0, 1, null, null, false, null, null,
	null, null, b.created_at, b.created_at, null,
	encode(substr(b.hashes, 32 * u.n::int - 31, 32), 'hex'), perdure.json_text(h.text),
	perdure.json_text(b.inputs[u.n]), u.job, null, null, null, null
from perdure.bundle b
	cross join lateral unnest(b.jobs) with ordinality as u (job, n)
	left join perdure.shape h on h.id = b.shape
where u.n > b.taken;
