// Writes the pictures of docs/console.md: go test ./console -run Pictures -refresh. PICTURES is the directory.
import { statSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { chromium } from "playwright-core";
import { caller, host } from "./grid.mjs";

/** The name of each picture, the page, its height, and the button that opens a dialog, which is the picture then. */
const pictures = [
  ["overview", "", 520],
  ["jobs", "jobs", 620],
  ["job", "jobs/order-1042?step=charge", 690],
  ["timeline", "jobs/order-1038?tab=timeline", 560],
  ["history", "jobs/order-1042?tab=history", 500],
  ["stack", "jobs/print-2027?stack=page_001", 640],
  ["alerts", "alerts", 400],
  ["agents", "agents", 440],
  ["hosts", "hosts", 500],
  ["host", "hosts/render-3", 620],
  ["log", "jobs/film-12?step=frame_07&log=wide", 760],
  ["timeline-hosts", "jobs/film-12?tab=timeline&by=host", 700],
  ["limits", "limits", 320],
  ["nodes", "nodes", 420],
  ["submit", "submit?from=order-1042", 640],
  ["act", "jobs/order-1042?step=charge", 760, "Settle …"],
  ["bulk", "bulk/BULK", 620],
  ["webhooks", "webhooks", 400],
  ["webhook", "webhooks/crm", 720],
  ["tokens", "tokens", 470],
  ["audit", "audit", 420],
];
const width = 1200;
/** The most bytes of a picture: pages of documents must be quick. */
const mostBytes = 100_000;

/** Resumes orders, of which some have nothing to resume, and returns the id of the bulk act. */
async function bulkAct() {
  const call = async (path, init) => (await fetch(new URL(`../v1/${path}`, process.env.CONSOLE_URL), init)).json();
  const { id } = await call("bulk", {
    method: "POST", headers: { "Content-Type": "application/json", "Perdure-Author": "Anna" }, body: JSON.stringify({ act: "resume", filter: { type: "order", phase: ["parked", "settled"] }, reason: "the bank is back", key: "picture" }),
  });
  for (;;) {
    const { state } = await call(`bulk/${id}`);
    if (state === "done") return id;
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

/** Calls the API, with a token or without. */
async function call(method, path, body, token) {
  const headers = { "Content-Type": "application/json", "Perdure-Author": "Anna", ...(token && { Authorization: `Bearer ${token}` }) };
  const response = await fetch(new URL(`../v1/${path}`, process.env.CONSOLE_URL), { method, headers, ...(body && { body: JSON.stringify(body) }) });
  return response.json();
}

// A receiver that takes what it is sent, and one that fails.
const receiver = createServer((request, response) => {
  response.statusCode = request.url === "/crm" ? 503 : 204;
  request.resume().on("end", () => response.end());
});
await new Promise((listens) => receiver.listen(0, "127.0.0.1", listens));
const receiverURL = `http://127.0.0.1:${receiver.address().port}`;
await call("POST", "webhooks", { name: "shop", url: `${receiverURL}/shop`, on: ["done", "undone"], types: ["order", "refund"] });
await call("POST", "webhooks/shop/test", {});
while ((await call("GET", "webhooks/shop")).latest?.state !== "delivered") await new Promise((wake) => setTimeout(wake, 100));
await call("PUT", "webhooks/shop", { url: "https://shop.example/hooks", on: ["done", "undone"], types: ["order", "refund"] });
await call("POST", "webhooks", { name: "crm", url: `${receiverURL}/crm`, on: ["parked", "done"], types: ["order"] });
await call("POST", "webhooks/crm/test", {});
await call("POST", "webhooks", { name: "audit", stream: true, on: ["received", "done", "undone"] });
await call("POST", "webhooks/audit/test", {});
await call("POST", "webhooks", { name: "old-shop", url: "https://old.example/hooks" });
await call("POST", "webhooks/old-shop/pause", {});

// A film whose frames three hosts compute. One frame fails, another one is computed again after it was undone.
const pause = (ms) => new Promise((wake) => setTimeout(wake, ms));
const grid = caller(process.env.CONSOLE_URL);
const capacity = { slots: 4, cpu: 16, memory: "64GiB" };
const renderers = [];
for (const [name, zone] of [["render-1", "a"], ["render-2", "a"], ["render-3", "b"]]) renderers.push(await host(grid, name, { grid: "local", labels: { zone, disk: "ssd" }, capacity, version: "v0.6.0" }));
await host(grid, "slurm-1", { grid: "slurm", labels: { zone: "c" }, capacity: { slots: 500, cpu: 2048, memory: "8TiB" }, version: "v0.6.0" });
await host(grid, "render-4", { grid: "local", labels: { zone: "b", disk: "ssd" }, capacity, version: "v0.5.2" });
const steps = {};
for (let i = 1; i <= 24; i++) steps[`frame_${String(i).padStart(2, "0")}`] = { agent: "exec", with: { command: ["render", "--frame", String(i)] }, requires: { slots: 1, cpu: 4, memory: "12GiB", grid: "local" }, retry: { attempts: 3, backoff: "50ms" }, undo: { with: { command: ["rm", `frame-${i}.exr`] } } };
await grid("POST", "jobs", { type: "film", key: "film-12", steps });
const frames = async (until) => {
  let done = 0, stop = false;
  await Promise.all(
    renderers.map(async (on, k) => {
      while (!stop) {
        const runs = await on.claim(4, capacity);
        const logs = runs.map((run) => on.log(run));
        await Promise.all(runs.map((run, i) => logs[i](`render 4.2 on ${on.name}\n\x1b[36m${run.step}\x1b[0m: reading scene.usd\n`)));
        for (const [i, run] of runs.entries()) {
          const stays = until === "some" && done >= 16;
          for (let sample = 16; sample <= (stays ? 192 : 256); sample *= 2) await logs[i](`${run.step}: ${sample} samples, noise ${(4 / sample).toFixed(4)}\n`);
          await pause(60 + 40 * ((i + k) % 4));
          if (stays) continue;
          const fails = run.run === 1 && run.step === "frame_05" && run.direction === "do";
          await logs[i](fails ? "\x1b[31merror\x1b[0m: out of memory in bvh_build\n" : `\x1b[32mdone\x1b[0m: ${run.step}.exr, 38.2 MiB\n`, { last: true });
          await on.report(run, fails ? "failed" : "done", fails ? { error: { code: "outOfMemory", message: "the command used more than 12 GiB" } } : { output: { exit: 0, host: on.name } });
          done++;
        }
        stop = runs.length === 0 || done >= (until === "some" ? 16 : 24);
      }
    }),
  );
};
await frames("all");
await grid("POST", "jobs/film-12/undo", { reason: "wrong colours in frames 1 to 24" });
await frames("all");
await grid("POST", "jobs/film-12/redo", { reason: "the colours are mended" });
await frames("some");
await grid("POST", "hosts/render-3/drain", { deadline: "2h", reason: "kernel update" });
await grid("POST", "hosts/render-4/drain", { deadline: "10m", reason: "new memory" });

const { token: viewer } = await call("POST", "tokens", { name: "Vera", role: "viewer" });
await call("POST", "tokens", { name: "shop", role: "submitter", types: ["order", "refund"], expiresIn: "365d" });
await call("POST", "tokens", { name: "payments-1", role: "agent", agents: ["payments"] });
await call("POST", "tokens", { name: "Ben", role: "operator", groups: ["finance"], expiresIn: "90d" });
await call("POST", "jobs/order-1042/undo", {}, viewer); // is refused

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });

async function picture(name, path, height, colorScheme, button) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(process.env.CONSOLE_URL + (path.includes("BULK") ? path.replace("BULK", await bulkAct()) : path));
  await page.waitForSelector(name === "login" ? ".login[open]" : "main h1, main h2");
  await page.waitForFunction(() => !document.querySelector(".waiting") && !document.querySelector(".checking"));
  if (name === "overview") await page.getByRole("link", { name: /submitted in the last hour/ }).waitFor({ timeout: 150_000 }); // nodes store their counts once a minute
  if (path.startsWith("submit")) await page.locator("g.node").first().waitFor();
  if (button) {
    await page.locator(".panel").getByRole("button", { name: button }).click();
    await page.getByText("The job would be").waitFor();
  }
  await page.waitForTimeout(300);
  const file = join(process.env.PICTURES, `${name}-${colorScheme}.png`);
  await (button ? page.locator("dialog[open]") : page).screenshot({ path: file });
  const { size } = statSync(file);
  if (size > mostBytes) throw new Error(`${file} has ${size} bytes; at most ${mostBytes} are allowed`);
  console.log(`${file}: ${size} bytes`);
  await context.close();
}

for (const colorScheme of ["light", "dark"]) {
  for (const [name, path, height, button] of pictures) await picture(name, path, height, colorScheme, button);
}
// With an admin token, the node asks for a login.
await call("POST", "tokens", { name: "Anna", role: "admin" });
while ((await fetch(new URL("../v1/me", process.env.CONSOLE_URL))).status !== 401) await new Promise((wake) => setTimeout(wake, 500));
for (const colorScheme of ["light", "dark"]) await picture("login", "", 480, colorScheme);
await browser.close();
receiver.close();
