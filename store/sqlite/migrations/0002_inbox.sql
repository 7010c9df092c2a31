-- schema: min_reader 2, min_writer 2
--
-- The inbox: submissions that callers write in transactions of their own (SubmitTx). A node takes them out,
-- by the same rules as every other submission, and says in the same row what became of them.
CREATE TABLE perdure_inbox (
	id        BLOB NOT NULL PRIMARY KEY, -- the job's, if one is made of it
	key       TEXT,                      -- the job's: not in body
	hash      BLOB,                      -- the definition's fingerprint
	body      TEXT,                      -- the definition, in JSON; NULL once it is closed
	posted_at INTEGER NOT NULL,
	closed_at INTEGER,
	job       BLOB,                      -- what was made of it, or was there already
	refusal   TEXT                       -- or why there is none, in JSON
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_inbox_key ON perdure_inbox (key) WHERE key IS NOT NULL AND refusal IS NULL;
CREATE INDEX perdure_inbox_waiting ON perdure_inbox (posted_at, id) WHERE closed_at IS NULL;
CREATE INDEX perdure_inbox_closed ON perdure_inbox (closed_at) WHERE closed_at IS NOT NULL;

CREATE VIEW perdure_submissions AS SELECT
	'job_' || lower(hex(i.id)) AS submission, i.key,
	CASE WHEN i.closed_at IS NULL THEN 'waiting' WHEN i.job IS NULL THEN 'refused' ELSE 'taken' END AS state,
	CASE WHEN i.job IS NOT NULL THEN 'job_' || lower(hex(i.job)) END AS job, i.refusal,
	strftime('%Y-%m-%d %H:%M:%S', i.posted_at / 1000000, 'unixepoch') || printf('.%06d', i.posted_at % 1000000) AS posted_at,
	strftime('%Y-%m-%d %H:%M:%S', i.closed_at / 1000000, 'unixepoch') || printf('.%06d', i.closed_at % 1000000) AS closed_at,
	i.id AS job_id
FROM perdure_inbox i;
