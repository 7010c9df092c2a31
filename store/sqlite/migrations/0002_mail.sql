-- schema: min_reader 2, min_writer 2
--
-- Mail: a change that one transaction wants for a job, and that another transaction applies. The sender writes a row, and the courier
-- applies it later, once, in a transaction of its own.
--
-- The first kind is 'submit': a submission that a caller writes in a transaction of its own (SubmitTx). Its recipient is the
-- job that will be created. The transaction that applies it closes it. For a while it shows the outcome.
CREATE TABLE perdure_mail (
	recipient BLOB NOT NULL,    -- the job
	id        TEXT NOT NULL,    -- of one recipient; of a submission 'submit'
	kind      TEXT NOT NULL,
	key       TEXT,             -- of a submission: the job's key, which is not in body
	hash      BLOB,             -- of a submission: the definition's fingerprint
	body      TEXT,             -- of a submission: the definition, in JSON; NULL once it is closed
	posted_at INTEGER NOT NULL,
	closed_at INTEGER,
	job       BLOB,             -- of a submission: the job that was made of it, or that was there already
	refusal   TEXT,             -- why it was refused, in JSON
	PRIMARY KEY (recipient, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX perdure_mail_key ON perdure_mail (key) WHERE key IS NOT NULL AND refusal IS NULL;
CREATE INDEX perdure_mail_waiting ON perdure_mail (posted_at, recipient, id) WHERE closed_at IS NULL;
CREATE INDEX perdure_mail_closed ON perdure_mail (closed_at) WHERE closed_at IS NOT NULL;

-- The submissions in the mail.
CREATE VIEW perdure_inbox AS SELECT
	m.recipient AS id, m.key, m.hash, m.body, m.posted_at, m.closed_at, m.job, m.refusal
FROM perdure_mail m WHERE m.kind = 'submit';

CREATE VIEW perdure_submissions AS SELECT
	'job_' || lower(hex(i.id)) AS submission, i.key,
	CASE WHEN i.closed_at IS NULL THEN 'waiting' WHEN i.job IS NULL THEN 'refused' ELSE 'taken' END AS state,
	CASE WHEN i.job IS NOT NULL THEN 'job_' || lower(hex(i.job)) END AS job, i.refusal,
	strftime('%Y-%m-%d %H:%M:%S', i.posted_at / 1000000, 'unixepoch') || printf('.%06d', i.posted_at % 1000000) AS posted_at,
	strftime('%Y-%m-%d %H:%M:%S', i.closed_at / 1000000, 'unixepoch') || printf('.%06d', i.closed_at % 1000000) AS closed_at,
	i.id AS job_id
FROM perdure_inbox i;
