// The agent of the two web applications, express.ts and fastify.ts: it packs parcels. Here a parcel is a file.

import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { Agent, type JobDefinition, Rejected, type Run } from "perdure";

/** `with` of the step pack. */
export interface Order {
  item: string;
}

/** What the step leaves as its output. */
export interface Parcel {
  parcel: string;
}

/** The job of an order. Its key is the order's, so that an order that is sent twice is one job. */
export function orderJob(id: string, order: Order): JobDefinition {
  return {
    type: "order",
    key: `order-${id}`,
    input: order,
    onFailure: "undo",
    steps: {
      pack: { agent: "parcels", with: { item: "${input.item}" }, undo: {}, completeWithin: "1m" },
    },
  };
}

export function parcelAgent(dir: string, workMs: number): Agent {
  const fileOf = (key: string): string => join(dir, key.replaceAll("/", "-"));
  return new Agent("parcels", { slots: 4 }).handle<Order, Parcel>("pack", {
    async do(input: Order, run: Run): Promise<Parcel> {
      if (input.item === "nothing") throw new Rejected("there is nothing to pack", { code: "nothing", noEffect: true });
      await run.sleep(workMs);
      await mkdir(dir, { recursive: true });
      const parcel = fileOf(run.key); // the same key in every attempt: the same parcel
      await writeFile(parcel, input.item);
      return { parcel };
    },
    async undo(_input: Order, _output: Parcel | null, run: Run): Promise<void> {
      await rm(fileOf(run.doKey), { force: true });
    },
  });
}
