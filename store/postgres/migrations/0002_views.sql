-- The documented interface: the same rows in words.
--
--	select job, name, current, desired, phase, locked_by, locked_until
--	from perdure.steps where phase <> 'settled';

create function perdure.state(smallint) returns text language sql immutable strict parallel safe
	return (array['undone', 'done', 'unsure'])[$1 + 1];
create function perdure.phase(smallint) returns text language sql immutable strict parallel safe
	return (array['settled', 'waiting', 'ready', 'running', 'parked'])[$1 + 1];
create function perdure.direction(smallint) returns text language sql immutable strict parallel safe
	return (array['do', 'undo'])[$1 + 1];
create function perdure.outcome(smallint) returns text language sql immutable strict parallel safe
	return (array[null, 'done', 'failed', 'rejected', 'returned', 'expired'])[$1 + 1];

-- job_text and job_id are the two ways between an id's text and the uuid in the tables: use
-- "where job_id = perdure.job_id('job_…')" to have the index.
create function perdure.job_text(uuid) returns text language sql immutable strict parallel safe
	return 'job_' || replace($1::text, '-', '');
create function perdure.job_id(text) returns uuid language sql immutable strict parallel safe
	return substr($1, 5)::uuid;

-- json_text shows a payload. Bytes that are no text are shown escaped.
create function perdure.json_text(bytea) returns text language plpgsql immutable strict parallel safe as $$
begin
	return convert_from($1, 'UTF8');
exception when data_exception then
	return encode($1, 'escape');
end $$;

create view perdure.jobs as
select perdure.job_text(s.job) as job, s.job_key as key, s.type, s.priority,
	perdure.state(s.job_current) as current, perdure.state(s.job_desired) as desired, perdure.phase(s.job_phase) as phase,
	case when s.turn_back then 'done' end as "then", coalesce(s.restarts, 0) as restarts,
	coalesce(s.permit, false) as permit, s.unsettled, s.running, s.active,
	s.job_complete_by as complete_by, s.parked_at, coalesce(s.overdue, false) as overdue,
	s.given_up_by, s.given_up_reason,
	s.labels, s.states, s.created_at, s.job_updated_at as updated_at, s.settled_at,
	encode(s.hash, 'hex') as hash, perdure.json_text(h.text) as definition,
	perdure.json_text(coalesce(s.input, p.input)) as input, s.job as job_id
from perdure.step s
	left join perdure.shape h on h.id = s.shape
	left join perdure.payload p on s.apart and p.job = s.job and p.idx = -1
where s.idx = 0;

create view perdure.steps as
select perdure.job_text(s.job) as job, s.name, s.idx, s.type, s.priority,
	perdure.state(s.current) as current, perdure.state(s.desired) as desired, perdure.phase(s.phase) as phase,
	coalesce(s.skipped, false) as skipped, s.run,
	case when s.run > 0 then perdure.direction(coalesce(s.direction, 0::smallint)) end as direction,
	case when s.run > 0 then perdure.state(coalesce(s.was, 0::smallint)) end as was, coalesce(s.turn, 0) as turn,
	s.agent, s.locked_by, s.complete_by, s.locked_until,
	s.heartbeat / 1e6::double precision as heartbeat_seconds, s.request,
	coalesce(s.failures, 0) as failures, coalesce(s.rung, 0) as rung, coalesce(s.waits, 0) as waits,
	coalesce(s.returns, 0) as returns, s.available_at, coalesce(s.blockers, 0) as blockers,
	perdure.outcome(s.outcome) as outcome, s.error_code, s.last_error, s.progress,
	perdure.json_text(p.input) as input, perdure.json_text(p.output) as output,
	coalesce(s.own_input, false) as own_input, (array['do', 'undo', 'do'])[s.edited] as edited,
	coalesce(s.has_output, false) as has_output, coalesce(s.given_up, false) as given_up,
	s.ready_at, s.started_at, s.ended_at, s.updated_at, s.job as job_id
from perdure.every_step s left join perdure.payload p on p.job = s.job and p.idx = s.idx;

create view perdure.alerts as
select id, perdure.job_text(nullif(job, '00000000-0000-0000-0000-000000000000')) as job, nullif(step, '') as step, kind, nullif(name, '') as name, message,
	raised_at, closed_at, nullif(closed_by, '') as closed_by, job as job_id
from perdure.alert;

create view perdure.history as
select id, perdure.job_text(job) as job, nullif(step, '') as step, nullif(run, 0) as run, at, event,
	nullif(author, '') as author, nullif(detail, '') as detail, job as job_id
from perdure.entry;

create view perdure.limits as
select l.name, l.max, (select count(*) from perdure.permit p where p.name = l.name) as used
from perdure."limit" l;

create view perdure.nodes as
select id, host, pid, version, nullif(listen, '') as listen, agents, slots, since, seen_at from perdure.node;

create view perdure.roles as
select name, epoch, nullif(leader, '') as leader, leader_until, nullif(standby, '') as standby, standby_until
from perdure.role;

create view perdure.holders as
select agent, holder, at as seen_at from perdure.seen;
