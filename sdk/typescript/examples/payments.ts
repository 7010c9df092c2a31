// The payment agent of examples/shop, in TypeScript: `node payments.js [--server URL] [--payment URL]`, once compiled, or
// payments.ts itself from Node 22.18 on.
//
// It wraps the shop's payment service, as payment_agent.go does. Run as many as you like, and kill them as you like.

import { parseArgs } from "node:util";

import { Agent, Client, Failed, Rejected, type Run } from "perdure";

/** `with` of the step charge: which order, and no more. */
interface Charge { order: string }

/** What the step leaves as its output. */
interface Receipt { message: string }

const { values: flags } = parseArgs({ options: {
  server: { type: "string", default: "http://127.0.0.1:7420" }, // URL of a node
  payment: { type: "string", default: "http://127.0.0.1:9102" }, // URL of the payment service
} });

const payments = new Agent("payments", { slots: 8 });

payments.handle<Charge, Receipt>("charge", {
  async do(input, run) {
    return await ask(run, "POST", "/charges", input) as Receipt;
  },

  // What was answered is not needed, and may be missing: who charged and did not hear back has an unsure step, and it is
  // undone like one that is done. The key of the do run is enough.
  async undo(input, _output, run) {
    await ask(run, "DELETE", `/charges/by-key/${run.doKey}?${new URLSearchParams({ order: input.order })}`);
  },
});

/** Makes one call on behalf of a run. It does not try again: Perdure does. */
async function ask(run: Run, method: string, path: string, body?: unknown): Promise<unknown> {
  let status: number;
  let text: string;
  try {
    // In run.headers() are the key, for the service to recognise a repetition, and the run's number, for it to refuse
    // older ones. When the ultimatum passes, the signal ends the call.
    const response = await fetch(flags.payment + path, { method, headers: run.headers(), signal: run.signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    status = response.status;
    text = await response.text();
  } catch (cause) { // perhaps it has acted, perhaps not
    run.check();
    throw new Failed(`${method} ${path}: ${cause}`, { code: "noAnswer", cause });
  }
  const said = `${method} ${path}: ${status} ${text.trim()}`;
  if (status === 404 && run.direction === "undo") return null; // there is nothing to undo
  // The card is declined: trying again is pointless, and this run changed nothing.
  if (status === 422) throw new Rejected(said, { code: "declined", noEffect: true });
  if (status >= 500) throw new Failed(said, { code: `http_${status}` });
  if (status >= 400) throw new Rejected(said, { code: `http_${status}` });
  return text ? JSON.parse(text) : null;
}

await new Client(flags.server).serve([payments], { heartbeatMs: 2_000, graceMs: 5_000, log: console });
