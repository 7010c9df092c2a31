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
select perdure.job_text(j.id) as job, nullif(j.key, '') as key, j.type, j.priority,
	perdure.state(j.current) as current, perdure.state(j.desired) as desired, perdure.phase(j.phase) as phase,
	case when j.turn_back then 'done' end as "then", j.restarts, j.permit,
	j.unsettled, j.running, j.active,
	j.complete_by, j.parked_at, j.overdue,
	nullif(j.given_up_by, '') as given_up_by, nullif(j.given_up_reason, '') as given_up_reason,
	j.labels, j.states, j.created_at, j.updated_at, j.settled_at,
	encode(j.hash, 'hex') as hash, perdure.json_text(d.body) as definition, j.id as job_id
from perdure.job j left join perdure.definition d on d.job = j.id;

create view perdure.steps as
select perdure.job_text(s.job) as job, s.name, s.idx, s.type, s.priority,
	perdure.state(s.current) as current, perdure.state(s.desired) as desired, perdure.phase(s.phase) as phase,
	s.skipped, s.run, case when s.run > 0 then perdure.direction(s.direction) end as direction,
	case when s.run > 0 then perdure.state(s.was) end as was, s.turn,
	nullif(s.agent, '') as agent, nullif(s.locked_by, '') as locked_by, s.complete_by, s.locked_until,
	nullif(s.heartbeat, 0) / 1e6::double precision as heartbeat_seconds,
	nullif(s.request, '') as request,
	s.failures, s.rung, s.waits, s.returns, s.available_at, s.blockers,
	perdure.outcome(s.outcome) as outcome, nullif(s.error_code, '') as error_code,
	nullif(s.last_error, '') as last_error, nullif(s.progress, '') as progress,
	perdure.json_text(p.input) as input, perdure.json_text(p.output) as output,
	s.own_input, (array[null, 'do', 'undo', 'do'])[s.edited + 1] as edited, s.has_output, s.given_up,
	s.ready_at, s.started_at, s.ended_at, s.updated_at, s.job as job_id
from perdure.step s left join perdure.payload p on p.job = s.job and p.idx = s.idx;

create view perdure.alerts as
select id, perdure.job_text(job) as job, nullif(step, '') as step, kind, nullif(name, '') as name, message,
	raised_at, closed_at, nullif(closed_by, '') as closed_by, job as job_id
from perdure.alert;

create view perdure.history as
select id, perdure.job_text(job) as job, nullif(step, '') as step, nullif(run, 0) as run, at, event,
	nullif(author, '') as author, nullif(detail, '') as detail, job as job_id
from perdure.entry;

create view perdure.limits as
select l.name, l.max, case
	when l.name like 'job:%' then (select count(*) from perdure.job j where j.permit and j.type = substr(l.name, 5))
	else (select count(*) from perdure.step s where s.phase = 3 and s.agent = substr(l.name, 7))
	end as used
from perdure."limit" l;

create view perdure.nodes as
select id, host, pid, version, nullif(listen, '') as listen, agents, since, seen_at from perdure.node;

create view perdure.holders as
select agent, holder, at as seen_at from perdure.seen;
