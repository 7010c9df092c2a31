// A web application with Express that submits jobs and carries out their steps in the same process: `node express.js`, once
// compiled. The agent starts with the application. On SIGTERM both stop: requests and runs that have begun are finished.
//
//     curl -s -X PUT http://127.0.0.1:3000/orders/1 -H 'Content-Type: application/json' -d '{"item":"tea"}'
//     curl -s http://127.0.0.1:3000/orders/1
//     curl -s -X DELETE http://127.0.0.1:3000/orders/1

import express, { type NextFunction, type Request, type Response } from "express";

import { Client, PerdureError } from "perdure";

import { orderJob, parcelAgent } from "./parcels.ts";

const port = Number(process.env.PORT ?? 3000);
const graceMs = 10_000; // less than the time after which the platform kills the process
const client = new Client("", { author: "shop" }); // $PERDURE_SERVER, or http://127.0.0.1:7420
const host = client.host([parcelAgent(process.env.PARCELS ?? "parcels", Number(process.env.WORK_MS ?? 1_000))]);

const app = express();
app.use(express.json());

app.put("/orders/:id", async (req, res) => {
  const { job, created } = await client.submit(orderJob(req.params.id, { item: String(req.body.item) }));
  res.status(created ? 201 : 200).json({ phase: job.phase, current: job.current });
});

app.get("/orders/:id", async (req, res) => {
  const job = await client.get(`order-${req.params.id}`);
  res.json({ phase: job.phase, current: job.current, parcel: job.steps?.pack?.output });
});

app.delete("/orders/:id", async (req, res) => {
  const job = await client.undo(`order-${req.params.id}`, "cancelled by the customer");
  res.status(202).json({ phase: job.phase, current: job.current });
});

app.use((error: unknown, _req: Request, res: Response, next: NextFunction) => {
  if (!(error instanceof PerdureError)) return next(error);
  res.status(error.status || 503).json({ code: error.code, message: error.message });
});

const server = app.listen(port, "127.0.0.1", (error) => {
  if (error) throw error;
  host.start();
  console.log(`listening on port ${port}`);
});

async function stop(): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve)); // no new requests
  const drained = host.drain(graceMs); // no new runs
  await Promise.all([closed, drained]);
}

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => {
    stop().then(() => process.exit(0), (e: unknown) => {
      console.error(e); // runs that were not reported expire, and are done again
      process.exit(1);
    });
  });
}
