-- schema: min_reader 13, min_writer 16
--
-- A schedule starts jobs at given times. settings is what a user has set, as JSON. All nominal times before next_at were
-- handled: each has a job, or a line of perdure_firing.
CREATE TABLE perdure_schedule (
	name              TEXT PRIMARY KEY,
	settings          TEXT NOT NULL,
	version           INTEGER NOT NULL,
	paused            INTEGER NOT NULL,
	paused_cause      TEXT NOT NULL,
	next_at           INTEGER,          -- NULL: the rule has ended
	due_at            INTEGER,          -- when there is something to do; NULL: not before a job settles or a user acts
	last_at           INTEGER,          -- the latest nominal time that has got a job
	last_job          BLOB,
	failures          INTEGER NOT NULL, -- jobs in a row that were undone, given up or parked
	fired             INTEGER NOT NULL,
	skipped_overlap   INTEGER NOT NULL,
	skipped_catch_up  INTEGER NOT NULL,
	backfill_from     INTEGER,
	backfill_until    INTEGER,
	backfill_next     INTEGER,          -- NULL: no backfill runs
	backfill_parallel INTEGER NOT NULL,
	backfill_again    INTEGER NOT NULL,
	backfill_agains   INTEGER NOT NULL,
	created_at        INTEGER NOT NULL,
	updated_at        INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX perdure_schedule_due ON perdure_schedule (due_at, name) WHERE due_at IS NOT NULL;

-- A line of the history of a schedule: a nominal time and its job, or nominal times that got none (again = -1).
CREATE TABLE perdure_firing (
	schedule TEXT NOT NULL,
	nominal  INTEGER NOT NULL,
	again    INTEGER NOT NULL,
	until    INTEGER,          -- the last nominal time, if the line stands for several
	times    INTEGER NOT NULL, -- how many
	state    TEXT NOT NULL,    -- waiting, running, parked, done, undone, unsure or skipped
	reason   TEXT NOT NULL,
	job      BLOB,
	at       INTEGER NOT NULL,
	news     INTEGER NOT NULL, -- state has changed with the job, and the schedule has not counted it yet
	counted  INTEGER NOT NULL, -- the job counts as a failure
	PRIMARY KEY (schedule, nominal, again)
) WITHOUT ROWID;
CREATE INDEX perdure_firing_news ON perdure_firing (schedule, nominal, again) WHERE news = 1;
CREATE INDEX perdure_firing_open ON perdure_firing (schedule, nominal, again) WHERE news = 0 AND state IN ('waiting', 'running', 'parked');
CREATE INDEX perdure_firing_old ON perdure_firing (at, schedule, nominal, again) WHERE news = 0 AND state NOT IN ('waiting', 'running', 'parked');

CREATE VIEW perdure_schedules AS SELECT name, version, paused, paused_cause,
	strftime('%Y-%m-%d %H:%M:%S', next_at / 1000000, 'unixepoch') || printf('.%06d', next_at % 1000000) AS next_at,
	strftime('%Y-%m-%d %H:%M:%S', last_at / 1000000, 'unixepoch') || printf('.%06d', last_at % 1000000) AS last_at,
	CASE WHEN last_job IS NOT NULL THEN 'job_' || lower(hex(last_job)) END AS last_job, failures, fired, skipped_overlap, skipped_catch_up, settings,
	strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06d', created_at % 1000000) AS created_at,
	strftime('%Y-%m-%d %H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06d', updated_at % 1000000) AS updated_at
FROM perdure_schedule;

CREATE VIEW perdure_firings AS SELECT schedule,
	strftime('%Y-%m-%d %H:%M:%S', nominal / 1000000, 'unixepoch') || printf('.%06d', nominal % 1000000) AS nominal, again,
	strftime('%Y-%m-%d %H:%M:%S', until / 1000000, 'unixepoch') || printf('.%06d', until % 1000000) AS until,
	times, state, reason, CASE WHEN job IS NOT NULL THEN 'job_' || lower(hex(job)) END AS job,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at
FROM perdure_firing;
