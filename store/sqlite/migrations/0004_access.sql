-- schema: min_reader 4, min_writer 4
--
-- Who may call the API, and what was done. From here on a definition may also refer to secrets, which an older program cannot
-- compile.

-- Tokens, and sessions of the console. A secret is never stored: hash is its SHA-256.
CREATE TABLE perdure_credential (
	id             TEXT PRIMARY KEY,
	kind           TEXT    NOT NULL,  -- token, session
	hash           BLOB    NOT NULL,
	previous       BLOB    NOT NULL,  -- the hash of the secret before the latest rotation
	previous_until INTEGER,           -- until when that one is valid
	name           TEXT    NOT NULL,
	role           TEXT    NOT NULL,
	rights         TEXT    NOT NULL,  -- JSON: role, types, agents, groups
	token          TEXT    NOT NULL,  -- of a session: the token with which it was started
	created_by     TEXT    NOT NULL,
	created_at     INTEGER,
	rotated_at     INTEGER,
	expires_at     INTEGER,           -- NULL: never
	used_at        INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_credential_kind  ON perdure_credential (kind, id);
CREATE INDEX perdure_credential_admin ON perdure_credential (id) WHERE kind = 'token' AND role = 'admin';
CREATE INDEX perdure_credential_token ON perdure_credential (token) WHERE token <> '';

-- The audit log: acts of operators, changes of access, logins, and refused requests. Rows are never changed.
CREATE TABLE perdure_audit_entry (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	at           INTEGER,
	author       TEXT    NOT NULL,
	on_behalf_of TEXT    NOT NULL,
	via          TEXT    NOT NULL,
	credential   TEXT    NOT NULL,
	address      TEXT    NOT NULL,
	act          TEXT    NOT NULL,
	job          BLOB    NOT NULL,
	target       TEXT    NOT NULL,
	reason       TEXT    NOT NULL,
	outcome      TEXT    NOT NULL,
	code         TEXT    NOT NULL,
	count        INTEGER NOT NULL
) STRICT;

CREATE INDEX perdure_audit_at     ON perdure_audit_entry (at);
CREATE INDEX perdure_audit_author ON perdure_audit_entry (author, id);
CREATE INDEX perdure_audit_act    ON perdure_audit_entry (act, id);
CREATE INDEX perdure_audit_job    ON perdure_audit_entry (job, id) WHERE job <> x'00000000000000000000000000000000';

CREATE VIEW perdure_audit AS SELECT
	id, strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	author, nullif(on_behalf_of, '') AS on_behalf_of, nullif(via, '') AS via, nullif(credential, '') AS credential, nullif(address, '') AS address,
	act, CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, nullif(target, '') AS target, nullif(reason, '') AS reason,
	outcome, nullif(code, '') AS code, nullif(count, 0) AS count, job AS job_id
FROM perdure_audit_entry;
