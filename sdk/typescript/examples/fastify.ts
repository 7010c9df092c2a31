// A web application with Fastify that submits jobs and carries out their steps in the same process: `node fastify.js`, once
// compiled. The agent is a plugin: it starts when the application listens, and is drained when the application closes.
//
//     curl -s -X PUT http://127.0.0.1:3000/orders/1 -H 'Content-Type: application/json' -d '{"item":"tea"}'
//     curl -s http://127.0.0.1:3000/orders/1
//     curl -s -X DELETE http://127.0.0.1:3000/orders/1

import fastify, { type FastifyInstance } from "fastify";

import { type Agent, Client, PerdureError } from "perdure";

import { type Order, orderJob, parcelAgent } from "./parcels.ts";

const port = Number(process.env.PORT ?? 3000);
const graceMs = 10_000; // less than the time after which the platform kills the process
const client = new Client("", { author: "shop" }); // $PERDURE_SERVER, or http://127.0.0.1:7420

/** A plugin that carries agents for as long as the application listens. */
async function agents(app: FastifyInstance, options: { agents: Agent[] }): Promise<void> {
  const host = client.host(options.agents);
  app.addHook("onListen", async () => host.start());
  app.addHook("onClose", async () => await host.drain(graceMs)); // once no request is being answered any more
}

const app = fastify();
await app.register(agents, { agents: [parcelAgent(process.env.PARCELS ?? "parcels", Number(process.env.WORK_MS ?? 1_000))] });

app.put<{ Params: { id: string }; Body: Order }>("/orders/:id", {
  schema: { body: { type: "object", required: ["item"], properties: { item: { type: "string" } } } },
}, async (req, reply) => {
  const { job, created } = await client.submit(orderJob(req.params.id, { item: req.body.item }));
  return reply.status(created ? 201 : 200).send({ phase: job.phase, current: job.current });
});

app.get<{ Params: { id: string } }>("/orders/:id", async (req) => {
  const job = await client.get(`order-${req.params.id}`);
  return { phase: job.phase, current: job.current, parcel: job.steps?.pack?.output };
});

app.delete<{ Params: { id: string } }>("/orders/:id", async (req, reply) => {
  const job = await client.undo(`order-${req.params.id}`, "cancelled by the customer");
  return reply.status(202).send({ phase: job.phase, current: job.current });
});

app.setErrorHandler((error, _req, reply) => {
  if (!(error instanceof PerdureError)) return reply.send(error);
  return reply.status(error.status || 503).send({ code: error.code, message: error.message });
});

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => {
    app.close().then(() => process.exit(0), (e: unknown) => {
      console.error(e); // runs that were not reported expire, and are done again
      process.exit(1);
    });
  });
}

await app.listen({ port, host: "127.0.0.1" });
console.log(`listening on port ${port}`);
