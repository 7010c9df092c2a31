-- Perdure on PostgreSQL 14 and later.
--
-- Base tables are in the singular and packed: enumerations are numbers in the order of package
-- perdure's constants, ids are uuids, an empty text means "none". The views in the plural are the
-- documented interface: they show the same rows in words.
--
-- Text is compared by bytes (collate "C"): nothing is sorted for people here, and an operating
-- system that changes its collations cannot break an index.
--
-- Every index that only unfinished work needs is partial, so that finished rows cost nothing. There
-- are no foreign keys: rows of a job are written in the transaction that writes the job.

-- job: the row that is the lock of all its steps. Its counts change with every report; no index
-- mentions them, nor phase itself (open changes once a turn), so that most updates stay on their page
-- (HOT), for which the fillfactor leaves room.
create table perdure.job (
	id              uuid primary key,
	created_at      timestamptz,
	updated_at      timestamptz,
	settled_at      timestamptz,
	complete_by     timestamptz,
	parked_at       timestamptz,
	unsettled       int      not null,
	running         int      not null,
	active          int      not null,
	restarts        int      not null,
	priority        smallint not null,
	current         smallint not null,
	desired         smallint not null,
	phase           smallint not null,
	turn_back       boolean  not null, -- "then": going back, and to turn to done again after that
	permit          boolean  not null,
	overdue         boolean  not null,
	open            boolean  not null generated always as (phase <> 0) stored,
	hash            bytea    not null,
	type            text     collate "C" not null,
	key             text     collate "C" not null,
	given_up_by     text     not null,
	given_up_reason text     not null,
	states          jsonb,
	labels          jsonb
) with (
	fillfactor = 70,
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000
);

create unique index job_key on perdure.job (key) where key <> '';
create index job_type on perdure.job (type, id);
create index job_open on perdure.job (id) where open;
create index job_permit on perdure.job (type, priority desc, id) where permit;
create index job_overdue on perdure.job (complete_by)
	where open and not overdue and parked_at is null and complete_by is not null;
create index job_hash on perdure.job (hash) where open and key = '';

-- label: the labels of jobs once more, in the order in which lists ask for them.
create table perdure.label (
	name  text collate "C" not null,
	value text collate "C" not null,
	job   uuid not null,
	primary key (name, value, job)
);

-- definition: apart from the job's row, which stays small and hot. The bytes are kept as they came.
create table perdure.definition (
	job  uuid primary key,
	body bytea not null
);

create table perdure.step (
	job          uuid     not null,
	run          bigint   not null,
	heartbeat    bigint   not null, -- microseconds
	complete_by  timestamptz,
	locked_until timestamptz,
	available_at timestamptz,
	ready_at     timestamptz,
	started_at   timestamptz,
	ended_at     timestamptz,
	updated_at   timestamptz,
	idx          int      not null,
	turn         int      not null,
	failures     int      not null,
	rung         int      not null,
	waits        int      not null,
	returns      int      not null,
	blockers     int      not null,
	priority     smallint not null,
	current      smallint not null,
	desired      smallint not null,
	phase        smallint not null,
	was          smallint not null,
	direction    smallint not null,
	outcome      smallint not null,
	edited       smallint not null, -- an operator gave the input, for this direction
	skipped      boolean  not null,
	has_output   boolean  not null,
	own_input    boolean  not null,
	given_up     boolean  not null,
	name         text     collate "C" not null,
	type         text     collate "C" not null,
	agent        text     collate "C" not null,
	locked_by    text     collate "C" not null,
	request      text     collate "C" not null,
	error_code   text     not null,
	last_error   text     not null,
	progress     text     not null,
	primary key (job, idx)
) with (
	fillfactor = 85,
	autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
	autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000
);

-- Where a table was empty when a plan was made, all of its indexes look equally good. So no query may
-- fit a worse index than its own: some conditions below say what is always true (plan_test.go).
create index step_ready on perdure.step (agent, type, priority desc, job, idx) where phase = 2;
create index step_due on perdure.step (available_at) where phase = 1 and available_at is not null;
create index step_expiry on perdure.step (locked_until) where phase = 3 and locked_until is not null;
-- Who holds what: an agent's permits are counted by it, and the runs of a holder are found.
create index step_held on perdure.step (agent, locked_by, request) where phase = 3;

-- payload: what is large about a step, as the bytes that came. Most steps have none until they end.
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

create table perdure."limit" (
	name text collate "C" primary key,
	max  int not null
);

create table perdure.node (
	id      text collate "C" primary key,
	host    text not null,
	pid     int  not null,
	version text not null,
	listen  text not null,
	agents  text[] not null,
	since   timestamptz,
	seen_at timestamptz
);

create table perdure.seen (
	agent  text collate "C" not null,
	holder text collate "C" not null,
	at     timestamptz not null,
	primary key (agent, holder)
) with (fillfactor = 70);

-- clock: the high-water mark of the time that was told, and how far that runs ahead of the server's
-- clock where the latter was set back; see clock.go.
create table perdure.clock (
	one   boolean primary key default true check (one),
	mark  timestamptz not null,
	ahead bigint      not null default 0 -- microseconds
) with (fillfactor = 10);

insert into perdure.clock (mark) values (clock_timestamp());
