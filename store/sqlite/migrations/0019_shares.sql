-- schema: min_reader 18, min_writer 19
--
-- How an agent's ready steps are divided into shares, as JSON: an expression (by) and the weights of its values (weights).
ALTER TABLE perdure_agent ADD COLUMN fair TEXT;

-- The shares of agents, and what was dispatched from them. A share has a row for each class of lanes in which it has, or
-- recently had, ready steps. The rows of a share have the same value of served. A row without a class keeps it while there is no other: its class
-- is -1 - share. The share 0 is the steps without a value.
CREATE TABLE perdure_share (
	agent   TEXT    NOT NULL,
	class   INTEGER NOT NULL, -- as class in perdure_lane
	share   INTEGER NOT NULL,
	kind    INTEGER NOT NULL, -- equal in all classes that differ in their share alone
	value   TEXT    NOT NULL,
	type    TEXT    NOT NULL, -- of the jobs
	limits  TEXT    NOT NULL, -- what the steps of one of its lanes need; the names are those of all of them
	served  INTEGER NOT NULL, -- 1,000,000 for each run, divided by the weight of the share
	waiting INTEGER NOT NULL, -- 1: the class has open lanes
	PRIMARY KEY (class, agent)
) STRICT, WITHOUT ROWID;

CREATE INDEX perdure_share_waiting ON perdure_share (agent, kind, served, share) WHERE waiting = 1;
CREATE INDEX perdure_share_idle    ON perdure_share (agent, served, share) WHERE waiting = 0;
CREATE INDEX perdure_share_served  ON perdure_share (agent, served, share);
CREATE INDEX perdure_share_share   ON perdure_share (agent, share);
CREATE INDEX perdure_lane_shares   ON perdure_lane (agent) WHERE closed_name IS NOT NULL AND class >= 0;

DROP VIEW perdure_agents;
CREATE VIEW perdure_agents AS SELECT name, ageing / 1e6 AS ageing_seconds, patience / 1e6 AS patience_seconds, fair FROM perdure_agent;
