-- schema: min_reader 7, min_writer 7
--
-- Notifications: messages to receivers outside. A notification is written in the transaction of the change that it reports.

-- receiver: the receivers of the store.
create table perdure.receiver (
	name         text collate "C" primary key,
	settings     text not null,                  -- what is delivered and where to, in JSON
	secret       text not null,                  -- signs deliveries
	old_secret   text not null,                  -- the secret before the latest rotation
	old_until    timestamptz,                    -- deliveries are signed with it, too, until then
	paused_cause text not null,                  -- why it is paused; empty: it is active
	position     bigint not null,                -- of the latest event of a stream
	created_at   timestamptz not null,
	updated_at   timestamptz not null
);

-- receiver_full: receivers, and URLs that definitions name, whose new notifications are dead at once.
create table perdure.receiver_full (receiver text collate "C" primary key);

create table perdure.notification (
	number   bigint generated always as identity primary key,
	id       text collate "C" not null,
	receiver text collate "C" not null,          -- a name, or the URL that a definition names
	job      uuid not null,                      -- zero: it is about no job
	kind     text not null,
	at       timestamptz not null,               -- of the change
	data     text not null,                      -- of the CloudEvent
	secret   text not null,                      -- of a URL: the name of a secret of the nodes
	expires_at timestamptz not null,             -- when it is dead if it was not delivered before
	state    text not null check (state in ('pending', 'delivered', 'dead')),
	attempts int not null,
	next_at  timestamptz,                        -- of a pending one: not delivered before this time
	ended_at timestamptz,
	error    text not null,                      -- of the latest attempt
	position bigint not null                     -- in a stream, once it is delivered
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_limit = 2000);

-- The pending notifications, in the order in which they are delivered. Neither index mentions next_at, so that a failed
-- attempt is a HOT update.
create index notification_pending on perdure.notification (receiver, number) where state = 'pending';
create index notification_of_job on perdure.notification (receiver, job, number) where state = 'pending';
create index notification_receiver on perdure.notification (receiver, number);
create index notification_stream on perdure.notification (receiver, position) where position > 0;
create index notification_ended on perdure.notification (ended_at) where ended_at is not null;

create view perdure.notifications as
select number, id, receiver, perdure.job_text(nullif(job, '00000000-0000-0000-0000-000000000000')) as job, kind, at, state, attempts, next_at, ended_at,
	nullif(error, '') as error, job as job_id
from perdure.notification;

create view perdure.receivers as
select name, settings::jsonb as settings, case when paused_cause = '' then 'active' else 'paused' end as state, nullif(paused_cause, '') as paused_cause,
	created_at, updated_at
from perdure.receiver;
