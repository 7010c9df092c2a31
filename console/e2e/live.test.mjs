// Lists while jobs change: nothing moves, two tabs, a server that restarts, a slow network, and memory.
import assert from "node:assert/strict";
import http from "node:http";
import { api, counted, eventually, full, loaded, open, test } from "./browser.mjs";

const hold = { hold: { agent: "sleep", with: { for: "1h" } } };
const submit = (type, key, extra = {}) => api("jobs", { type, key, steps: hold, ...extra });
const pause = (ms) => new Promise((next) => setTimeout(next, ms));
const row = (page, key) => page.locator("tbody tr", { hasText: key });
/** The state of a row's job. Its other cells may have the same word. */
const state = (page, key, word) => row(page, key).locator(".state bdi", { hasText: new RegExp(`^(${word})$`) });
const live = (page) => page.locator(".below").getByText("live", { exact: true });
const isStream = (request) => /\/v1\/(jobs|alerts)\?/.test(request.url()) && request.headers().accept === "text/event-stream";

test("the row under the pointer keeps its place while jobs arrive and change", async (t) => {
  for (let i = 0; i < 5; i++) await submit("still", `still-${i}`);
  const page = await open(t, "jobs?type=still");
  await live(page).waitFor();
  const watched = row(page, "still-2");
  await watched.hover();
  const before = await watched.boundingBox();
  for (let i = 5; i < 15; i++) await submit("still", `still-${i}`);
  await api("jobs/still-2/undo", {});
  await api("jobs/still-4/undo", {});
  await state(page, "still-2", "undone").waitFor();
  const button = page.getByRole("button", { name: "Show 10 newer jobs" });
  await button.waitFor();
  const announced = await button.boundingBox();
  const after = await watched.boundingBox();
  assert.equal(await page.locator("tbody tr").count(), 5);
  assert.deepEqual(await page.locator("tbody a[data-row]").allInnerTexts(), [4, 3, 2, 1, 0].map((i) => `still-${i}`));
  assert.ok(Math.abs(after.y - before.y) < 1, `the row has moved by ${after.y - before.y} px, and the button has ${announced.height}`);
  await button.click();
  await row(page, "still-14").waitFor();
  await counted(page.locator("tbody tr"), 15);
  await live(page).waitFor();
  await api("jobs/still-14/undo", {});
  await state(page, "still-14", "undone").waitFor();
});

/** Submits jobs of a type with keys in order. */
const submitMany = (type, n, steps = hold) => api("batches/submit", { definition: { type, steps }, jobs: Array.from({ length: n }, (_, i) => ({ key: `${type}-${i}` })) });
const keys = (page) => page.locator("tbody a[data-row]").allInnerTexts();

test("a further page that arrives after the newer rows were shown leaves no gap", async (t) => {
  await submitMany("gap", 60);
  const page = await open(t, "jobs?type=gap");
  await live(page).waitFor();
  let answer;
  const shown = new Promise((wake) => (answer = wake));
  let answered = false;
  await page.route(/v1\/jobs\?.*cursor=/, async (route) => {
    const response = await route.fetch();
    await shown;
    await route.fulfill({ response });
    answered = true;
  });
  await page.getByRole("button", { name: "More", exact: true }).click();
  await submit("gap", "gap-60");
  await page.getByRole("button", { name: "Show 1 newer job" }).click();
  await row(page, "gap-60").waitFor();
  answer();
  await eventually(() => assert.ok(answered));
  const all = Array.from({ length: 61 }, (_, i) => `gap-${60 - i}`);
  await page.waitForTimeout(200); // the page that arrives would be shown by then
  assert.deepEqual(await keys(page), all.slice(0, 50));
  await page.getByRole("button", { name: "More", exact: true }).click();
  await counted(page.locator("tbody tr"), 61);
  assert.deepEqual(await keys(page), all);
});

test("a row that no longer matches stays, and says so", async (t) => {
  await submit("leave", "leave-1");
  const page = await open(t, "jobs?type=leave&phase=waiting");
  await live(page).waitFor();
  await api("jobs/leave-1/undo", {});
  await row(page, "leave-1").getByText("no longer matches").waitFor();
});

test("two tabs are live, each over one stream, which is closed while a tab is hidden", async (t) => {
  await submit("tabs", "tabs-1");
  const [a, b] = [await open(t, "jobs?type=tabs"), await open(t, "jobs?type=tabs")];
  await live(a).waitFor();
  await live(b).waitFor();
  const streams = [];
  a.on("request", (request) => isStream(request) && streams.push(request.url()));
  await api("jobs/tabs-1/undo", {});
  for (const page of [a, b]) await state(page, "tabs-1", "undone").waitFor();
  assert.deepEqual(streams, [], "no second stream was opened");
  const ended = a.waitForEvent("requestfailed", isStream);
  const hide = (hidden) =>
    a.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await ended;
  await api("jobs/tabs-1/redo", {});
  const opened = a.waitForRequest(isStream);
  await hide(false);
  await opened;
  await state(a, "tabs-1", "waits|waiting|running").waitFor();
});

test("alerts are live and in groups, which lead to their alerts and jobs", async (t) => {
  const page = await open(t, "alerts");
  const group = page.getByRole("table", { name: "Groups of alerts" }).locator("tr", { hasText: "order / charge" });
  await group.getByText("card_declined").waitFor();
  await group.getByRole("link", { name: "1 alert of this group" }).click();
  await page.getByRole("button", { name: "Remove the filter code: card_declined" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
  await page.goBack();
  await group.getByRole("link", { name: "jobs" }).click();
  await page.getByRole("link", { name: "order-1042" }).waitFor();
  assert.deepEqual(Object.fromEntries(new URL(page.url()).searchParams), { type: "order", step: "charge", error: "card_declined", alert: "parked" });

  await page.goto(`${full}alerts?type=signed`);
  await page.getByText("No alert matches").waitFor();
  const sign = { sign: { agent: "approval" } };
  await api("jobs", { type: "signed", key: "signed-1", steps: sign });
  await row(page, "signed-1").waitFor();
  await live(page).waitFor();
  await api("jobs", { type: "signed", key: "signed-2", steps: sign });
  await page.getByRole("button", { name: "Show 1 newer alert" }).waitFor();
  await api("jobs/signed-1/steps/sign/settle", { as: "done" });
  await row(page, "signed-1").getByText("no longer open").waitFor();
});

/** A proxy before the server of the tests, which can be stopped. */
async function proxy(t) {
  const target = new URL(full);
  const open = new Set();
  const listen = (port) =>
    new Promise((ready) => {
      const server = http.createServer((request, response) => {
        const forward = http.request({ host: target.hostname, port: target.port, path: request.url, method: request.method, headers: { ...request.headers, host: target.host, origin: target.origin } }, (answer) => {
          response.writeHead(answer.statusCode, answer.headers);
          answer.pipe(response);
        });
        forward.on("error", () => response.destroy());
        response.on("close", () => forward.destroy());
        request.pipe(forward);
      });
      server.on("connection", (socket) => {
        open.add(socket);
        socket.on("close", () => open.delete(socket));
      });
      server.listen(port, "127.0.0.1", () => ready(server));
    });
  let server = await listen(0);
  const { port } = server.address();
  const stop = () =>
    new Promise((closed) => {
      server.close(closed);
      for (const socket of open) socket.destroy();
    });
  t.after(stop);
  return { base: `http://127.0.0.1:${port}${target.pathname}`, stop, start: async () => (server = await listen(port)) };
}

test("a server that restarts under the page is found again, and no row moves", async (t) => {
  for (let i = 0; i < 3; i++) await submit("restart", `restart-${i}`);
  const server = await proxy(t);
  const page = await open(t, "jobs?type=restart", { base: server.base });
  page.expectedErrors = [/ERR_CONNECTION|ERR_EMPTY|ERR_INCOMPLETE|Failed to load resource/];
  await live(page).waitFor();
  await server.stop();
  await page.getByText("No response since").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 3, "the rows stay");
  await api("jobs/restart-1/undo", {});
  await submit("restart", "restart-3");
  await server.start();
  await state(page, "restart-1", "undone").waitFor();
  await page.getByRole("button", { name: "Show 1 newer job" }).waitFor();
  await live(page).waitFor();
  assert.deepEqual(await page.locator("tbody a[data-row]").allInnerTexts(), ["restart-2", "restart-1", "restart-0"]);
});

test("a slow network delays a list, and does not break it", async (t) => {
  await submit("slow", "slow-1");
  const page = await open(t, "jobs");
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.enable");
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 800, downloadThroughput: 20_000, uploadThroughput: 20_000 });
  await page.getByRole("textbox", { name: "Type" }).fill("slow");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await live(page).waitFor();
  await api("jobs/slow-1/undo", {});
  await state(page, "slow-1", "undone").waitFor();
});

test("ten seconds of a hundred changes a second leave nothing behind", async (t) => {
  const jobs = [];
  for (let i = 0; i < 50; i++) jobs.push((await submit("busy", `busy-${i}`)).id);
  const page = await open(t, "jobs?type=busy");
  await live(page).waitFor();
  const cdp = await page.context().newCDPSession(page);
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    const { usedSize } = await cdp.send("Runtime.getHeapUsage");
    return usedSize;
  };
  const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
  await pause(2000);
  const [before, elements] = [await heap(), await nodes()];
  let changes = 0;
  const end = Date.now() + 10_000;
  for (let turn = 0; Date.now() < end || changes < 200; turn++) {
    const began = Date.now();
    await Promise.all(jobs.map((id) => api(`jobs/${id}/${turn % 2 ? "redo" : "undo"}`, {})));
    changes += jobs.length;
    await pause(Math.max(0, 500 - (Date.now() - began)));
  }
  await Promise.all(jobs.map((id) => api(`jobs/${id}/undo`, {})));
  await page.waitForFunction(() => [...document.querySelectorAll("tbody tr")].every((r) => /undone/.test(r.textContent)));
  const grown = (await heap()) - before;
  t.diagnostic(`${changes} changes; the heap has grown by ${Math.round(grown / 1024)} KB`);
  assert.ok(grown < 4 << 20, `the heap has grown by ${grown} bytes`);
  assert.ok((await nodes()) <= elements + 50, "elements of the page");
  await loaded(page);
});

test("a second press of More loads no page twice", async (t) => {
  await submitMany("twice", 120, { sign: { agent: "approval" } });
  const page = await open(t, "alerts?type=twice");
  const list = page.locator("tbody a[data-row]");
  await counted(list, 100);
  let pages = 0;
  await page.route(/v1\/alerts\?.*cursor=/, async (route) => {
    pages++;
    await new Promise((wake) => setTimeout(wake, 300));
    await route.continue();
  });
  await page.getByRole("button", { name: "More", exact: true }).dblclick();
  await counted(list, 120);
  await page.getByRole("button", { name: "More", exact: true }).waitFor({ state: "detached" });
  assert.equal(pages, 1);
});
