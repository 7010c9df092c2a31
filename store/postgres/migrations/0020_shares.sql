-- schema: min_reader 19, min_writer 20
--
-- How an agent's ready steps are divided into shares, as JSON: an expression (by) and the weights of its values (weights).
alter table perdure.agent add column fair text;

-- share: the shares of agents, and what was dispatched from them. A share has a row for each class of lanes in which it has,
-- or recently had, ready steps; the rows of a share have the same value of served. A share that is charged without such a row
-- gets one with the class -1 - share. The share 0 is the steps without a value.
create table perdure.share (
	agent   text collate "C" not null,
	class   bigint not null,  -- as class in lane
	share   bigint not null,
	kind    bigint not null,  -- equal in all classes that differ in their share alone
	value   text not null,
	type    text collate "C" not null, -- of the jobs
	limits  text not null,    -- what the steps of one of its lanes need; the names are those of all of them
	served  bigint not null,  -- 1,000,000 for each run, divided by the weight of the share
	waiting boolean not null, -- the class has open lanes; or it had some until now, and the next search sets it to false
	primary key (class, agent)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

create index share_served on perdure.share (agent, served, share);
create index share_idle on perdure.share (agent, served, share) where not waiting;
create index share_waiting on perdure.share (agent, kind, served, share) where waiting;
create index share_share on perdure.share (agent, share, served);
create index lane_shares on perdure.lane (agent) where closed_name is not null and class >= 0;

-- move_shares is called by a transaction right before its commit. It notes that classes have open lanes, and charges shares
-- for what was dispatched from them (of, charged). All transactions add rows, and then lock the rows that they change, in one
-- order, before they change any. A class that is known to have open lanes is locked in shared mode, which any number of
-- transactions can hold, and which keeps settle_shares from changing it until the transaction ends.
--
-- The arithmetic is that of kernel.FairFloor and Charge.Served, of which the program gives the unit. The numbers are read under
-- these locks: to compute them in the program would hold the locks for another round trip.
--
-- waiting is compared as a number, and agent as an expression, where only the primary key is to be used: while the table is
-- empty, the planner takes all indexes for equal.
create function perdure.move_shares(agents text[], classes bigint[], shares bigint[], kinds bigint[], vals text[], types text[], needs text[],
	of text[], charged bigint[], charged_vals text[], amounts bigint[], unit bigint) returns void language plpgsql volatile as $$
declare
	n int;
	floors bigint[];
begin
	insert into perdure.share (agent, class, share, kind, value, type, limits, served, waiting)
		select u.agent, -1 - u.share, u.share, 0, u.value, '', '', 0, false
		from unnest(of, charged, charged_vals) as u (agent, share, value)
		where not exists (select from perdure.share o where o.agent = u.agent collate "C" and o.share = u.share offset 0)
		order by u.agent collate "C", u.share
		on conflict do nothing;
	perform count(*) from (
		select s.agent, s.class from unnest(of, charged) as u (agent, share) cross join lateral (
			select agent, class from perdure.share where agent = u.agent collate "C" and share = u.share offset 0) s
		union
		select s.agent, s.class from unnest(agents, classes) as u (agent, class) cross join lateral (
			select agent, class from perdure.share where class = u.class and agent || '' = u.agent collate "C" and waiting::int = 0 offset 0) s
		order by 1, 2 offset 0) a cross join lateral (
		select from perdure.share where class = a.class and agent || '' = a.agent for no key update) l;
	loop
		select count(*) into n from unnest(agents, classes) as u (agent, class) cross join lateral (
			select from perdure.share where class = u.class and agent || '' = u.agent collate "C" and waiting::int = 1 for key share) s;
		exit when n = cardinality(agents);
		insert into perdure.share as s (agent, class, share, kind, value, type, limits, served, waiting)
			select u.agent, u.class, u.share, u.kind, u.value, u.type, u.limits,
				coalesce((select served from perdure.share o where o.agent = u.agent collate "C" and o.share = u.share limit 1), 0), true
			from unnest(agents, classes, shares, kinds, vals, types, needs) as u (agent, class, share, kind, value, type, limits)
			where not exists (select from perdure.share w where w.class = u.class and w.agent || '' = u.agent collate "C" and w.waiting::int = 1 offset 0)
			order by u.agent collate "C", u.class
			on conflict (class, agent) do update set waiting = true where not s.waiting;
	end loop;
	if cardinality(of) > 0 then
		select array_agg(f.floor order by u.n) into floors from unnest(of) with ordinality as u (agent, n) join (
			select a.agent, greatest(0, (select served from perdure.share where agent = a.agent collate "C" order by served desc limit 1) - unit) as floor
			from (select distinct agent from unnest(of) as u (agent)) a) f on f.agent = u.agent;
		update perdure.share s set served = greatest(s.served, k.floor) + k.amount from (
			select f.at, u.amount, u.floor from unnest(of, charged, amounts, floors) as u (agent, share, amount, floor) cross join lateral (
				select ctid as at from perdure.share where agent = u.agent collate "C" and share = u.share offset 0) f) k
		where s.ctid = k.at;
	end if;
end $$;

-- settle_shares notes that classes have no open lanes any more: of these classes, and of the classes of these lanes. Rows that other
-- transactions have locked are left alone. The lanes are read again after the lock: a transaction that has opened a lane of the
-- class has ended, or waits for the lock.
create function perdure.settle_shares(agents text[], classes bigint[], lane_agents text[], lanes bigint[]) returns void language plpgsql volatile as $$
declare
	locked tid[];
begin
	select array_agg(s.at) into locked from (
		select u.agent, u.class from unnest(agents, classes) as u (agent, class)
		union
		select l.agent, l.class from unnest(lane_agents, lanes) as u (agent, lane) cross join lateral (
			select agent, class from perdure.lane where lane = u.lane and agent = u.agent collate "C" and class >= 0 offset 0) l
	) c cross join lateral (
		select ctid as at from perdure.share where class = c.class and agent || '' = c.agent collate "C" and waiting::int = 1
		and not exists (select from perdure.lane l where l.agent = c.agent collate "C" and l.class = c.class and l.closed_name is null offset 0)
		for update skip locked) s;
	update perdure.share s set waiting = false from unnest(locked) as u (at)
		where s.ctid = u.at and not exists (select from perdure.lane l where l.agent = s.agent and l.class = s.class and l.closed_name is null offset 0);
end $$;

comment on table perdure.share is 'shares of agents with fairBy, and what was dispatched from them';
comment on column perdure.agent.fair is 'how its ready steps are divided into shares, as JSON';

create or replace view perdure.agents as
select name, ageing / 1e6::double precision as ageing_seconds, patience / 1e6::double precision as patience_seconds, fair from perdure.agent;
