-- schema: min_reader 8, min_writer 12
--
-- A step that waits long for room on a host reserves one. The reservation is in the host's row.
ALTER TABLE perdure_agent ADD COLUMN patience INTEGER NOT NULL DEFAULT 60000000; -- microseconds

ALTER TABLE perdure_host ADD COLUMN reserved_job BLOB; -- the step for which the host is reserved; NULL: none
ALTER TABLE perdure_host ADD COLUMN reserved_idx INTEGER NOT NULL DEFAULT 0;
ALTER TABLE perdure_host ADD COLUMN reserved_step TEXT NOT NULL DEFAULT '';
ALTER TABLE perdure_host ADD COLUMN reserved_ready_at INTEGER; -- the reservation holds only while the step has been ready since then
ALTER TABLE perdure_host ADD COLUMN reserved_at INTEGER;
ALTER TABLE perdure_host ADD COLUMN reserved_until INTEGER;
CREATE INDEX perdure_host_reserved ON perdure_host (reserved_job) WHERE reserved_job IS NOT NULL;

DROP VIEW perdure_agents;
CREATE VIEW perdure_agents AS SELECT name, ageing / 1e6 AS ageing_seconds, patience / 1e6 AS patience_seconds FROM perdure_agent;
