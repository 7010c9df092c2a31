-- schema: min_reader 14, min_writer 16
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
