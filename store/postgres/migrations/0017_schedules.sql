-- schema: min_reader 14, min_writer 17
--
-- A schedule starts jobs at given times. settings is what a user has set, as JSON. All nominal times before next_at were
-- handled: each has a job, or a line of perdure.firing.
create table perdure.schedule (
	name              text collate "C" primary key,
	settings          text not null,
	version           bigint not null,
	paused            boolean not null,
	paused_cause      text not null,
	next_at           timestamptz,     -- null: the rule has ended
	due_at            timestamptz,     -- when there is something to do; null: not before a job settles or a user acts
	last_at           timestamptz,     -- the latest nominal time that has got a job
	last_job          uuid,
	failures          int not null,    -- jobs in a row that were undone, given up or parked
	fired             bigint not null,
	skipped_overlap   bigint not null,
	skipped_catch_up  bigint not null,
	backfill_from     timestamptz,
	backfill_until    timestamptz,
	backfill_next     timestamptz,     -- null: no backfill runs
	backfill_parallel int not null,
	backfill_again    int not null,
	backfill_agains   int not null,
	created_at        timestamptz not null,
	updated_at        timestamptz not null
) with (fillfactor = 70);
create index schedule_due on perdure.schedule (due_at, name) where due_at is not null;

-- A line of the history of a schedule: a nominal time and its job, or nominal times that got none (again = -1).
create table perdure.firing (
	schedule text collate "C" not null,
	nominal  timestamptz not null,
	again    int not null,
	until    timestamptz,          -- the last nominal time, if the line stands for several
	times    bigint not null,      -- how many
	state    text collate "C" not null, -- waiting, running, parked, done, undone, unsure or skipped
	reason   text collate "C" not null,
	job      uuid,
	at       timestamptz not null,
	news     boolean not null,     -- state has changed with the job, and the schedule has not counted it yet
	counted  boolean not null,     -- the job counts as a failure
	primary key (schedule, nominal, again)
);
create index firing_news on perdure.firing (schedule, nominal, again) where news;
create index firing_open on perdure.firing (schedule, nominal, again) where not news and state in ('waiting', 'running', 'parked');
create index firing_old on perdure.firing (at, schedule, nominal, again) where not news and state not in ('waiting', 'running', 'parked');

create view perdure.schedules as
select name, version, paused, paused_cause, next_at, last_at, perdure.job_text(last_job) as last_job, failures, fired, skipped_overlap, skipped_catch_up,
	settings::jsonb as settings, created_at, updated_at
from perdure.schedule;

create view perdure.firings as
select schedule, nominal, again, until, times, state, reason, perdure.job_text(job) as job, at from perdure.firing;
