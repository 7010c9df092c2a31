-- schema: min_reader 10, min_writer 10
--
-- Hosts that carry out runs. labels and capacity are JSON objects; cpu is in thousandths of a CPU, memory in bytes.
CREATE TABLE perdure_host (
	name          TEXT    NOT NULL PRIMARY KEY,
	incarnation   TEXT    NOT NULL, -- the holder of its runs is host/name/incarnation
	boot          TEXT    NOT NULL,
	grid          TEXT    NOT NULL,
	version       TEXT    NOT NULL,
	labels        TEXT    NOT NULL,
	capacity      TEXT    NOT NULL,
	heartbeat     INTEGER NOT NULL, -- microseconds
	draining      INTEGER NOT NULL, -- 1: it gets no more runs
	drain_by      INTEGER,
	drain_author  TEXT    NOT NULL,
	drain_reason  TEXT    NOT NULL,
	registered_at INTEGER NOT NULL,
	seen_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
