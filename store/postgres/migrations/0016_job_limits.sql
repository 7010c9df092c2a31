-- schema: min_reader 14, min_writer 16
--
-- job_limits: the permits of named limits that the job needs, as JSON. It holds them, under idx -1 of table permit, while
-- column permit is true.
alter table perdure.step add column job_limits text;

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
	s.reopened_at, s.traceparent, s.job_limits::jsonb as limits
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
	perdure.json_text(b.inputs[u.n]), u.job, null, null, null
from perdure.bundle b
	cross join lateral unnest(b.jobs) with ordinality as u (job, n)
	left join perdure.shape h on h.id = b.shape
where u.n > b.taken;
