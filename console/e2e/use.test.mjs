// The console in use: from the list to a job and its graph, a job that moves, filters, keys, a server that is gone.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { api, counted, empty, eventually, full, loaded, narrow, open, test } from "./browser.mjs";

const submit = (definition) => api("jobs", definition);

test("from the list to a parked job, its graph and its step", async (t) => {
  const page = await open(t, "jobs?phase=parked");
  await page.getByRole("link", { name: "order-1042" }).click();
  await page.getByRole("heading", { name: "order-1042" }).waitFor();
  await page.getByText("51 insufficient funds").first().waitFor();
  const charge = page.locator("g.node[data-step=charge]");
  assert.match(await charge.textContent(), /charge.*■ parked/);
  await page.locator("g.node.bad[data-step=charge]").waitFor();
  assert.match(await page.locator("g.node[data-step=reserve]").textContent(), /✓ done/);
  await charge.click();
  const panel = page.getByRole("complementary", { name: "Step charge" });
  await panel.getByText("card_declined").first().waitFor();
  assert.equal(new URL(page.url()).searchParams.get("step"), "charge");
  await page.goBack();
  await page.getByRole("link", { name: "order-1042" }).waitFor();
});

test("the URL is the state of the page", async (t) => {
  const page = await open(t, "jobs/order-1042?tab=steps&step=charge&open=true&find=char");
  await page.getByRole("complementary", { name: "Step charge" }).waitFor();
  await counted(page.locator("tbody tr"), 1);
  await page.getByLabel("Find steps by name or agent").fill("");
  await counted(page.locator("tbody tr"), 3);
  await page.getByLabel("hide settled").uncheck();
  await counted(page.locator("tbody tr"), 5);
  assert.equal(new URL(page.url()).search, "?tab=steps&step=charge");
});

test("a job is followed while it moves, also after it was parked", async (t) => {
  const job = await submit({ type: "live", steps: { first: { agent: "approval" }, second: { agent: "stock", after: ["first"] }, third: { agent: "approval", after: ["second"] } } });
  const page = await open(t, `jobs/${job.id}`);
  await page.getByText("live", { exact: true }).or(page.locator(".state.bad", { hasText: "parked" })).first().waitFor();
  await page.locator("g.node.warn[data-step=first]").waitFor();
  await api(`jobs/${job.id}/steps/first/settle`, { as: "done" });
  await page.locator("g.node.good[data-step=second]").waitFor();
  await page.locator("g.node.warn[data-step=third]").waitFor();
  await api(`jobs/${job.id}/steps/third/settle`, { as: "done" });
  await page.locator("h1 + .state.good").waitFor();
});

test("a moving job is shown soon, over one stream", async (t) => {
  const steps = { wait: { agent: "sleep", with: { for: "3s" } }, done: { agent: "stock", after: ["wait"] }, hold: { agent: "sleep", with: { for: "1h" }, after: ["done"] } };
  const job = await submit({ type: "live", steps });
  const page = await open(t, `jobs/${job.id}`);
  const streams = [];
  page.on("request", (request) => request.url().endsWith("/events") && streams.push(request.url()));
  await page.getByText("live", { exact: true }).waitFor();
  let settled;
  do settled = (await api(`jobs/${job.id}`)).steps.done.endedAt;
  while (!settled && (await new Promise((next) => setTimeout(next, 20)), true));
  const accepted = Date.now();
  await page.locator("g.node.good[data-step=done]").waitFor();
  const took = Date.now() - accepted;
  t.diagnostic(`shown ${took} ms after the API showed it`);
  assert.ok(took < 5000, `it took ${took} ms`); // a second, if the machine has nothing else to do
  assert.deepEqual(streams, [], "no second stream was opened");
});

test("the stream is closed while the tab is hidden", async (t) => {
  const job = await submit({ type: "live", steps: { hold: { agent: "sleep", with: { for: "1h" } } } });
  const page = await open(t, `jobs/${job.id}`);
  await page.getByText("live", { exact: true }).waitFor();
  const ended = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/events"));
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await ended;
  const opened = page.waitForRequest((request) => request.url().endsWith("/events"));
  await hide(false);
  await opened;
});

test("the list counts newer jobs, and does not move", async (t) => {
  const page = await open(t, "jobs?type=newer");
  await page.getByText("No job matches").waitFor();
  const first = await submit({ type: "newer", key: "newer-1", steps: { hold: { agent: "sleep", with: { for: "1h" } } } });
  await page.getByRole("link", { name: "newer-1" }).waitFor();
  await submit({ type: "newer", key: "newer-2", steps: { hold: { agent: "sleep", with: { for: "1h" } } } });
  await page.getByRole("button", { name: "Show 1 newer job" }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1);
  await api(`jobs/${first.id}/undo`, {});
  await page.locator("tbody tr", { hasText: "newer-1" }).locator(".state bdi", { hasText: /^undone$/ }).waitFor();
  await page.getByRole("button", { name: "Show 1 newer job" }).click();
  await eventually(async () => assert.deepEqual(await page.locator("tbody a[data-row]").allInnerTexts(), ["newer-2", "newer-1"]));
});

test("pages of the list follow each other without a gap", async (t) => {
  const page = await open(t, "jobs?type=nightly");
  await counted(page.locator("tbody tr"), 50);
  await page.getByRole("button", { name: "More" }).click();
  await counted(page.locator("tbody tr"), 60);
  const keys = await page.locator("tbody a[data-row]").allInnerTexts();
  assert.deepEqual(keys, Array.from({ length: 60 }, (_, i) => `nightly-${String(59 - i).padStart(2, "0")}`));
});

test("filters are in the URL, and a filter without matches can be removed", async (t) => {
  const page = await open(t, "jobs");
  await page.getByRole("combobox", { name: "Phase" }).selectOption("parked");
  await page.getByRole("textbox", { name: "Type" }).fill("order");
  await page.getByText("More filters").click();
  await page.getByRole("textbox", { name: "Label" }).fill("region=eu");
  await page.getByRole("button", { name: "Apply" }).click();
  await counted(page.locator("tbody tr"), 1);
  assert.deepEqual(Object.fromEntries(new URL(page.url()).searchParams), { phase: "parked", type: "order", label: "region=eu" });
  await page.getByRole("button", { name: "Remove the filter Phase: parked" }).click();
  await counted(page.locator("tbody tr"), 5);
  await page.getByRole("textbox", { name: "Type" }).fill("none");
  await page.keyboard.press("Enter");
  await page.getByText("No job matches").waitFor();
  await page.getByRole("button", { name: "Remove all filters" }).click();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length > 20);
  assert.equal(new URL(page.url()).search, "");
});

test("jobs are filtered by the time of their submission", async (t) => {
  const page = await open(t, "jobs?type=order");
  await page.getByText("More filters").click();
  await page.getByLabel("Submitted from").fill("2020-01-02T03:04");
  await page.getByLabel("Submitted from").blur();
  await page.getByRole("button", { name: "Remove the filter Submitted from: 2020-01-02 03:04" }).waitFor();
  const since = new URL(page.url()).searchParams.get("since");
  assert.equal(new Date(since).getTime(), await page.evaluate(() => new Date("2020-01-02T03:04").getTime()), "the time is that of this computer");
  await page.getByRole("link", { name: "order-1042" }).waitFor();
  await page.getByLabel("Submitted before").fill("2020-01-02T03:05");
  await page.keyboard.press("Enter");
  await page.getByText("No job matches").waitFor();
});

test("times are relative, local or UTC, and the choice is kept", async (t) => {
  const page = await open(t, "jobs?key=order-1042");
  const time = page.locator("tbody time");
  assert.match(await time.textContent(), / ago$/);
  await page.getByRole("button", { name: "Times: relative" }).click();
  await eventually(async () => assert.match(await time.textContent(), /^\d[\d:-]* ?[\d:]*$/));
  await page.getByRole("button", { name: "Times: local" }).click();
  await eventually(async () => assert.match(await time.textContent(), /\dZ$/));
  await page.reload();
  await loaded(page);
  assert.match(await time.textContent(), /\dZ$/);
});

test("the history is narrowed to failures and to a step, and has the newest first", async (t) => {
  const page = await open(t, "jobs/order-1001?tab=history");
  const rows = page.locator("main tbody tr");
  await rows.nth(2).waitFor(); // and a fourth one, if the invoice was written before the charge was refused
  await page.getByRole("button", { name: "Times: relative" }).click(); // relative times change
  await eventually(async () => assert.doesNotMatch((await rows.allInnerTexts()).join(), / ago/));
  const all = await rows.allInnerTexts();
  assert.ok(all.length >= 3);
  await page.getByLabel("newest first").check();
  await eventually(async () => assert.deepEqual(await rows.allInnerTexts(), all.toReversed()));
  await page.getByLabel("Kind of entries").selectOption("failures");
  await page.getByText("1 of", { exact: false }).waitFor();
  await counted(rows, 1);
  await page.getByLabel("Step").selectOption("reserve");
  await page.getByText("No entry matches.").waitFor();
  assert.match(page.url(), /newest=true&only=failures&of=reserve$/);
  await page.getByLabel("Step").selectOption("");
  await page.getByRole("link", { name: "charge" }).click();
  await page.waitForURL(/newest=true&only=failures&step=charge$/); // the panel of a step leaves the history as it is
});

test("the history of acts has those on steps, and the timeline has the time in which a step was parked", async (t) => {
  const page = await parked(t, "repair-9");
  await api("jobs/repair-9/steps/charge/edit", { input: { fail: "" }, reason: "another card" });
  await api("jobs/repair-9/resume", {});
  await done(page);
  await page.goto(full + "jobs/repair-9?tab=history&only=acts");
  await page.getByText("another card").waitFor();
  assert.deepEqual((await page.locator("main tbody .state bdi").allInnerTexts()).sort(), ["edited", "resume"]);
  await page.goto(full + "jobs/repair-9?tab=timeline");
  await page.locator("g.timeline-row[data-step=charge] g.span.parked").waitFor();
});

test("the list says why jobs wait, how many match, and finds a job by its key", async (t) => {
  const page = await open(t, "jobs?reason=parked&error=card_declined");
  const row = page.locator("tbody tr", { hasText: "order-1042" });
  await row.locator("td.c2").getByText("51 insufficient funds").waitFor();
  await page.getByRole("combobox", { name: "Why it waits" }).selectOption("");
  await page.getByRole("textbox", { name: "Error code" }).fill("");
  await page.getByRole("textbox", { name: "Search" }).fill("nightly-1");
  await page.keyboard.press("Enter");
  await counted(page.locator("tbody tr"), 10);
  assert.deepEqual(Object.fromEntries(new URL(page.url()).searchParams), { q: "nightly-1" });
  await page.goto(full + "jobs?type=nightly&order=oldest");
  await page.getByText("50 of 60 jobs").first().waitFor();
  assert.equal(await page.locator("tbody a[data-row]").first().innerText(), "nightly-00");
});

const parks = (key) => ({ type: "repair", key, steps: { charge: { agent: "payments", with: { fail: "51 insufficient funds" }, onFailure: ["park"], undo: {} }, ship: { agent: "stock", after: ["charge"] } } });

/** Submits a job whose step charge is parked, and opens the job at this step. */
async function parked(t, key) {
  await submit(parks(key));
  const page = await open(t, `jobs/${key}?step=charge`);
  await page.locator("g.node.bad[data-step=charge]").waitFor();
  return page;
}

const done = (page) => page.locator("h1 + .state.good").waitFor();

test("an operator edits and resumes a parked step, with a preview", async (t) => {
  const page = await parked(t, "repair-1");
  const panel = page.getByRole("complementary", { name: "Step charge" });
  await panel.getByRole("button", { name: "Resume …" }).click();
  const dialog = page.getByRole("dialog", { name: "Resume charge of repair-1" });
  await dialog.getByText("can run at once").waitFor();
  await dialog.getByLabel("Another input, as JSON (empty: as it is now)").fill('{"fail": ');
  page.expectedErrors.push(/4\d\d/);
  await dialog.getByRole("alert").waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Resume", exact: true }).isDisabled());
  await dialog.getByLabel("Another input, as JSON (empty: as it is now)").fill('{"fail": ""}');
  await dialog.getByText("can run at once").waitFor();
  await dialog.getByLabel("Reason (optional)").fill("another card");
  await dialog.getByLabel("Your name, for the history").fill("Zoë 注");
  await dialog.getByText(/^perdure resume job_\w+ charge --input '{"fail": ""}' --reason 'another card' --server http/).waitFor();
  await dialog.getByRole("button", { name: "Resume", exact: true }).click();
  await done(page);
  await counted(page.getByRole("dialog"), 0);
  await page.getByText(/^Resume charge of repair-1: recorded\. The job is \w+\.$/).waitFor();
  const history = await api("jobs/repair-1/history");
  const act = history.items.find((entry) => entry.event === "resume");
  assert.equal(act.author, "Zoë 注");
  assert.match(act.detail, /another card/);
});

test("an operator settles and skips parked steps, and undoes and redoes a job", async (t) => {
  const page = await parked(t, "repair-2");
  const panel = page.getByRole("complementary", { name: "Step charge" });
  await panel.getByRole("button", { name: "Settle …" }).click();
  const settle = page.getByRole("dialog", { name: "Settle charge of repair-2" });
  await settle.getByText("settled at once").waitFor();
  await settle.getByRole("button", { name: "Settle", exact: true }).click(); // without a reason: the browser asks for one
  assert.ok(await settle.isVisible());
  await settle.getByLabel("Output, as JSON (optional)").fill('"ch_1"');
  await settle.getByLabel("Reason", { exact: true }).fill("seen at the bank");
  await settle.getByRole("button", { name: "Settle", exact: true }).click();
  await done(page);
  await page.getByRole("button", { name: "Undo …" }).click();
  await page.getByRole("dialog").getByText("keep their effect").waitFor(); // ship has no undo
  await page.getByRole("dialog").getByRole("button", { name: "Undo", exact: true }).click();
  await page.locator("h1 + .state.warn").waitFor();
  await page.getByRole("button", { name: "Redo …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Redo", exact: true }).click();
  await page.locator("g.node.bad[data-step=charge]").waitFor();
  await panel.getByRole("button", { name: "Skip …" }).click();
  await page.getByRole("dialog").getByLabel("Reason", { exact: true }).fill("paid in cash");
  await page.getByRole("dialog").getByRole("button", { name: "Skip", exact: true }).click();
  await done(page);
  assert.deepEqual((await api("jobs/repair-2/history")).items.filter((entry) => ["settle", "undo", "redo", "skip"].includes(entry.event)).map((entry) => entry.event), ["settle", "undo", "redo", "skip"]);
});

test("an act that the rules refuse is refused in the dialog, with their message", async (t) => {
  const page = await parked(t, "repair-3");
  await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: "Skip …" }).click();
  const dialog = page.getByRole("dialog", { name: "Skip charge of repair-3" });
  await dialog.getByText("settled at once").waitFor();
  await api("jobs/repair-3/giveUp", { reason: "by another operator" });
  page.expectedErrors.push(/409/);
  await dialog.getByLabel("Reason", { exact: true }).fill("too late");
  await dialog.getByRole("button", { name: "Skip", exact: true }).click();
  await dialog.getByRole("alert").waitFor();
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector("dialog[open]"));
});

test("a refused filter is a message with its code", async (t) => {
  const page = await open(t, "jobs?label=nonsense");
  page.expectedErrors.push(/400/);
  await page.getByRole("alert").getByText("label must be NAME=VALUE").waitFor();
  await page.getByRole("alert").getByText("code invalid").waitFor();
});

test("the keyboard leads through lists, jobs and steps", async (t) => {
  const page = await open(t, "");
  await page.keyboard.press("g");
  await page.keyboard.press("j");
  await page.waitForURL("**/ui/jobs");
  await loaded(page);
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement.getAttribute("name") === "q");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.waitForFunction(() => document.activeElement === document.querySelector("tbody a[data-row]"));
  await page.goto(full + "jobs/order-1042");
  await loaded(page);
  const chosen = (...steps) => page.waitForURL((url) => steps.includes(url.searchParams.get("step")));
  await page.keyboard.press("]");
  await chosen("reserve");
  await page.getByRole("group", { name: /^Graph of 5 steps/ }).focus();
  await page.keyboard.press("ArrowRight");
  await chosen("charge", "invoice");
  await page.keyboard.press("ArrowRight");
  await chosen("ship");
  await page.keyboard.press("[");
  await page.keyboard.press("Escape");
  await chosen(null);
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await page.waitForURL("**/ui/alerts");
});

test("the graph opens at the step that needs attention, and can be moved and zoomed", async (t) => {
  const page = await open(t, "jobs/order-1042", { size: narrow });
  const box = await eventually(async () => {
    const box = await page.locator(".graph").boundingBox();
    const charge = await page.locator("g.node[data-step=charge] rect").boundingBox();
    assert.ok(charge.x > box.x && charge.x + charge.width < box.x + box.width, "the parked step is visible");
    return box;
  });
  const transform = () => page.locator(".graph > svg > g").getAttribute("transform");
  const start = await transform();
  await page.mouse.move(box.x + 30, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + 90, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await eventually(async () => assert.notEqual(await transform(), start));
  const moved = await transform();
  assert.equal(new URL(page.url()).searchParams.get("step"), null, "a drag chooses no step");
  await page.mouse.wheel(0, -300);
  await page.waitForFunction((before) => document.querySelector(".graph > svg > g").getAttribute("transform") !== before, moved);
  await page.keyboard.press("f");
  await eventually(async () => {
    const steps = await page.locator("g.node rect").evaluateAll((rects) => rects.map((r) => r.getBoundingClientRect().toJSON()));
    assert.ok(steps.length >= 5 && steps.every((step) => step.left >= box.x && step.right <= box.x + box.width), "fit shows all steps");
  });
});

test("a graph of 1,000 steps is drawn in part, and quickly", async (t) => {
  const page = await open(t, "jobs?key=wide-1000");
  await page.evaluate(() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((e) => (globalThis.longest = Math.max(globalThis.longest, e.duration)))).observe({ type: "longtask" });
  });
  const begin = Date.now();
  await page.getByRole("link", { name: "wide-1000" }).click();
  await page.locator("g.node").first().waitFor();
  const took = Date.now() - begin;
  const drawn = await page.locator("g.node").count();
  assert.ok(drawn < 400, `${drawn} steps are in the page`);
  await page.keyboard.press("f");
  await page.locator(".graph > canvas").waitFor();
  await counted(page.locator("g.node"), 0);
  const box = await page.locator(".graph").boundingBox();
  await page.evaluate(() => (globalThis.longest = 0));
  await page.mouse.move(box.x + 200, box.y + 200);
  await page.mouse.down();
  for (let i = 0; i < 30; i++) await page.mouse.move(box.x + 200 + 10 * i, box.y + 200 + 5 * i);
  await page.mouse.up();
  t.diagnostic(`graph of 1,000 steps visible after ${took} ms; longest task while it was moved: ${await page.evaluate(() => globalThis.longest)} ms`);
  assert.ok(took < 10_000, `the graph was visible after ${took} ms`); // half a second, if the machine has nothing else to do
});

test("a table of 1,000 steps has the rows near the window", async (t) => {
  const page = await open(t, "jobs/wide-1000?tab=steps");
  await page.getByText("1000 of 1000 steps").waitFor();
  await page.locator("tbody a[title=s_0_0]").waitFor();
  assert.ok((await page.locator("tbody tr").count()) < 400);
  await eventually(async () => {
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight)); // the height is estimated until rows are drawn
    assert.ok((await page.locator("tbody tr", { hasText: "s_24_39" }).count()) > 0);
  });
  assert.ok((await page.locator("tbody tr").count()) < 400);
});

test("a definition with a fault is refused with its place, and a valid one becomes a job", async (t) => {
  const page = await open(t, "submit");
  page.expectedErrors.push(/422/);
  await page.getByLabel("Definition of the job").fill("type: hello\nsteps:\n  a: {agent: sleep, with: {for: 1h}, after: [b]}\n");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("alert").getByText("line 3, column 46: there is no step").waitFor();
  await page.getByLabel("Definition of the job").fill("type: hello\nkey: submitted-here\nsteps:\n  a: {agent: sleep, with: {for: 1h}}\n");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "submitted-here" }).waitFor();
});

test("the choice of colours is kept", async (t) => {
  const page = await open(t, "");
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.getByRole("button", { name: /^Colours/ }).click();
  await page.getByRole("button", { name: "Colours: light" }).click();
  await eventually(async () => assert.notEqual(await back(), light));
  await page.reload();
  await page.getByRole("button", { name: "Colours: dark" }).waitFor();
  await eventually(async () => assert.notEqual(await back(), light));
});

// A proxy between the browser and the node, which can be stopped.
async function proxy(t) {
  const target = new URL(empty);
  let down = false;
  const server = http.createServer((request, response) => {
    if (down) return request.socket.destroy();
    const forward = http.request({ host: target.hostname, port: target.port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forward.on("error", () => response.destroy());
    request.pipe(forward);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${server.address().port}${target.pathname}`,
    stop: (now) => {
      down = now;
      if (now) server.closeAllConnections();
    },
  };
}

test("while the server is gone the data stays, and comes back by itself", async (t) => {
  const between = await proxy(t);
  const page = await open(t, "nodes", { base: between.url });
  page.expectedErrors.push(/Failed to load resource/);
  await page.getByText("test-1").first().waitFor();
  between.stop(true);
  await page.getByText(/^No response since/).waitFor();
  await page.getByText("test-1").first().waitFor();
  await page.locator("main.stale").waitFor();
  between.stop(false);
  await page.getByText(/^No response since/).waitFor({ state: "hidden" });
  await counted(page.locator("main.stale"), 0);
});

test("each number of the overview leads to the list that it counts", async (t) => {
  const page = await open(t, "");
  const parked = page.getByRole("link", { name: /alert.*: parked, order charge card_declined/ });
  await parked.waitFor();
  const n = Number(await parked.textContent());
  assert.ok(n >= 1);
  await parked.click();
  await page.waitForURL(/jobs\?alert=parked&type=order&step=charge&error=card_declined/);
  await counted(page.locator("main tbody a[data-row]"), n);

  await page.goto(full);
  // An operator has to start the agent, so that both lists have it.
  const noAgents = page.getByRole("link", { name: /steps?: no agent absent has claimed runs/ });
  await counted(noAgents, 2);
  const noAgent = noAgents.first();
  await noAgent.waitFor();
  assert.ok(Number(await noAgent.textContent()) >= 40, "the first layer of wide-1000");
  await noAgent.click();
  await page.getByRole("link", { name: "wide-1000" }).waitFor();

  await page.goto(full);
  await page.getByRole("img", { name: "submitted, by the minute" }).waitFor();
  await page.getByRole("link", { name: /submitted in the last hour/ }).waitFor({ timeout: 150_000 }); // a number above 0: nodes store their counts once a minute
});

test("the overview says how old its numbers are, and how to begin on an empty store", async (t) => {
  const page = await open(t, "");
  assert.equal(await page.getByText(/as of .* ago/).count(), 0);
  await page.route("**/v1/stats", async (route) => {
    const response = await route.fetch();
    const stats = await response.json();
    await route.fulfill({ response, json: { ...stats, asOf: new Date(Date.parse(stats.asOf) - 60_000).toISOString(), typesCapped: true } });
  });
  await page.getByText(/as of 1 min ago/).waitFor();
  const begin = await open(t, "", { base: empty });
  await begin.getByText("perdure submit hello.json").waitFor();
  await begin.getByRole("link", { name: "Submit a job here" }).waitFor();
});

test("agents show what is ready, what runs, and the errors of the last hour", async (t) => {
  const page = await open(t, "agents");
  const row = (name) => page.getByRole("row").filter({ hasText: name });
  await row("payments").getByText(/card_declined \d+/).waitFor();
  await row("absent").getByRole("link", { name: /^(4[0-9]|[5-9][0-9]|[1-9][0-9]{2,}) ready steps of absent$/ }).waitFor();
});

test("the timeline shows the runs of an undone job, zooms, and follows a job that moves", async (t) => {
  const page = await open(t, "jobs/order-1001?tab=timeline");
  const charge = page.locator("g.timeline-row[data-step=charge]");
  await charge.locator("g.span.failed").waitFor();
  assert.match(await charge.locator("g.span.failed title").textContent(), /^charge, run 1, do, turn 1: rejected\n[\s\S]*\nby [\s\S]*card_declined: the bank says no/);
  const reserve = page.locator("g.timeline-row[data-step=reserve]");
  await counted(reserve.locator("g.span.done"), 2); // the do run is still there after the undo
  await counted(reserve.locator("g.span.done.undo"), 1);

  // Dragging selects a part of the time, which is in the URL; the whole time comes back with a button and with a key.
  const box = await page.locator("svg.timeline-rows").boundingBox();
  const drag = async () => {
    await page.mouse.move(box.x + 300, box.y + 10);
    await page.mouse.down();
    await page.mouse.move(box.x + 500, box.y + 20, { steps: 4 });
    await page.mouse.up();
    await page.waitForURL(/from=.*to=/);
  };
  await drag();
  await page.getByRole("button", { name: "Whole time" }).click();
  await page.waitForURL((url) => !url.search.includes("from="));
  await drag();
  await page.keyboard.press("f");
  await page.waitForURL((url) => !url.search.includes("from="));
  await page.keyboard.press("+");
  await page.waitForURL(/from=/);
  await page.getByRole("group", { name: /^Timeline of order-1001/ }).focus();
  const before = page.url();
  await page.keyboard.press("ArrowRight");
  await page.waitForURL((url) => url.href !== before);
  await page.keyboard.press("f");

  // A click on a row chooses its step, whose panel has its runs.
  await charge.locator("rect.back").click({ position: { x: 20, y: 10 } });
  const panel = page.getByRole("complementary", { name: "Step charge" });
  await panel.locator(".runs li").filter({ hasText: "rejected" }).waitFor();
  await eventually(async () => assert.match(await panel.locator(".runs").innerText(), /run 2 undo[\s\S]*run 1 do[\s\S]*rejected/));
  await page.getByText("The same as a table").click();
  await eventually(async () => assert.ok((await page.locator("details .runs li").count()) >= 4)); // invoice may not have begun
});

test("the timeline of a moving job grows", async (t) => {
  const job = await submit({ type: "live", steps: { first: { agent: "stock" }, ask: { agent: "approval", after: ["first"] }, second: { agent: "carrier", after: ["ask"] } } });
  const page = await open(t, `jobs/${job.id}?tab=timeline`);
  await page.locator("g.timeline-row[data-step=first] g.span.done").waitFor();
  assert.equal(await page.locator("g.timeline-row[data-step=second] g.span").count(), 0);
  await api(`jobs/${job.id}/steps/ask/settle`, { as: "done" });
  await page.locator("g.timeline-row[data-step=second] g.span.running").waitFor();
  await page.locator("g.timeline-row[data-step=second] g.span.lock").waitFor({ state: "attached" });
});

test("the timeline can be copied and saved as a picture", async (t) => {
  const page = await open(t, "jobs/order-1001?tab=timeline");
  const choose = async (item) => {
    await page.getByLabel("Picture of the timeline").click();
    await page.getByRole("button", { name: item }).click();
  };
  const [download] = await Promise.all([page.waitForEvent("download"), choose("Save as SVG")]);
  assert.equal(download.suggestedFilename(), "order-1001-timeline.svg");
  const text = readFileSync(await download.path(), "utf8");
  assert.match(text, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/);
  assert.match(text, /Timeline of order-1001/);
  assert.match(text, />reserve<\/text>/);
  const found = await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror, script").length, text);
  assert.equal(found, 0, "it is a valid picture");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await choose("Copy as SVG");
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith("<svg "));
});

test("the timeline of 1,000 steps has only the rows near the window", async (t) => {
  const steps = {};
  for (let layer = 0; layer < 25; layer++) {
    for (let i = 0; i < 40; i++) steps[`s_${layer}_${i}`] = { agent: "stock", ...(layer > 0 && { after: [`s_${layer - 1}_${i}`] }) };
  }
  const job = await submit({ type: "runs", steps });
  await page1000(t, job.id);
});

async function page1000(t, id) {
  const until = Date.now() + 120_000;
  for (let phase = ""; phase !== "settled"; phase = (await api(`jobs/${id}?wait=30s`)).phase) assert.ok(Date.now() < until, `the job is ${phase}`);
  const page = await open(t, `jobs/${id}?tab=timeline`);
  await page.locator("g.timeline-row[data-step=s_0_0] g.span.done").waitFor();
  assert.ok((await page.locator("g.timeline-row").count()) < 150);
  await eventually(async () => {
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    assert.equal(await page.locator("g.timeline-row[data-step=s_24_39] g.span.done").count(), 1);
  });
  assert.ok((await page.locator("g.timeline-row").count()) < 150);
  await counted(page.locator("g.timeline-row[data-step=s_0_0]"), 0);
  const frames = await page.evaluate(async () => {
    const frames = [];
    for (let before = performance.now(); frames.length < 60; ) {
      scrollBy(0, -300);
      await new Promise(requestAnimationFrame);
      frames.push(performance.now() - before);
      before = performance.now();
    }
    return frames.sort((a, b) => a - b);
  });
  t.diagnostic(`slowest frame while scrolling: ${Math.round(frames.at(-1))} ms`);
  assert.ok(frames[30] < 1000, `half of the frames took ${frames[30]} ms and more`); // the slowest one takes 50 ms, if the machine has nothing else to do
}
