-- schema: min_reader 1, min_writer 1
--
-- The tables of Perdure on SQLite.
--
-- Base tables have names in the singular and are packed: numbers instead of words, microseconds since 1970 for times, 16 bytes
-- for a job's id, and NULL for zero values, which takes neither space nor time. The views at the end, with names in the plural,
-- are the documented interface, for reading with plain SQL.
--
-- There are no foreign keys: no row refers to one that could be deleted before it, and checking them would slow down inserts.

-- One row for each step, with its run, holder and deadlines. The job's own columns are on the row of its first step (idx = 0),
-- and NULL on all others: a job of one step is one row. So everything that an event writes is in one place.
-- Rows have a number (id), by which they are found without reading a key.
CREATE TABLE perdure_step (
	id              INTEGER PRIMARY KEY,
	job             BLOB    NOT NULL,          -- UUIDv7: ids sort by age
	idx             INTEGER NOT NULL,          -- place in the definition
	name            TEXT    NOT NULL,
	type            TEXT    NOT NULL,          -- of the job
	priority        INTEGER NOT NULL,          -- of the job

	current         INTEGER,                   -- undone, done, unsure
	desired         INTEGER,
	phase           INTEGER,                   -- settled, waiting, ready, running, parked
	run             INTEGER,
	direction       INTEGER,                   -- do, undo
	was             INTEGER,
	turn            INTEGER,
	agent           TEXT,
	locked_by       TEXT,
	request         TEXT,                      -- the claim's requestId
	complete_by     INTEGER,
	locked_until    INTEGER,
	heartbeat       INTEGER,                   -- the promised interval, in microseconds
	out             INTEGER,                   -- of a running step: its row of perdure_out
	available_at    INTEGER,
	outcome         INTEGER,                   -- none, done, failed, rejected, returned, expired
	has_output      INTEGER,
	own_input       INTEGER,
	ageing          INTEGER,                   -- the agent's setting, in microseconds; NULL: the default
	limits          TEXT,                      -- JSON: permits that the step needs
	blockers        INTEGER,                   -- number of steps that it still waits for
	ready_at        INTEGER,
	started_at      INTEGER,
	ended_at        INTEGER,
	updated_at      INTEGER,
	skipped         INTEGER,
	failures        INTEGER,
	rung            INTEGER,
	waits           INTEGER,
	returns         INTEGER,
	error_code      TEXT,
	last_error      TEXT,
	progress        TEXT,                      -- JSON
	edited          INTEGER,                   -- not, for the do, for the undo
	given_up        INTEGER,

	job_current     INTEGER,
	job_desired     INTEGER,
	job_phase       INTEGER,
	unsettled       INTEGER,
	running         INTEGER,
	active          INTEGER,
	permit          INTEGER,
	job_complete_by INTEGER,
	parked_at       INTEGER,
	overdue         INTEGER,
	alerted         INTEGER,
	job_then        INTEGER,
	restarts        INTEGER,
	given_up_by     TEXT,
	given_up_reason TEXT,
	job_updated_at  INTEGER,
	settled_at      INTEGER,

	created_at      INTEGER,
	hash            BLOB,                      -- of the definition
	shape           BLOB,
	input           TEXT,                      -- if it is small
	apart           INTEGER,                   -- the input is in perdure_payload, under idx -1
	job_key         TEXT,
	labels          TEXT,                      -- JSON
	states          TEXT,                      -- JSON

	-- These columns are for searches. They are NULL in rows that are not to be found.
	lane            INTEGER,                   -- of a ready step
	ready           INTEGER,                   -- of a ready step: its order
	due_at          INTEGER,                   -- of a step that waits for a time: available_at
	open            INTEGER,                   -- 1: the job is not settled
	look_at         INTEGER                    -- its deadline, until that is acted upon, or while the job is not parked
) STRICT;

CREATE UNIQUE INDEX perdure_step_job ON perdure_step (job, idx);
CREATE UNIQUE INDEX perdure_step_key ON perdure_step (job_key) WHERE job_key IS NOT NULL;
CREATE INDEX perdure_step_type ON perdure_step (type, job) WHERE idx = 0;
-- One index for each search over all rows; none contains settled rows. They have columns of their own, because an update changes
-- those indexes whose columns it writes: the changes of a running step change none of them.
-- Ready steps are searched lane by lane, so that a lane whose limit is full is skipped.
CREATE INDEX perdure_step_ready ON perdure_step (agent, lane, ready, job, idx) WHERE ready IS NOT NULL;
CREATE INDEX perdure_step_due   ON perdure_step (due_at, job, idx)             WHERE due_at IS NOT NULL;
CREATE INDEX perdure_step_open  ON perdure_step (open, job)                    WHERE open IS NOT NULL;
CREATE INDEX perdure_step_look  ON perdure_step (look_at, job)                 WHERE look_at IS NOT NULL;

-- Jobs of one step that were submitted together and have not changed since, one row for all of them. They have no rows in
-- perdure_step: the step of each is ready. The jobs before "taken" have left the bundle, and have rows. The ids are in order, and the
-- jobs are dispatched in this order.
CREATE TABLE perdure_bundle (
	first      BLOB    NOT NULL PRIMARY KEY, -- the first of jobs
	last       BLOB    NOT NULL,
	agent      TEXT    NOT NULL,
	lane       INTEGER NOT NULL,
	ord        INTEGER NOT NULL,          -- of the first job, as ready in perdure_step
	size       INTEGER NOT NULL,
	taken      INTEGER NOT NULL DEFAULT 0,
	type       TEXT    NOT NULL,
	name       TEXT    NOT NULL,          -- of the step
	priority   INTEGER NOT NULL,
	ageing     INTEGER NOT NULL,          -- microseconds
	shape      BLOB    NOT NULL,
	created_at INTEGER NOT NULL,
	jobs       BLOB    NOT NULL,          -- 16 bytes for each
	hashes     BLOB    NOT NULL,          -- 32 bytes for each
	inputs     BLOB    NOT NULL,          -- one after the other
	ends       TEXT    NOT NULL           -- 8 digits for each: the end of its input in inputs
) STRICT;

CREATE INDEX perdure_bundle_ready ON perdure_bundle (agent, lane, ord, first);

-- The text that the jobs of one definition have in common, in its canonical form.
CREATE TABLE perdure_shape (
	id   BLOB NOT NULL PRIMARY KEY,
	text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Runs that were dispatched together: to one holder of an agent, for one request, with one end of their locks. Runs in flight are found by these rows;
-- the rows of the steps are authoritative, and each contains the number of its row here. A heartbeat changes only
-- locked_until of the step, so until_at is that of the earliest run, or before it. The row is deleted when its last run ends.
CREATE TABLE perdure_out (
	id        INTEGER PRIMARY KEY,
	until_at  INTEGER NOT NULL,
	agent     TEXT    NOT NULL,
	locked_by TEXT    NOT NULL,
	request   TEXT    NOT NULL,
	steps     BLOB    NOT NULL              -- their ids, 8 bytes each
) STRICT;

CREATE INDEX perdure_out_until  ON perdure_out (until_at);
CREATE INDEX perdure_out_holder ON perdure_out (locked_by, request);

-- Which row holds a permit of a limit: for job:TYPE the first step of the job, otherwise the running step. Permits of job:TYPE and
-- agent:NAME are stored while the limit is defined. They are written with the row that holds them.
CREATE TABLE perdure_permit (
	name   TEXT    NOT NULL,
	key    TEXT    NOT NULL,              -- '': none
	job    BLOB    NOT NULL,
	idx    INTEGER NOT NULL,
	amount INTEGER NOT NULL,
	PRIMARY KEY (name, key, job, idx)
) STRICT, WITHOUT ROWID;

-- The lanes of steps that need a user's own limit. A lane has a row while a step of it is ready.
CREATE TABLE perdure_lane (
	agent       TEXT    NOT NULL,
	lane        INTEGER NOT NULL,
	class       INTEGER NOT NULL,         -- lanes whose steps have the same type and need the same limits
	type        TEXT    NOT NULL,
	limits      TEXT    NOT NULL,         -- what its steps need, as in step
	ord         INTEGER NOT NULL,         -- its first step comes at this place (ready, job, idx in step)
	job         BLOB    NOT NULL,
	idx         INTEGER NOT NULL,
	closed_name TEXT,                     -- the limit, and its key, that have no room for its steps
	closed_key  TEXT,
	PRIMARY KEY (lane, agent)             -- in this order nearly all entries differ in their first column
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_lane_open   ON perdure_lane (agent, class, ord, job, idx) WHERE closed_name IS NULL;
CREATE INDEX perdure_lane_closed ON perdure_lane (closed_name, closed_key, ord) WHERE closed_name IS NOT NULL;

-- The labels again, for searches.
CREATE TABLE perdure_label (
	name  TEXT NOT NULL,
	value TEXT NOT NULL,
	job   BLOB NOT NULL,
	PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;

-- The large values of a step: its input if the definition does not determine it, and the output of the latest do run. The input of a
-- job that is too large for its row has idx -1.
CREATE TABLE perdure_payload (
	job    BLOB    NOT NULL,
	idx    INTEGER NOT NULL,
	input  TEXT,
	output TEXT,
	PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_alert (
	id        INTEGER PRIMARY KEY AUTOINCREMENT, -- never reused
	job       BLOB NOT NULL,
	step      TEXT NOT NULL,
	kind      TEXT NOT NULL,
	name      TEXT NOT NULL,
	message   TEXT NOT NULL,
	raised_at INTEGER,
	closed_at INTEGER,
	closed_by TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX perdure_alert_job ON perdure_alert (job, id);
CREATE INDEX perdure_alert_open ON perdure_alert (id) WHERE closed_at IS NULL;

-- Failures and other events that deviate from success, and acts, with their authors.
CREATE TABLE perdure_entry (
	id     INTEGER PRIMARY KEY,
	job    BLOB    NOT NULL,
	step   TEXT    NOT NULL,
	run    INTEGER NOT NULL,
	at     INTEGER,
	event  TEXT    NOT NULL,
	author TEXT    NOT NULL,
	detail TEXT    NOT NULL
) STRICT;

CREATE INDEX perdure_entry_job ON perdure_entry (job, id);

-- Settings of agents, by operators.
CREATE TABLE perdure_agent (
	name   TEXT    NOT NULL PRIMARY KEY,
	ageing INTEGER NOT NULL -- microseconds
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_limit (
	name    TEXT    NOT NULL PRIMARY KEY, -- job:TYPE, agent:NAME, or a user's own name
	max     INTEGER,                      -- NULL: unlimited
	per_key INTEGER
) STRICT, WITHOUT ROWID;

-- The nodes that are running. A row that is a day old is deleted.
CREATE TABLE perdure_node (
	id      TEXT    NOT NULL PRIMARY KEY,
	host    TEXT    NOT NULL,
	pid     INTEGER NOT NULL,
	version TEXT    NOT NULL,
	listen  TEXT    NOT NULL,
	agents  TEXT    NOT NULL, -- JSON
	slots   TEXT    NOT NULL, -- JSON, of each of the agents
	since   INTEGER,
	seen_at INTEGER
) STRICT, WITHOUT ROWID;

-- role: the leader and the standby of each role, with their hosts.
CREATE TABLE perdure_role (
	name          TEXT    NOT NULL PRIMARY KEY,
	epoch         INTEGER NOT NULL DEFAULT 0,
	leader        TEXT    NOT NULL DEFAULT '',
	leader_host   TEXT    NOT NULL DEFAULT '',
	leader_until  INTEGER,
	standby       TEXT    NOT NULL DEFAULT '',
	standby_host  TEXT    NOT NULL DEFAULT '',
	standby_until INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE perdure_seen (
	agent  TEXT NOT NULL,
	holder TEXT NOT NULL,
	at     INTEGER,
	PRIMARY KEY (agent, holder)
) STRICT, WITHOUT ROWID;

-- The latest time that was written, so that no later process starts before it.
CREATE TABLE perdure_clock (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	mark  INTEGER NOT NULL,
	fence INTEGER NOT NULL DEFAULT 0, -- no run that is dispatched has a lower number
	cell  INTEGER NOT NULL DEFAULT 0, -- the number of this store among many, in each id
	mail_max INTEGER NOT NULL DEFAULT 1000000 -- rows of mail that may wait to be applied
) STRICT;

INSERT INTO perdure_clock (one, mark) VALUES (1, 0);

-- The indexes of jobs in a bundle, for joins.
CREATE TABLE perdure_place (i INTEGER PRIMARY KEY) STRICT;

WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 249) INSERT INTO perdure_place SELECT i FROM n;

-- The views. Times are UTC in SQLite's own format, so that they can be compared with its functions:
-- locked_until < datetime('now'). Missing values are NULL.

CREATE VIEW perdure_jobs AS SELECT
	'job_' || lower(hex(s.job)) AS job, s.job_key AS key, s.type, s.priority, s.labels, s.states,
	CASE s.job_current WHEN 1 THEN 'done' WHEN 2 THEN 'unsure' ELSE 'undone' END AS current,
	CASE s.job_desired WHEN 1 THEN 'done' ELSE 'undone' END AS desired,
	CASE s.job_phase WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' WHEN 4 THEN 'parked' ELSE 'settled' END AS phase,
	iif(s.job_then, 'done', NULL) AS "then",
	coalesce(s.restarts, 0) AS restarts, coalesce(s.permit, 0) AS permit, coalesce(s.unsettled, 0) AS unsettled, coalesce(s.running, 0) AS running, coalesce(s.active, 0) AS active,
	strftime('%Y-%m-%d %H:%M:%S', s.job_complete_by / 1000000, 'unixepoch') || printf('.%06d', s.job_complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', s.parked_at / 1000000, 'unixepoch') || printf('.%06d', s.parked_at % 1000000) AS parked_at,
	coalesce(s.overdue, 0) AS overdue, s.given_up_by, s.given_up_reason,
	strftime('%Y-%m-%d %H:%M:%S', s.created_at / 1000000, 'unixepoch') || printf('.%06d', s.created_at % 1000000) AS created_at,
	strftime('%Y-%m-%d %H:%M:%S', s.job_updated_at / 1000000, 'unixepoch') || printf('.%06d', s.job_updated_at % 1000000) AS updated_at,
	strftime('%Y-%m-%d %H:%M:%S', s.settled_at / 1000000, 'unixepoch') || printf('.%06d', s.settled_at % 1000000) AS settled_at,
	lower(hex(s.hash)) AS hash, d.text AS definition, coalesce(s.input, p.input) AS input, s.job AS job_id
FROM perdure_step s LEFT JOIN perdure_shape d ON d.id = s.shape LEFT JOIN perdure_payload p ON s.apart AND p.job = s.job AND p.idx = -1
WHERE s.idx = 0
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), NULL, b.type, b.priority, NULL, NULL, 'undone', 'done', 'waiting', NULL, 0, 0, 1, 0, 1, NULL, NULL, 0, NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000),
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL,
	lower(hex(substr(b.hashes, 32 * n.i + 1, 32))), d.text,
	nullif(CAST(substr(b.inputs, 1 + iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER)),
		CAST(substr(b.ends, 8 * n.i + 1, 8) AS INTEGER) - iif(n.i = 0, 0, CAST(substr(b.ends, 8 * n.i - 7, 8) AS INTEGER))) AS TEXT), ''), substr(b.jobs, 16 * n.i + 1, 16)
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size LEFT JOIN perdure_shape d ON d.id = b.shape
WHERE n.i >= b.taken;

-- The desired and the current state of each step, and which holder owns it until when:
--   SELECT job, name, current, desired, phase, locked_by, locked_until FROM perdure_steps WHERE phase <> 'settled'
CREATE VIEW perdure_steps AS SELECT
	'job_' || lower(hex(s.job)) AS job, s.idx, s.name, s.type, s.priority,
	CASE s.current WHEN 1 THEN 'done' WHEN 2 THEN 'unsure' ELSE 'undone' END AS current,
	CASE s.desired WHEN 1 THEN 'done' ELSE 'undone' END AS desired,
	CASE s.phase WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' WHEN 4 THEN 'parked' ELSE 'settled' END AS phase,
	coalesce(s.skipped, 0) AS skipped, coalesce(s.run, 0) AS run,
	CASE WHEN s.run IS NULL THEN NULL WHEN s.direction = 1 THEN 'undo' ELSE 'do' END AS direction,
	CASE WHEN s.run IS NULL THEN NULL WHEN s.was = 1 THEN 'done' WHEN s.was = 2 THEN 'unsure' ELSE 'undone' END AS was,
	coalesce(s.turn, 0) AS turn, s.agent, s.locked_by, s.request,
	strftime('%Y-%m-%d %H:%M:%S', s.complete_by / 1000000, 'unixepoch') || printf('.%06d', s.complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', s.locked_until / 1000000, 'unixepoch') || printf('.%06d', s.locked_until % 1000000) AS locked_until,
	s.heartbeat / 1e6 AS heartbeat_seconds,
	coalesce(s.failures, 0) AS failures, coalesce(s.rung, 0) AS rung, coalesce(s.waits, 0) AS waits, coalesce(s.returns, 0) AS returns,
	strftime('%Y-%m-%d %H:%M:%S', s.available_at / 1000000, 'unixepoch') || printf('.%06d', s.available_at % 1000000) AS available_at,
	CASE s.outcome WHEN 1 THEN 'done' WHEN 2 THEN 'failed' WHEN 3 THEN 'rejected' WHEN 4 THEN 'returned' WHEN 5 THEN 'expired' END AS outcome,
	s.error_code, s.last_error, s.progress, p.input, p.output,
	coalesce(s.own_input, 0) AS own_input, CASE s.edited WHEN 1 THEN 'do' WHEN 2 THEN 'undo' WHEN 3 THEN 'do' END AS edited, coalesce(s.has_output, 0) AS has_output,
	coalesce(s.given_up, 0) AS given_up, coalesce(s.blockers, 0) AS blockers, s.ageing / 1e6 AS ageing_seconds, s.limits,
	strftime('%Y-%m-%d %H:%M:%S', s.ready_at / 1000000, 'unixepoch') || printf('.%06d', s.ready_at % 1000000) AS ready_at,
	strftime('%Y-%m-%d %H:%M:%S', s.started_at / 1000000, 'unixepoch') || printf('.%06d', s.started_at % 1000000) AS started_at,
	strftime('%Y-%m-%d %H:%M:%S', s.ended_at / 1000000, 'unixepoch') || printf('.%06d', s.ended_at % 1000000) AS ended_at,
	strftime('%Y-%m-%d %H:%M:%S', s.updated_at / 1000000, 'unixepoch') || printf('.%06d', s.updated_at % 1000000) AS updated_at,
	s.job AS job_id
FROM perdure_step s LEFT JOIN perdure_payload p ON p.job = s.job AND p.idx = s.idx
UNION ALL SELECT
	'job_' || lower(hex(substr(b.jobs, 16 * n.i + 1, 16))), 0, b.name, b.type, b.priority, 'undone', 'done', 'ready', 0, 0, NULL, NULL, 1, b.agent, NULL, NULL,
	NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, nullif(b.ageing, 0) / 1e6, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), NULL, NULL,
	strftime('%Y-%m-%d %H:%M:%S', b.created_at / 1000000, 'unixepoch') || printf('.%06d', b.created_at % 1000000), substr(b.jobs, 16 * n.i + 1, 16)
FROM perdure_bundle b JOIN perdure_place n ON n.i < b.size
WHERE n.i >= b.taken;

CREATE VIEW perdure_alerts AS SELECT
	id, CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, nullif(step, '') AS step, kind, nullif(name, '') AS name, message,
	strftime('%Y-%m-%d %H:%M:%S', raised_at / 1000000, 'unixepoch') || printf('.%06d', raised_at % 1000000) AS raised_at,
	strftime('%Y-%m-%d %H:%M:%S', closed_at / 1000000, 'unixepoch') || printf('.%06d', closed_at % 1000000) AS closed_at,
	nullif(closed_by, '') AS closed_by, job AS job_id
FROM perdure_alert;

CREATE VIEW perdure_history AS SELECT
	id, 'job_' || lower(hex(job)) AS job, nullif(step, '') AS step, nullif(run, 0) AS run,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	event, nullif(author, '') AS author, nullif(detail, '') AS detail, job AS job_id
FROM perdure_entry;

-- used is counted from the stored permits.
CREATE VIEW perdure_limits AS SELECT name, max, per_key, (SELECT coalesce(sum(amount), 0) FROM perdure_permit p WHERE p.name = l.name) AS used FROM perdure_limit l;

CREATE VIEW perdure_lanes AS SELECT agent, type, limits, closed_name, closed_key FROM perdure_lane;

CREATE VIEW perdure_agents AS SELECT name, ageing / 1e6 AS ageing_seconds FROM perdure_agent;

CREATE VIEW perdure_nodes AS SELECT
	id, host, pid, version, nullif(listen, '') AS listen, agents, slots,
	strftime('%Y-%m-%d %H:%M:%S', since / 1000000, 'unixepoch') || printf('.%06d', since % 1000000) AS since,
	strftime('%Y-%m-%d %H:%M:%S', seen_at / 1000000, 'unixepoch') || printf('.%06d', seen_at % 1000000) AS seen_at
FROM perdure_node;

CREATE VIEW perdure_roles AS SELECT
	name, epoch, nullif(leader, '') AS leader, nullif(leader_host, '') AS leader_host,
	strftime('%Y-%m-%d %H:%M:%S', leader_until / 1000000, 'unixepoch') || printf('.%06d', leader_until % 1000000) AS leader_until,
	nullif(standby, '') AS standby, nullif(standby_host, '') AS standby_host,
	strftime('%Y-%m-%d %H:%M:%S', standby_until / 1000000, 'unixepoch') || printf('.%06d', standby_until % 1000000) AS standby_until
FROM perdure_role;

CREATE VIEW perdure_holders AS SELECT
	agent, holder,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS seen_at
FROM perdure_seen;
