// The agent that sdk/conformance_test.go plays its cases with; the one in Python does the same.
//
//     node conformance.js SERVER

import { Agent, Client, Failed, NoEffect, Rejected, RetryAfter, type Run, stringify } from "perdure";

let calls = 0;
let ended = 0;
const reasons: (string | undefined)[] = [];

const agent = new Agent("conformance", { slots: 2 });

function handle<In>(action: string, work: (input: In, run: Run) => unknown): void {
  agent.handle<In, unknown>(action, {
    async do(input, run) {
      calls++;
      try {
        return await work(input, run);
      } finally {
        ended++;
      }
    },
    ...(action === "echo" ? { undo: (input: In, output: unknown, run: Run) => { // the others have none
      throw new Rejected(stringify({ input, output, doKey: run.doKey }), { code: "seen" });
    } } : {}),
  });
}

function cancelled(run: Run): Promise<void> {
  return new Promise((resolve) => {
    run.signal.addEventListener("abort", () => { reasons.push(run.reason); resolve(); }, { once: true });
  });
}

handle("echo", (input, run) => ({
  input, key: run.key, number: run.number, direction: run.direction,
  remaining: run.remainingMs() > 0 && run.remainingMs() <= 600_000,
}));

handle("half", () => undefined);

handle<{ how: string }>("fail", ({ how }) => {
  switch (how) {
    case "failed": throw new Failed("no", { code: "c1" });
    case "rejected": throw new Rejected("no", { code: "c2", noEffect: true });
    case "retryAfter": throw new RetryAfter(1500, "busy");
    case "noEffect": throw new NoEffect("nothing");
    case "long": throw new Failed("é".repeat(5000), { code: "x".repeat(200) });
    case "crash": throw "crash";
  }
  throw new TypeError("plain");
});

handle("wait", async (_, run) => {
  await cancelled(run);
  run.check();
});

handle("obey", async (_, run) => {
  await cancelled(run);
  return { obeyed: run.reason };
});

handle<{ ms: number }>("stubborn", async ({ ms }, run) => {
  await new Promise((resolve) => setTimeout(resolve, ms));
  reasons.push(run.reason);
  return { late: true };
});

handle("progress", async (input, run) => {
  run.progress(input);
  await cancelled(run);
});

handle<{ n: number }>("large", ({ n }) => "x".repeat(n));

handle("odd", () => ({ notJSON: NaN }));

agent.handle<{ after: number }, unknown>("log", {
  async do({ after }, run) {
    while (ended < after) await run.sleep(10);
    return { calls, reasons };
  },
});

try {
  await new Client(process.argv[2]).serve([agent], { name: "conformance", heartbeatMs: 600, graceMs: 4_000, log: console });
} catch (e) {
  console.error(e);
  process.exit(1);
}
