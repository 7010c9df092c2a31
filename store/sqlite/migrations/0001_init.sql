-- The tables of Perdure on SQLite.
--
-- The names in the singular are how rows are kept: numbers for words, microseconds since 1970 for
-- times, 16 bytes for a job's id. The views in the plural, at the end, are the interface that is
-- documented: the words of design.md, for reading with plain SQL.
--
-- Types are written in upper case because the driver would otherwise make them so, for each column
-- of each query. Rows are found through their keys alone, so that none but one tree is kept for a
-- table (WITHOUT ROWID). Nothing refers to a row that could go away under it, so there are no
-- foreign keys to be looked up at every insert.

-- What is accepted and wanted, and how far it has come. It is written with every event, so what is
-- large and never changes is kept elsewhere (definition).
CREATE TABLE job (
	id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16), -- UUIDv7: ids sort by age
	key             TEXT,
	type            TEXT    NOT NULL,
	priority        INTEGER NOT NULL,
	labels          TEXT,                                 -- JSON
	states          TEXT,                                 -- JSON
	hash            BLOB    NOT NULL,                     -- of the definition
	created_at      INTEGER,

	current         INTEGER NOT NULL CHECK (current BETWEEN 0 AND 2), -- undone, done, unsure
	desired         INTEGER NOT NULL CHECK (desired BETWEEN 0 AND 1),
	phase           INTEGER NOT NULL CHECK (phase BETWEEN 0 AND 4),   -- settled, waiting, ready, running, parked
	"then"          INTEGER NOT NULL,
	restarts        INTEGER NOT NULL,
	permit          INTEGER NOT NULL,
	unsettled       INTEGER NOT NULL,
	running         INTEGER NOT NULL,
	active          INTEGER NOT NULL,
	complete_by     INTEGER,
	parked_at       INTEGER,
	overdue         INTEGER NOT NULL,
	given_up_by     TEXT    NOT NULL,
	given_up_reason TEXT    NOT NULL,
	updated_at      INTEGER,
	settled_at      INTEGER
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX job_key ON job (key) WHERE key IS NOT NULL;
CREATE INDEX job_type ON job (type, id);
-- The others hold what is not settled, so that finished jobs cost nothing.
CREATE INDEX job_open ON job (id) WHERE phase <> 0;
CREATE INDEX job_hash ON job (hash, id) WHERE phase <> 0 AND key IS NULL;
CREATE INDEX job_permit ON job (type, priority DESC, id) WHERE permit = 1;
CREATE INDEX job_overdue ON job (complete_by, id)
	WHERE phase <> 0 AND overdue = 0 AND parked_at IS NULL AND complete_by IS NOT NULL;

-- The labels again, to be found by.
CREATE TABLE label (
	name  TEXT NOT NULL,
	value TEXT NOT NULL,
	job   BLOB NOT NULL,
	PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;

-- What was asked for, word for word in its canonical form.
CREATE TABLE definition (
	job  BLOB NOT NULL PRIMARY KEY,
	body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row is all that is durable about what is let out, to whom and until when.
CREATE TABLE step (
	job          BLOB    NOT NULL,
	idx          INTEGER NOT NULL,          -- place in the definition
	name         TEXT    NOT NULL,
	type         TEXT    NOT NULL,          -- of the job
	priority     INTEGER NOT NULL,          -- of the job

	current      INTEGER NOT NULL DEFAULT 0 CHECK (current BETWEEN 0 AND 2),
	desired      INTEGER NOT NULL DEFAULT 0 CHECK (desired BETWEEN 0 AND 1),
	phase        INTEGER NOT NULL DEFAULT 0 CHECK (phase BETWEEN 0 AND 4),
	skipped      INTEGER NOT NULL DEFAULT 0,
	run          INTEGER NOT NULL DEFAULT 0,
	direction    INTEGER NOT NULL DEFAULT 0 CHECK (direction BETWEEN 0 AND 1), -- do, undo
	was          INTEGER NOT NULL DEFAULT 0 CHECK (was BETWEEN 0 AND 2),
	turn         INTEGER NOT NULL DEFAULT 0,
	agent        TEXT    NOT NULL,
	locked_by    TEXT    NOT NULL DEFAULT '',
	request      TEXT    NOT NULL DEFAULT '', -- the claim's requestId
	complete_by  INTEGER,
	locked_until INTEGER,
	heartbeat    INTEGER NOT NULL DEFAULT 0,  -- microseconds promised between two
	failures     INTEGER NOT NULL DEFAULT 0,
	rung         INTEGER NOT NULL DEFAULT 0,
	waits        INTEGER NOT NULL DEFAULT 0,
	returns      INTEGER NOT NULL DEFAULT 0,
	available_at INTEGER,
	outcome      INTEGER NOT NULL DEFAULT 0 CHECK (outcome BETWEEN 0 AND 5), -- none, done, failed, rejected, returned, expired
	error_code   TEXT    NOT NULL DEFAULT '',
	last_error   TEXT    NOT NULL DEFAULT '',
	progress     TEXT    NOT NULL DEFAULT '', -- JSON
	has_output   INTEGER NOT NULL DEFAULT 0,
	own_input    INTEGER NOT NULL DEFAULT 0,
	edited       INTEGER NOT NULL DEFAULT 0,  -- not, for the do, for the undo
	given_up     INTEGER NOT NULL DEFAULT 0,
	blockers     INTEGER NOT NULL DEFAULT 0,  -- neighbours still waited for
	ready_at     INTEGER,
	started_at   INTEGER,
	ended_at     INTEGER,
	updated_at   INTEGER,
	PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

-- One per question that is asked of all steps; none holds what is settled. Ready steps are kept in
-- lanes of agent and type, so that a type whose limit is full is stepped over.
CREATE INDEX step_ready   ON step (agent, type, priority DESC, job, idx) WHERE phase = 2;
CREATE INDEX step_due     ON step (available_at, job, idx)               WHERE phase = 1 AND available_at IS NOT NULL;
CREATE INDEX step_running ON step (locked_until, job, idx)               WHERE phase = 3;
CREATE INDEX step_holder  ON step (locked_by, request, job, idx)         WHERE phase = 3;
CREATE INDEX step_agent   ON step (agent, job, idx)                      WHERE phase = 3;

-- What is large about a step: input where the definition alone does not tell it, output of the
-- latest do run.
CREATE TABLE payload (
	job    BLOB    NOT NULL,
	idx    INTEGER NOT NULL,
	input  TEXT,
	output TEXT,
	PRIMARY KEY (job, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE alert (
	id        INTEGER PRIMARY KEY AUTOINCREMENT, -- never given again
	job       BLOB NOT NULL,
	step      TEXT NOT NULL,
	kind      TEXT NOT NULL,
	name      TEXT NOT NULL,
	message   TEXT NOT NULL,
	raised_at INTEGER,
	closed_at INTEGER,
	closed_by TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX alert_job ON alert (job, id);
CREATE INDEX alert_open ON alert (id) WHERE closed_at IS NULL;

-- What did not go the happy way, and who acted.
CREATE TABLE entry (
	id     INTEGER PRIMARY KEY,
	job    BLOB    NOT NULL,
	step   TEXT    NOT NULL,
	run    INTEGER NOT NULL,
	at     INTEGER,
	event  TEXT    NOT NULL,
	author TEXT    NOT NULL,
	detail TEXT    NOT NULL
) STRICT;

CREATE INDEX entry_job ON entry (job, id);

CREATE TABLE "limit" (
	name TEXT    NOT NULL PRIMARY KEY, -- job:TYPE or agent:NAME
	max  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who is there. A row that is a day old is dropped.
CREATE TABLE node (
	id      TEXT    NOT NULL PRIMARY KEY,
	host    TEXT    NOT NULL,
	pid     INTEGER NOT NULL,
	version TEXT    NOT NULL,
	listen  TEXT    NOT NULL,
	agents  TEXT    NOT NULL, -- JSON
	since   INTEGER,
	seen_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE seen (
	agent  TEXT NOT NULL,
	holder TEXT NOT NULL,
	at     INTEGER,
	PRIMARY KEY (agent, holder)
) STRICT, WITHOUT ROWID;

-- The latest time that was written, so that no later process starts behind it.
CREATE TABLE clock (
	one  INTEGER PRIMARY KEY CHECK (one = 1),
	mark INTEGER NOT NULL
) STRICT;

INSERT INTO clock VALUES (1, 0);

-- The interface. Times are UTC in SQLite's own form, so that they compare with its functions:
-- locked_until < datetime('now'). What is not there is NULL.

CREATE VIEW jobs AS SELECT
	'job_' || lower(hex(j.id)) AS job, key, type, priority, labels, states,
	CASE current WHEN 0 THEN 'undone' WHEN 1 THEN 'done' ELSE 'unsure' END AS current,
	CASE desired WHEN 0 THEN 'undone' ELSE 'done' END AS desired,
	CASE phase WHEN 0 THEN 'settled' WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' ELSE 'parked' END AS phase,
	iif("then", 'done', NULL) AS "then",
	restarts, permit, unsettled, running, active,
	strftime('%Y-%m-%d %H:%M:%S', complete_by / 1000000, 'unixepoch') || printf('.%06d', complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', parked_at / 1000000, 'unixepoch') || printf('.%06d', parked_at % 1000000) AS parked_at,
	overdue,
	nullif(given_up_by, '') AS given_up_by,
	nullif(given_up_reason, '') AS given_up_reason,
	strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06d', created_at % 1000000) AS created_at,
	strftime('%Y-%m-%d %H:%M:%S', updated_at / 1000000, 'unixepoch') || printf('.%06d', updated_at % 1000000) AS updated_at,
	strftime('%Y-%m-%d %H:%M:%S', settled_at / 1000000, 'unixepoch') || printf('.%06d', settled_at % 1000000) AS settled_at,
	lower(hex(hash)) AS hash, d.body AS definition, j.id AS job_id
FROM job j LEFT JOIN definition d ON d.job = j.id;

-- What is wanted, what is so, and who owns it until when:
--   SELECT job, name, current, desired, phase, locked_by, locked_until FROM steps WHERE phase <> 'settled'
CREATE VIEW steps AS SELECT
	'job_' || lower(hex(s.job)) AS job, s.idx, s.name, s.type, s.priority,
	CASE s.current WHEN 0 THEN 'undone' WHEN 1 THEN 'done' ELSE 'unsure' END AS current,
	CASE s.desired WHEN 0 THEN 'undone' ELSE 'done' END AS desired,
	CASE s.phase WHEN 0 THEN 'settled' WHEN 1 THEN 'waiting' WHEN 2 THEN 'ready' WHEN 3 THEN 'running' ELSE 'parked' END AS phase,
	s.skipped, s.run,
	CASE WHEN s.run = 0 THEN NULL WHEN s.direction = 0 THEN 'do' ELSE 'undo' END AS direction,
	CASE WHEN s.run = 0 THEN NULL WHEN s.was = 0 THEN 'undone' WHEN s.was = 1 THEN 'done' ELSE 'unsure' END AS was,
	s.turn,
	nullif(s.agent, '') AS agent,
	nullif(s.locked_by, '') AS locked_by,
	nullif(s.request, '') AS request,
	strftime('%Y-%m-%d %H:%M:%S', s.complete_by / 1000000, 'unixepoch') || printf('.%06d', s.complete_by % 1000000) AS complete_by,
	strftime('%Y-%m-%d %H:%M:%S', s.locked_until / 1000000, 'unixepoch') || printf('.%06d', s.locked_until % 1000000) AS locked_until,
	iif(s.heartbeat = 0, NULL, s.heartbeat / 1e6) AS heartbeat_seconds,
	s.failures, s.rung, s.waits, s.returns,
	strftime('%Y-%m-%d %H:%M:%S', s.available_at / 1000000, 'unixepoch') || printf('.%06d', s.available_at % 1000000) AS available_at,
	CASE s.outcome WHEN 1 THEN 'done' WHEN 2 THEN 'failed' WHEN 3 THEN 'rejected' WHEN 4 THEN 'returned' WHEN 5 THEN 'expired' END AS outcome,
	nullif(s.error_code, '') AS error_code,
	nullif(s.last_error, '') AS last_error,
	nullif(s.progress, '') AS progress,
	p.input, p.output,
	s.own_input, CASE s.edited WHEN 1 THEN 'do' WHEN 2 THEN 'undo' WHEN 3 THEN 'do' END AS edited, s.has_output,
	s.given_up, s.blockers,
	strftime('%Y-%m-%d %H:%M:%S', s.ready_at / 1000000, 'unixepoch') || printf('.%06d', s.ready_at % 1000000) AS ready_at,
	strftime('%Y-%m-%d %H:%M:%S', s.started_at / 1000000, 'unixepoch') || printf('.%06d', s.started_at % 1000000) AS started_at,
	strftime('%Y-%m-%d %H:%M:%S', s.ended_at / 1000000, 'unixepoch') || printf('.%06d', s.ended_at % 1000000) AS ended_at,
	strftime('%Y-%m-%d %H:%M:%S', s.updated_at / 1000000, 'unixepoch') || printf('.%06d', s.updated_at % 1000000) AS updated_at,
	s.job AS job_id
FROM step s LEFT JOIN payload p ON p.job = s.job AND p.idx = s.idx;

CREATE VIEW alerts AS SELECT
	id, 'job_' || lower(hex(job)) AS job, nullif(step, '') AS step, kind, nullif(name, '') AS name, message,
	strftime('%Y-%m-%d %H:%M:%S', raised_at / 1000000, 'unixepoch') || printf('.%06d', raised_at % 1000000) AS raised_at,
	strftime('%Y-%m-%d %H:%M:%S', closed_at / 1000000, 'unixepoch') || printf('.%06d', closed_at % 1000000) AS closed_at,
	nullif(closed_by, '') AS closed_by, job AS job_id
FROM alert;

CREATE VIEW history AS SELECT
	id, 'job_' || lower(hex(job)) AS job, nullif(step, '') AS step, nullif(run, 0) AS run,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	event, nullif(author, '') AS author, nullif(detail, '') AS detail, job AS job_id
FROM entry;

-- Permits are the rows that hold one, counted here as they are wherever it matters.
CREATE VIEW limits AS SELECT
	l.name, l.max,
	CASE substr(l.name, 1, instr(l.name, ':') - 1)
	WHEN 'job' THEN (SELECT count(*) FROM job WHERE permit = 1 AND type = substr(l.name, 5))
	ELSE (SELECT count(*) FROM step WHERE phase = 3 AND agent = substr(l.name, 7))
	END AS used
FROM "limit" l;

CREATE VIEW nodes AS SELECT
	id, host, pid, version, nullif(listen, '') AS listen, agents,
	strftime('%Y-%m-%d %H:%M:%S', since / 1000000, 'unixepoch') || printf('.%06d', since % 1000000) AS since,
	strftime('%Y-%m-%d %H:%M:%S', seen_at / 1000000, 'unixepoch') || printf('.%06d', seen_at % 1000000) AS seen_at
FROM node;

CREATE VIEW holders AS SELECT
	agent, holder,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS seen_at
FROM seen;
