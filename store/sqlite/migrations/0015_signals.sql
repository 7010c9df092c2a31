-- schema: min_reader 13, min_writer 15
--
-- The name and the key of the signals for which a step waits, with a slash between them; what an approval asks and who has
-- approved, as JSON; and who submitted the job, if an approval excludes the submitter.
ALTER TABLE perdure_step ADD COLUMN topic TEXT;
ALTER TABLE perdure_step ADD COLUMN approval TEXT;
ALTER TABLE perdure_step ADD COLUMN submitter TEXT;

CREATE INDEX perdure_step_topic ON perdure_step (topic, job, idx) WHERE topic IS NOT NULL;

-- Signals that are kept for the next step that waits, and those that are remembered, so that they have no effect when they
-- are sent again.
CREATE TABLE perdure_signal (
	number   INTEGER PRIMARY KEY AUTOINCREMENT, -- of signals of one topic, the later has the higher number
	topic    TEXT NOT NULL,                     -- name/key
	job      BLOB NOT NULL,                     -- only its steps receive the signal; zero: steps of any job
	id       TEXT NOT NULL,
	data     TEXT,                              -- NULL: it was received
	at       INTEGER NOT NULL,
	until_at INTEGER NOT NULL,                  -- it is kept and remembered until then
	taken    TEXT,                              -- the steps that have received it, a JSON list; NULL: it is kept
	UNIQUE (topic, job, id)
);

CREATE INDEX perdure_signal_kept ON perdure_signal (topic, number) WHERE taken IS NULL;
CREATE INDEX perdure_signal_until ON perdure_signal (until_at);

-- The signals of a store, the oldest first.
CREATE VIEW perdure_signals AS SELECT
	substr(topic, 1, instr(topic, '/') - 1) AS name, substr(topic, instr(topic, '/') + 1) AS key,
	CASE WHEN job <> zeroblob(16) THEN 'job_' || lower(hex(job)) END AS job, id, data,
	strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06d', at % 1000000) AS at,
	strftime('%Y-%m-%d %H:%M:%S', until_at / 1000000, 'unixepoch') || printf('.%06d', until_at % 1000000) AS until,
	taken
FROM perdure_signal ORDER BY number;

CREATE VIEW perdure_waiters AS SELECT
	substr(topic, 1, instr(topic, '/') - 1) AS name, substr(topic, instr(topic, '/') + 1) AS key, 'job_' || lower(hex(job)) AS job, idx
FROM perdure_step WHERE topic IS NOT NULL AND phase = 1;
