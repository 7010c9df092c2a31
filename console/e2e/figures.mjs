// The figures of the console in Chromium. e2e/figures starts this program beside a node with a large store. The variable
// FIGURES has what it measures, as JSON; the last line of the output has the figures.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { chromium } from "playwright-core";

const { base, executable, rounds, samples, rate, tabSeconds, parked, error, only } = JSON.parse(process.env.FIGURES);
const ui = base + "/ui/";
const size = { width: 1400, height: 900 };
const patience = 60_000;

/** The pages that are opened: one line each. */
const pages = {
  Overview: "", Jobs: "jobs", "Jobs that are parked": "jobs?phase=parked", "Jobs by two filters": `jobs?type=order&error=${error}`, "Jobs by label": "jobs?label=zone%3Deu",
  "Jobs by search": "jobs?q=order-", "a job": `jobs/${parked}`, "the steps of a job": `jobs/${parked}?tab=steps`, "the history of a job": `jobs/${parked}?tab=history`, "the timeline of a job": `jobs/${parked}?tab=timeline`,
  Alerts: "alerts", Agents: "agents", Hosts: "hosts", Limits: "limits", Schedules: "schedules", Definitions: "definitions", Nodes: "nodes", Bulk: "bulk", Submit: "submit", Tokens: "tokens", "Audit log": "audit",
};

// The goals, in the units of the figures.
const goals = { paint: 500, data: 1000, graph: { "wide-1000": 500, "wide-10000": 1500 }, frame: 50, visible: 1000, script: 60, style: 10, memory: 150, growth: 10 };

const figures = [];
const round = (value) => Math.round(value * 100) / 100;
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];

/** Adds a figure: a quantile of the values of all rounds. */
function add(name, values, unit, goal, q = 0.5) {
  const sorted = values.toSorted((a, b) => a - b);
  const detail = sorted.length > 1 ? `${sorted.length} values: min ${round(sorted[0])}, p50 ${round(quantile(sorted, 0.5))}, p95 ${round(quantile(sorted, 0.95))}, max ${round(sorted.at(-1))}` : "";
  figures.push({ name, value: round(quantile(sorted, q)), unit, goal, detail });
  console.log(`${name}: ${round(quantile(sorted, q))} ${unit}; ${detail}`);
}

const pause = (milliseconds) => new Promise((over) => setTimeout(over, milliseconds));

async function api(path, body) {
  const init = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json", "Perdure-Author": "figures" }, body: JSON.stringify(body) };
  const response = await fetch(base + path, init);
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${response.status} ${text}`);
  return text && JSON.parse(text);
}

const sandbox = process.getuid?.() === 0 ? ["--no-sandbox"] : []; // Chromium refuses to run in a sandbox as root
const browser = await chromium.launch({ executablePath: executable, args: ["--enable-precise-memory-info", ...sandbox] });

/** Opens a page with an empty cache, waits until its data is visible, and closes it after use. */
async function withPage(path, use) {
  const context = await browser.newContext({ viewport: size });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.addInitScript(() => {
    // The first frame with a heading in which nothing is being loaded.
    const look = () => {
      if (document.querySelector("main h1, main h2") && !document.querySelector(".waiting")) requestAnimationFrame(() => (globalThis.dataAt = performance.now()));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  try {
    await page.goto(ui + path);
    await page.waitForFunction(() => globalThis.dataAt > 0);
    await use(page, context);
    assert.deepEqual(errors, [], `errors at ${path}`);
  } finally {
    await context.close();
  }
}

async function measurePages() {
  await withPage("", () => {}); // the browser's own start
  for (const [name, path] of Object.entries(pages)) {
    const paints = [], data = [];
    for (let i = 0; i < rounds; i++) {
      await withPage(path, async (page) => {
        data.push(await page.evaluate(() => globalThis.dataAt));
        paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
      });
    }
    add(`page ${name}: first contentful paint`, paints, "ms", goals.paint);
    add(`page ${name}: data visible`, data, "ms", goals.data);
  }
}

async function measureSizes() {
  const context = await browser.newContext();
  const page = await context.newPage();
  const sizes = { script: 0, stylesheet: 0 };
  const loaded = [];
  page.on("requestfinished", (request) => {
    if (request.resourceType() in sizes) loaded.push(request.sizes().then(({ responseBodySize }) => (sizes[request.resourceType()] += responseBodySize)));
    assert.ok(request.url().startsWith(base) || request.url().startsWith("data:"), `${request.url()} is of another origin`);
  });
  await page.goto(ui, { waitUntil: "load" });
  await Promise.all(loaded);
  await context.close();
  assert.ok(sizes.script > 1000 && sizes.stylesheet > 500, "a page without script or style is no console");
  add("script, compressed", [sizes.script / 1024], "KB", goals.script);
  add("style, compressed", [sizes.stylesheet / 1024], "KB", goals.style);
}

/** The longest time between two frames while the mouse drags the graph. */
async function longestFrame(page) {
  const box = await page.locator(".graph").boundingBox();
  await page.evaluate(() => {
    const frames = (globalThis.frames_ = { longest: 0, over: false });
    let last = performance.now();
    const next = (now) => {
      frames.longest = Math.max(frames.longest, now - last);
      last = now;
      if (!frames.over) requestAnimationFrame(next);
    };
    requestAnimationFrame((now) => ((last = now), requestAnimationFrame(next)));
  });
  const x = box.x + box.width / 2, y = box.y + box.height / 2;
  await page.mouse.move(x, y);
  await page.mouse.down();
  for (let i = 1; i <= 40; i++) await page.mouse.move(x - 12 * i, y - 4 * i);
  await page.mouse.up();
  return page.evaluate(() => ((globalThis.frames_.over = true), globalThis.frames_.longest));
}

async function measureGraphs() {
  for (const key of ["wide-1000", "wide-10000"]) {
    const shown = [], near = [], far = [];
    for (let i = 0; i < rounds; i++) {
      await withPage(`jobs?key=${key}`, async (page) => {
        await page.evaluate(() => {
          addEventListener("click", () => {
            const begin = performance.now();
            const look = () => (document.querySelector("g.node, .graph canvas") ? requestAnimationFrame(() => (globalThis.graphAfter = performance.now() - begin)) : requestAnimationFrame(look));
            requestAnimationFrame(look);
          }, { capture: true, once: true });
        });
        await page.getByRole("link", { name: key }).click();
        await page.waitForFunction(() => globalThis.graphAfter > 0);
        shown.push(await page.evaluate(() => globalThis.graphAfter));
        await pause(500);
        near.push(await longestFrame(page));
        await page.keyboard.press("f");
        await page.locator(".graph > canvas").waitFor();
        await pause(500);
        far.push(await longestFrame(page));
      });
    }
    add(`graph of ${key.slice(5)} steps: from the click`, shown, "ms", goals.graph[key]);
    add(`graph of ${key.slice(5)} steps: longest frame while its readable part is moved`, near, "ms", goals.frame);
    add(`graph of ${key.slice(5)} steps: longest frame while the whole is moved`, far, "ms", goals.frame);
  }
}

let reported = 0;

/** Reports runs as an agent does, and returns when each is visible in the page of its job. */
async function reportsVisible(count) {
  const times = [];
  const holder = `figures-${process.pid}`;
  while (times.length < count) {
    const key = `reported-${process.pid}-${reported++}`; // and the name of its agent: no other job has a run for it
    const steps = {};
    for (let i = 0; i < 16; i++) steps[`s_${i}`] = { agent: key, ...(i >= 4 && { after: [`s_${i - 4}`] }) };
    await api("/v1/jobs", { type: "reported", key, steps });
    await withPage(`jobs/${key}`, async (page) => {
      await page.locator("g.node").first().waitFor();
      await page.locator(".live-dot").waitFor();
      await page.evaluate(() => {
        globalThis.goodAt = {};
        new MutationObserver(() => {
          for (const node of document.querySelectorAll("g.node.good")) globalThis.goodAt[node.dataset.step] ??= new Promise((shown) => requestAnimationFrame(() => shown(Date.now())));
        }).observe(document.body, { subtree: true, attributes: true, childList: true });
      });
      for (let i = 0; i < 16 && times.length < count; i++) {
        const { runs } = await api(`/v1/agents/${key}/claim`, { holder, wait: "20s", max: 1 });
        assert.equal(runs.length, 1, "a step of the job is ready");
        const [{ job, step, run }] = runs;
        const { results } = await api("/v1/reports", { holder, reports: [{ job, step, run, outcome: "done" }] });
        const accepted = Date.now();
        assert.ok(results[0].accepted);
        await page.waitForFunction((step) => globalThis.goodAt[step] !== undefined, step);
        times.push(Math.max(0, (await page.evaluate((step) => globalThis.goodAt[step], step)) - accepted));
        await pause(50 + Math.random() * 300);
      }
    });
    await api(`/v1/jobs/${key}/giveUp`, { reason: "the figure was measured" }).catch(() => {}); // it may be settled
  }
  return times;
}

async function measureReports() {
  add("report accepted until it is visible: p95", await reportsVisible(samples), "ms", goals.visible, 0.95);
  await api(`/load/start?rate=${rate}`, {});
  try {
    add(`report accepted until it is visible, at ${rate} jobs/s: p95`, await reportsVisible(samples), "ms", goals.visible, 0.95);
  } finally {
    console.log(`${await api("/load/stop", {})} jobs of load were submitted`);
  }
}

/** Opens a page in a browser of its own that no DevTools client is connected to: DevTools keeps the data of each stream. */
function openUndriven(url) {
  const profile = mkdtempSync(join(tmpdir(), "figures-"));
  const args = ["--headless=new", `--user-data-dir=${profile}`, "--no-first-run", ...sandbox, url];
  const child = spawn(executable, args, { stdio: "ignore", detached: true }); // a process group, which can be killed as a whole
  return {
    /** The private memory of the largest renderer, in MB. */
    memory() {
      const renderers = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && read(`/proc/${pid}/cmdline`).includes("--type=renderer") && Number(read(`/proc/${pid}/stat`).split(") ")[1]?.split(" ")[2]) === child.pid);
      return Math.max(0, ...renderers.map((pid) => Number(/RssAnon:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1] ?? 0) / 1024));
    },
    async close() {
      const ended = once(child, "exit");
      process.kill(-child.pid, "SIGKILL");
      await ended;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** The text of a file; empty if the file is gone, as those of a process that has ended. */
function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

async function measureTab() {
  let over = false;
  // A job of a hundred changes a second: its steps are done and undone by an agent with one slot, again and again.
  const steps = {};
  for (let i = 0; i < 300; i++) steps[`s_${i}`] = { agent: "ticker", undo: {} };
  const key = `ticking-${process.pid}`;
  await api("/v1/jobs", { type: "ticking", key, steps });
  const turn = (async () => {
    while (!over) {
      const { items: [job] } = await api(`/v1/jobs?key=${key}`);
      if (job.phase === "settled") await api(`/v1/jobs/${key}/${job.current === "done" ? "undo" : "redo"}`, { reason: "again" });
      await pause(100);
    }
  })();
  await withPage(`jobs/${key}`, async (page, context) => {
    const session = await context.newCDPSession(page);
    await session.send("Performance.enable");
    const undriven = openUndriven(`${ui}jobs/${key}`);
    try {
      await measureTabs(session, undriven);
    } finally {
      await undriven.close();
    }
  });
  over = true;
  await turn;
}

/** Measures a tab by DevTools, and the memory of the process of another one that shows the same. */
async function measureTabs(session, undriven) {
  const ticks = async () => (await api("/load/ticks", {})).ticks;
  for (const opened = Date.now(); (await api("/load/streams", {})).streams < 2; await pause(100)) assert.ok(Date.now() - opened < patience, "both tabs follow the job");
  const begin = Date.now(), before = await ticks();
  const heaps = [], memory = [], nodes = [];
  const parts = 12;
  for (let i = 1; i <= parts; i++) {
    await pause(Math.max(0, begin + (i * tabSeconds * 1000) / parts - Date.now()));
    await session.send("HeapProfiler.collectGarbage");
    const metrics = Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
    heaps.push(metrics.JSHeapUsedSize / 2 ** 20);
    nodes.push(metrics.Nodes);
    memory.push(undriven.memory());
  }
  const perSecond = (1000 * ((await ticks()) - before)) / (Date.now() - begin);
  const name = `a tab open for ${tabSeconds} s at ${Math.round(perSecond)} changes/s`;
  add(`${name}: private memory of its process, most`, [Math.max(...memory)], "MB", goals.memory);
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  // The first third is the start. "No growth" is less than a tenth between the second third and the last.
  const growth = (list) => 100 * (mean(list.slice(8)) / mean(list.slice(4, 8)) - 1);
  add(`${name}: growth of that memory from the second third to the last`, [growth(memory)], "%", goals.growth);
  add(`${name}: JavaScript heap, most`, [Math.max(...heaps)], "MB");
  add(`${name}: growth of the heap from the second third to the last`, [growth(heaps)], "%", goals.growth);
  add(`${name}: nodes of the document, most`, [Math.max(...nodes)], "nodes");
  assert.ok(perSecond > 10, `the job has ${perSecond} changes a second`);
}

try {
  const parts = { sizes: measureSizes, pages: measurePages, graphs: measureGraphs, reports: measureReports, tab: measureTab };
  for (const part of only ? only.split(",") : Object.keys(parts)) {
    assert.ok(parts[part], `there is no part ${part}: use ${Object.keys(parts).join(", ")}`);
    await parts[part]();
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(figures));
