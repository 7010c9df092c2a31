-- schema: min_reader 6, min_writer 6
--
-- Notifications: messages to receivers outside. A notification is written in the transaction of the change that it reports.

-- perdure_receiver: the receivers of the store.
CREATE TABLE perdure_receiver (
	name         TEXT PRIMARY KEY,
	settings     TEXT NOT NULL,     -- what is delivered and where to, in JSON
	secret       TEXT NOT NULL,     -- signs deliveries
	old_secret   TEXT NOT NULL,     -- the secret before the latest rotation
	old_until    INTEGER,           -- deliveries are signed with it, too, until then
	paused_cause TEXT NOT NULL,     -- why it is paused; empty: it is active
	position     INTEGER NOT NULL,  -- of the latest event of a stream
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- perdure_receiver_full: receivers, and URLs that definitions name, whose new notifications are dead at once.
CREATE TABLE perdure_receiver_full (receiver TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_notification (
	number   INTEGER PRIMARY KEY AUTOINCREMENT,
	id       TEXT NOT NULL,
	receiver TEXT NOT NULL,     -- a name, or the URL that a definition names
	job      BLOB NOT NULL,     -- zero: it is about no job
	kind     TEXT NOT NULL,
	at       INTEGER NOT NULL,  -- of the change
	data     TEXT NOT NULL,     -- of the CloudEvent
	secret   TEXT NOT NULL,     -- of a URL: the name of a secret of the nodes
	expires_at INTEGER NOT NULL, -- when it is dead if it was not delivered before
	state    TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead')),
	attempts INTEGER NOT NULL,
	next_at  INTEGER,           -- of a pending one: not delivered before this time
	ended_at INTEGER,
	error    TEXT NOT NULL,     -- of the latest attempt
	position INTEGER NOT NULL   -- in a stream, once it is delivered
) STRICT;

CREATE INDEX perdure_notification_pending ON perdure_notification (receiver, number) WHERE state = 'pending';
CREATE INDEX perdure_notification_of_job ON perdure_notification (receiver, job, number) WHERE state = 'pending';
CREATE INDEX perdure_notification_receiver ON perdure_notification (receiver, number);
CREATE INDEX perdure_notification_stream ON perdure_notification (receiver, position) WHERE position > 0;
CREATE INDEX perdure_notification_ended ON perdure_notification (ended_at) WHERE ended_at IS NOT NULL;

CREATE VIEW perdure_notifications AS SELECT
	number, id, receiver, CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, kind,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	state, attempts,
	strftime('%Y-%m-%d %H:%M:%S', next_at / 1000000, 'unixepoch') || printf('.%06d', next_at % 1000000) AS next_at,
	strftime('%Y-%m-%d %H:%M:%S', ended_at / 1000000, 'unixepoch') || printf('.%06d', ended_at % 1000000) AS ended_at,
	nullif(error, '') AS error, job AS job_id
FROM perdure_notification;

CREATE VIEW perdure_receivers AS SELECT
	name, settings, CASE WHEN paused_cause = '' THEN 'active' ELSE 'paused' END AS state, nullif(paused_cause, '') AS paused_cause,
	strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06d', created_at % 1000000) AS created_at,
	strftime('%Y-%m-%d %H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06d', updated_at % 1000000) AS updated_at
FROM perdure_receiver;
