-- schema: min_reader 1, min_writer 1
--
-- Perdure on PostgreSQL 14 and later.
--
-- Base tables have names in the singular and are packed: enumerations are numbers in the order of package
-- perdure's constants, ids are uuids, and zero values are null, because null takes no space.
-- The views, with names in the plural, are the documented interface: they show the same rows in words.
--
-- Text is compared by bytes (collate "C"): no list here is sorted for readers of a language, and an operating
-- system that changes its collations cannot break an index.
--
-- There are no foreign keys: the rows of a job are written in the transaction that writes the job.

-- step: jobs and steps. The job's own columns are on the row of its first step (idx 0), and null on the others.
-- That row is the lock of the job and of all its steps.
--
-- Columns that are written once come first. Of the others, those that change together are adjacent: for an update
-- the log gets what lies between the first and the last byte that differ. No index contains a column that changes
-- while a job succeeds, and the fillfactor leaves space, so that a new version of a row stays on its page (HOT).
-- Rows that must be found while they change have entries in the narrow tables below.
create table perdure.step (
	job             uuid     not null,
	idx             int      not null,
	priority        smallint not null,
	apart           boolean, -- the job's input is in payload, under idx -1
	created_at      timestamptz,
	shape           uuid,
	hash            bytea,
	name            text     collate "C" not null,
	type            text     collate "C" not null,
	job_key         text     collate "C",
	input           bytea,
	labels          jsonb,
	states          jsonb,

	run             bigint   not null,
	started_at      timestamptz,
	ready_at        timestamptz,
	turn            int,
	direction       smallint,
	was             smallint,

	locked_by       text     collate "C",
	request         text     collate "C",
	agent           text     collate "C",
	complete_by     timestamptz,
	locked_until    timestamptz,
	heartbeat       bigint, -- microseconds
	updated_at      timestamptz,
	ended_at        timestamptz,
	job_updated_at  timestamptz,
	settled_at      timestamptz,
	unsettled       int,
	running         int,
	active          int,
	current         smallint not null,
	desired         smallint not null,
	phase           smallint not null,
	outcome         smallint,
	job_current     smallint,
	job_desired     smallint,
	job_phase       smallint,
	permit          boolean,
	has_output      boolean,

	available_at    timestamptz,
	job_complete_by timestamptz,
	parked_at       timestamptz,
	blockers        int,
	ageing          bigint, -- the agent's setting, in microseconds; null: the default
	limits          text,   -- JSON: permits that the step needs
	failures        int,
	rung            int,
	waits           int,
	returns         int,
	restarts        int,
	edited          smallint, -- an operator has set the input, for this direction
	skipped         boolean,
	own_input       boolean,
	given_up        boolean,
	job_then        boolean, -- "then": the job is undone, and will be redone after that
	overdue         boolean,
	alerted         boolean,
	error_code      text,
	last_error      text,
	progress        text,
	given_up_by     text,
	given_up_reason text,
	primary key (job, idx)
) with (
	-- The next write to a page removes its old versions, and no plan depends on statistics: there is little for vacuum
	-- to do, and much to read. A row that has run once leaves one old version. While an open transaction keeps these, more
	-- vacuums would read the table in vain, one after the other. A table that grows is vacuumed because of its inserts.
	-- Half of a page is left for second versions, which are mostly no larger than the first.
	fillfactor = 50,
	autovacuum_vacuum_scale_factor = 2, autovacuum_analyze_scale_factor = 0.5
);

create unique index step_key on perdure.step (job_key) where job_key is not null;
-- While a table is empty, all of its indexes look equally good to the planner. So no query may match a worse index
-- than its own (plan_test.go): this index has a condition that only lists of a type contain.
create index step_type on perdure.step (type, job) where shape is not null;

-- shape: the text that the jobs of one definition have in common, as it was submitted; and which of their steps are
-- implicit: they wait for so many other steps (blockers) from the beginning, and have no row until they change.
create table perdure.shape (
	id    uuid primary key,
	text  bytea not null,
	later jsonb -- [{idx, name, blockers}]
);

-- Queue tables: rows are found by them without their job's id. An entry is written in the transaction that writes its
-- row of step, and can be made again from that row.

-- open: the jobs that are not settled, without those that have runs in flight, which table out has. A job with a
-- deadline that is still to come is here in any case. look_at is the deadline.
create table perdure.open (
	job     uuid primary key,
	look_at timestamptz
) with (
	fillfactor = 90,
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000
);

create index open_look on perdure.open (look_at, job) where look_at is not null;

-- ready: the steps that are ready to be claimed, by lane and order.
create table perdure.ready (
	agent text collate "C" not null,
	lane  bigint not null,
	ord   bigint not null,
	job   uuid not null,
	idx   int  not null,
	primary key (agent, lane, ord, job, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- bundle: jobs that were submitted together and have not changed since, one row for all of them. They have no rows in
-- step, open and ready: the first step of each is ready, and its other steps are implicit. The jobs before "taken" have
-- left the bundle, and have rows. The ids are in order, and the jobs are dispatched in this order.
create table perdure.bundle (
	first      uuid primary key, -- the first of jobs
	last       uuid not null,
	agent      text collate "C" not null,
	lane       bigint not null,
	ord        bigint not null, -- of the first job, as in ready
	size       int not null,
	taken      int not null default 0,
	type       text collate "C" not null,
	name       text collate "C" not null, -- of the first step
	priority   smallint not null,
	ageing     bigint not null, -- microseconds
	shape      uuid not null,
	steps      int not null, -- how many each job has
	created_at timestamptz not null,
	jobs       uuid[] not null,
	hashes     bytea not null, -- 32 bytes for each
	inputs     bytea[] not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_limit = 2000);

alter table perdure.bundle alter column jobs set storage external, alter column hashes set storage external;

create index bundle_ready on perdure.bundle (agent, lane, ord);

-- lane: the lanes of steps that need a user's own limit. A lane has a row while a step of it is ready. A closed lane is not
-- searched: the limit, with this key, has no permit free for its steps.
create table perdure.lane (
	agent       text collate "C" not null,
	lane        bigint not null,
	class       bigint not null, -- lanes whose steps have the same type and need the same limits
	type        text collate "C" not null,
	limits      text not null,   -- what its steps need, as in step
	ord         bigint not null, -- its place, as ord in ready: no ready step of the lane comes before it
	job         uuid not null,
	idx         int not null,
	closed_name text collate "C",
	closed_key  text collate "C",
	-- In this order nearly all entries differ in their first column. Each move of a place adds an entry for the same lane, which
	-- vacuum removes soon. Combining such entries would cost more than it saves.
	primary key (lane, agent) with (deduplicate_items = off)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

create index lane_open on perdure.lane (agent, class, ord, job, idx) where closed_name is null;
create index lane_closed on perdure.lane (closed_name, closed_key, ord, agent, lane) where closed_name is not null;

-- enter_lanes is called by a transaction that has made steps ready in these lanes. All callers give lanes in one order. It
-- locks the lanes' rows in shared mode, which any number of transactions can hold, and which keeps settle_lanes from
-- changing them until the transaction ends. If the new step comes before the lane's place, the place is lowered: the row is
-- locked exclusively first, and changed by a later statement, which sees what the previous holder of the lock has written.
create function perdure.enter_lanes(agents text[], lanes bigint[], classes bigint[], types text[], limits text[], ords bigint[], jobs uuid[], idxs int[])
returns void language plpgsql volatile as $$
declare
	n int;
begin
	loop
		select count(*) into n from unnest(agents, lanes) as u (agent, lane) cross join lateral (
			select from perdure.lane where agent = u.agent collate "C" and lane = u.lane for key share) l;
		exit when n = cardinality(agents);
		insert into perdure.lane (agent, lane, class, type, limits, ord, job, idx)
			select * from unnest(agents, lanes, classes, types, limits, ords, jobs, idxs) as u (agent, lane, class, type, limits, ord, job, idx)
			where not exists (select from perdure.lane l where l.agent = u.agent collate "C" and l.lane = u.lane offset 0) on conflict do nothing;
	end loop;
	select count(*) into n from unnest(agents, lanes, ords, jobs, idxs) as u (agent, lane, ord, job, idx) cross join lateral (
		select from perdure.lane where agent = u.agent collate "C" and lane = u.lane and (ord, job, idx) > (u.ord, u.job, u.idx) for no key update) l;
	if n > 0 then
		update perdure.lane l set ord = k.ord, job = k.job, idx = k.idx from (
			select l.ctid, u.ord, u.job, u.idx from unnest(agents, lanes, ords, jobs, idxs) as u (agent, lane, ord, job, idx) cross join lateral (
				select ctid from perdure.lane where agent = u.agent collate "C" and lane = u.lane and (ord, job, idx) > (u.ord, u.job, u.idx) offset 0) l) k
		where l.ctid = k.ctid;
	end if;
end $$;

-- settle_lanes is called by a transaction that has dispatched ready steps from lanes of an agent. It gives an open lane the place
-- of its first step, and deletes a lane without steps. A lane is given by the position of its row, or by its key. First the rows
-- are locked; rows that other transactions have locked or moved are left alone. Then the steps are read: a transaction that has
-- made a step ready in the lane has ended, or waits for the lock. A lane is read from its place on, because before it are only
-- index entries of deleted steps. Only a lane that looks empty is read from its beginning, in case its place is wrong.
create function perdure.settle_lanes(of text, ats tid[], at_lanes bigint[], lanes bigint[]) returns void language plpgsql volatile as $$
declare
	locked tid[];
	locked_lanes bigint[];
	ords bigint[];
begin
	select array_agg(l.ctid), array_agg(l.lane), array_agg(l.ord) into locked, locked_lanes, ords from (
		select l.* from unnest(ats, at_lanes) as u (at, lane) cross join lateral (
			select ctid, lane, ord from perdure.lane where ctid = u.at and lane = u.lane and agent = of collate "C" and coalesce(closed_name, '') = ''
			for update skip locked) l
		union all
		select l.* from unnest(lanes) as u (lane) cross join lateral (
			select ctid, lane, ord from perdure.lane where lane = u.lane and agent = of collate "C" and coalesce(closed_name, '') = ''
			for update skip locked) l) l;
	with first as materialized (
		select u.at, coalesce(r.ord, e.ord) as ord, coalesce(r.job, e.job) as job, coalesce(r.idx, e.idx) as idx
		from unnest(locked, locked_lanes, ords) as u (at, lane, ord) left join lateral (
			select ord, job, idx from perdure.ready r where r.agent = of collate "C" and r.lane = u.lane and r.ord >= u.ord
			order by ord, job, idx limit 1) r on true
		left join lateral (
			select ord, job, idx from perdure.ready e where r.ord is null and e.agent = of collate "C" and e.lane = u.lane
			order by ord, job, idx limit 1) e on true
	), placed as (
		update perdure.lane l set ord = f.ord, job = f.job, idx = f.idx from first f
		where l.ctid = f.at and f.ord is not null and (l.ord, l.job, l.idx) <> (f.ord, f.job, f.idx)
	)
	delete from perdure.lane l using first f where l.ctid = f.at and f.ord is null;
end $$;

-- due: the steps that wait for a time.
create table perdure.due (
	at  timestamptz not null,
	job uuid not null,
	idx int  not null,
	primary key (at, job, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- out: runs that were dispatched together, one row for all of them. It says where to search: a run may have ended since, or
-- its lock may have been extended. The row of the step is authoritative. until_at is not after the end of the lock of any of
-- these runs that is still in flight.
create table perdure.out (
	until_at  timestamptz not null,
	id        bigint not null,
	agent     text collate "C" not null,
	locked_by text collate "C" not null,
	request   text collate "C" not null,
	jobs      uuid[] not null,
	idxs      int[]  not null,
	primary key (until_at, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_limit = 2000);

-- Compression would not make ids smaller.
alter table perdure.out alter column jobs set storage external, alter column idxs set storage external;

create index out_holder on perdure.out (locked_by, agent, request);

-- permit: which row holds a permit. A permit of job:TYPE is held by the job, under idx 0, any other by a run. Permits of job:TYPE
-- and agent:NAME are stored while the limit is defined.
create table perdure.permit (
	name   text collate "C" not null,
	key    text collate "C" not null, -- '': none
	job    uuid not null,
	idx    int  not null,
	amount int  not null,
	primary key (name, key, job, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- label: the labels of jobs again, in the order in which lists need them.
create table perdure.label (
	name  text collate "C" not null,
	value text collate "C" not null,
	job   uuid not null,
	primary key (name, value, job)
);

-- payload: the large values of a step, as they were submitted. Most steps have none until they end. The input of a job that is
-- too large for its row has idx -1.
create table perdure.payload (
	job    uuid not null,
	idx    int  not null,
	input  bytea,
	output bytea,
	primary key (job, idx)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create table perdure.alert (
	id        bigint generated always as identity primary key,
	job       uuid not null,
	step      text collate "C" not null,
	kind      text collate "C" not null,
	name      text not null,
	message   text not null,
	raised_at timestamptz,
	closed_at timestamptz,
	closed_by text not null
);

create index alert_job on perdure.alert (job, id);
create index alert_open on perdure.alert (id) where closed_at is null and id > 0;

create table perdure.entry (
	id     bigint generated always as identity primary key,
	job    uuid   not null,
	step   text   collate "C" not null,
	run    bigint not null,
	at     timestamptz,
	event  text   not null,
	author text   not null,
	detail text   not null
);

create index entry_job on perdure.entry (job, id);

-- agent: settings of agents, by operators.
create table perdure.agent (
	name   text collate "C" primary key,
	ageing bigint not null -- microseconds
);

create table perdure."limit" (
	name    text collate "C" primary key, -- job:TYPE, agent:NAME, or a user's own name
	max     int,                          -- null: unlimited
	per_key int
);

create table perdure.node (
	id      text collate "C" primary key,
	host    text not null,
	pid     int  not null,
	version text not null,
	listen  text not null,
	agents  text[] not null,
	slots   int[]  not null, -- of each of the agents
	since   timestamptz,
	seen_at timestamptz,
	origin  text not null default '' -- the database that has everything that was acknowledged to the node; see fence.go
) with (fillfactor = 70);

-- role: the leader and the standby of each role, with their hosts. A session that writes under a role shares the lock of its row.
create table perdure.role (
	name          text collate "C" primary key,
	epoch         bigint not null default 0,
	leader        text collate "C" not null default '',
	leader_host   text collate "C" not null default '',
	leader_until  timestamptz,
	standby       text collate "C" not null default '',
	standby_host  text collate "C" not null default '',
	standby_until timestamptz
) with (fillfactor = 10);

create table perdure.seen (
	agent  text collate "C" not null,
	holder text collate "C" not null,
	at     timestamptz not null,
	primary key (agent, holder)
) with (fillfactor = 70);

-- clock: the high-water mark of the times that were read, and how far it is ahead of the server's clock after that was set back;
-- see clock.go.
create table perdure.clock (
	one   boolean primary key default true check (one),
	mark  timestamptz not null,
	ahead bigint      not null default 0, -- microseconds
	fence bigint      not null default 0, -- no run that is dispatched has a lower number
	cell  int         not null default 0, -- the number of this store among many, in each id
	mail_max bigint   not null default 1000000, -- rows of mail that may wait to be applied
	origin text       not null default '' -- the database that this is; see fence.go
) with (fillfactor = 10);

-- origin names the database that answers: the cluster and its timeline, which is a new one after each failover and after each
-- restore to a point in time. It is 'standby' for a standby, and empty if the server does not reveal it.
create function perdure.origin() returns text language plpgsql as $$
begin
	if pg_is_in_recovery() then
		return 'standby';
	end if;
	return (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8);
exception when others then
	return '';
end $$;

insert into perdure.clock (mark) values (clock_timestamp());
