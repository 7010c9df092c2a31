// Hosts for the tests and the pictures: they register, claim runs, write logs and report, as the processes of hosts do.
import assert from "node:assert/strict";

/** Calls the API beside a console. */
export function caller(base) {
  return async (method, path, body) => {
    const response = await fetch(new URL(`../v1/${path}`, base), { method, headers: { "Content-Type": "application/json", "Perdure-Author": "Anna" }, ...(body !== undefined && { body: JSON.stringify(body) }) });
    const text = await response.text();
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  };
}

/** A host, which is registered. settings are the fields of its registration. */
export async function host(call, name, settings = {}) {
  const capacity = { slots: 4, cpu: 8, memory: "32GiB", ...settings.capacity };
  const { holder } = await call("PUT", `hosts/${name}`, { incarnation: `inc-${name}`, boot: "5e2b1c", version: "v0.0.0-test", heartbeat: "1h", ...settings, capacity });
  let claims = 0;
  return {
    name,
    holder,
    /** Claims runs, at most so many. */
    async claim(max, free = capacity) {
      const { runs } = await call("POST", "agents/exec/claim", { holder, max, wait: "10s", heartbeat: "30m", requestId: `${name}-${++claims}-${Date.now()}`, host: name, free });
      return runs;
    },
    report: (run, outcome = "done", more = {}) => call("POST", "reports", { holder, reports: [{ job: run.job, step: run.step, run: run.run, outcome, ...more }] }),
    /** The log of a run: a function that adds a text, or with last ends the stream. Its offset is the number of bytes so far. */
    log({ job, step, run }, stream = "stdout") {
      let offset = 0;
      return async (text, { last = false, skip = 0 } = {}) => {
        const data = Buffer.from(text);
        offset += skip;
        let at = 0;
        do {
          const chunk = data.subarray(at, at + (64 << 10));
          const end = at + chunk.length >= data.length;
          const { results } = await call("POST", "logs", { holder, chunks: [{ job, step, run, stream, offset: offset + at, data: chunk.toString("base64"), ...(skip > 0 && at === 0 && { skips: true }), ...(end && last && { last }) }] });
          if (results[0].reason === "full") {
            await new Promise((wake) => setTimeout(wake, results[0].retryAfterMs));
            continue;
          }
          assert.ok(results[0].accepted, JSON.stringify(results));
          at += chunk.length;
        } while (at < data.length);
        offset += data.length;
        return offset;
      };
    },
  };
}

/** A job of one command on a host with the label job=KEY. */
export const command = (key, more = {}) => ({ type: "render", key, steps: { render: { agent: "exec", with: { command: ["render", key] }, requires: { cpu: 2, memory: "4GiB", labels: { job: key } }, ...more } } });
