// The pages of hosts: the list with its filters and counts, one host with its runs, and the acts on it.
import assert from "node:assert/strict";
import { before } from "node:test";
import { counted, empty, eventually, full, loaded, narrow, open, test, titled, violations, wide } from "./browser.mjs";
import { caller, command, host } from "./grid.mjs";

const call = caller(full);
const html = "<img src=x onerror=document.title='broken'>";
let one, run;

before(async () => {
  await call("POST", "jobs", command("frames"));
  one = await host(call, "h1", { grid: "local", labels: { job: "frames", zone: "a", disk: "ssd", rack: "r7", pool: "x" }, capacity: { gpu: 2 }, version: html });
  [run] = await one.claim(1);
  await host(call, "h2", { labels: { zone: "b" } });
  await call("POST", "hosts/h2/drain", { reason: html });
  await host(call, "h10", { labels: { zone: "a" }, heartbeat: "1s" });
});

const names = async (page) => (await page.locator("tbody a[data-row]").allInnerTexts()).map((name) => name.trim());

test("a grid without hosts says how to begin", async (t) => {
  const page = await open(t, "hosts", { base: empty });
  await page.getByRole("heading", { name: "There are no hosts" }).waitFor();
  await page.getByText("perdure host --state").waitFor();
  await violations(page, "no hosts", { at: [narrow, wide] });
});

test("the list has the state, the labels and what is in use of each host", async (t) => {
  const page = await open(t, "hosts");
  await titled(page, "Hosts · Perdure");
  await eventually(async () => assert.deepEqual(await names(page), ["h1", "h10", "h2"]));
  const row = page.locator("tbody tr", { hasText: "h1" }).first();
  await row.locator(".state.good", { hasText: "ready" }).waitFor();
  for (const [name, text] of [["slots", "0/4"], ["cpu", "2/8"], ["memory", "4/32 GiB"]]) {
    await row.getByRole("meter", { name: `${name} in use on h1` }).waitFor();
    await row.locator("li", { hasText: name }).getByText(text).first().waitFor();
  }
  assert.equal(await row.getByRole("meter", { name: "cpu in use on h1" }).getAttribute("value"), "2");
  await row.getByText("and 1 more").waitFor(); // amount: gpu
  await row.getByText("and 2 more").waitFor(); // labels
  await page.locator("tbody tr", { hasText: "h10" }).locator(".state.bad", { hasText: "silent" }).waitFor();
  await page.locator("tbody tr", { hasText: "h2" }).locator(".state", { hasText: "drained" }).waitFor();
  await page.getByRole("status").getByText("3 hosts").waitFor();
  await violations(page, "hosts");
});

test("the list can be narrowed by state, grid and label, and searched", async (t) => {
  const page = await open(t, "hosts");
  await page.getByRole("link", { name: "1 silent" }).click();
  await page.waitForURL(/state=silent/);
  await eventually(async () => assert.deepEqual(await names(page), ["h10"]));
  await page.getByLabel("State").selectOption("");
  await page.getByRole("link", { name: "zone=b" }).click();
  await page.waitForURL(/label=zone%3Db/);
  await eventually(async () => assert.deepEqual(await names(page), ["h2"]));
  await page.getByLabel("Label").fill("zone=a");
  await page.getByLabel("Grid").fill("local");
  await page.getByRole("button", { name: "Apply" }).click();
  await eventually(async () => assert.deepEqual(await names(page), ["h1"]));
  await page.goto(full + "hosts");
  await loaded(page);
  await page.keyboard.press("/");
  await page.keyboard.type("zone=A");
  await eventually(async () => assert.deepEqual(await names(page), ["h1", "h10"]));
  await page.keyboard.type("bc");
  await page.getByRole("heading", { name: "No host matches" }).waitFor();
  await page.getByRole("button", { name: "Remove the filters" }).click();
  await eventually(async () => assert.equal((await names(page)).length, 3));
});

test("keys lead to the hosts, and to one of them", async (t) => {
  const page = await open(t, "jobs");
  await page.keyboard.press("g");
  await page.keyboard.press("h");
  await page.getByRole("heading", { name: "Hosts", exact: true }).waitFor();
  await page.locator("a[data-row]").first().waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Host h1" }).waitFor();
});

test("the page of a host has its runs, which lead to their steps, and its text is text", async (t) => {
  const page = await open(t, "hosts/h1");
  await titled(page, "Host h1 · Perdure");
  const details = page.getByRole("complementary", { name: "Details of h1" });
  for (const text of ["gpu 0 of 2", "memory 4 of 32 GiB", "inc-h1", "5e2b1c", "host/h1/inc-h1", html]) await details.getByText(text).first().waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  await page.locator("td", { hasText: "cpu 2, memory 4 GiB, job=frames" }).last().waitFor();
  await violations(page, "a host");
  await page.getByRole("link", { name: "render" }).click();
  const panel = page.getByRole("complementary", { name: "Step render" });
  await panel.getByRole("link", { name: "host h1" }).click();
  await page.getByRole("heading", { name: "Host h1" }).waitFor();
  page.expectedErrors.push(/404/);
  await page.goto(full + "hosts/none");
  await page.getByRole("heading", { name: "There is no such host" }).waitFor();
});

/** Adds fields to the answers of a call, as servers of other versions have them. */
const adds = (page, path, more) =>
  page.route(`**/v1/${path}`, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), ...more } });
  });

test("a host names the step that has reserved it", async (t) => {
  const page = await open(t, "hosts");
  await adds(page, "hosts/h1", { reservation: { job: run.job, step: "large", since: new Date(Date.now() - 3_600_000).toISOString(), until: new Date(Date.now() + 90_000).toISOString() } });
  await page.getByRole("link", { name: "h1", exact: true }).click();
  const details = page.getByRole("complementary", { name: "Details of h1" });
  await details.getByText("reserved for").waitFor();
  await details.getByText(/since 1 h ago, until in 1 min/).waitFor();
  assert.equal(await details.getByRole("link", { name: "large" }).getAttribute("href"), `jobs/${run.job}?step=large`);
});

test("the page of an agent has its settings, and how the runs of its holders have ended", async (t) => {
  const page = await open(t, "agents");
  await adds(page, "agents/exec", {
    patience: "5m",
    health: [
      { holder: "host/h7/x", runs: 100, done: 12, meanDuration: "1m30s", weight: 0.1 },
      { holder: html, runs: 3, done: 3, meanDuration: "950ms", weight: 1 },
    ],
  });
  await page.getByRole("link", { name: "exec", exact: true }).click();
  await titled(page, "Agent exec · Perdure");
  const holders = page.getByRole("table", { name: "Holders" });
  const texts = async () => (await holders.locator("tbody tr").allInnerTexts()).map((text) => text.split(/\s*\n\s*|\t/).filter(Boolean));
  await eventually(async () => assert.deepEqual(await texts(), [["h7", "↻", "fails", "10 %", "12 %", "100", "1m30s"], [html, "●", "healthy", "100 %", "100 %", "3", "950ms"]]));
  await page.getByText("5m", { exact: true }).waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  assert.equal(await holders.getByRole("link", { name: "h7" }).getAttribute("href"), "hosts/h7");
  await violations(page, "an agent", { at: [narrow, wide] });
  await page.getByRole("button", { name: "set the limit agent:exec" }).waitFor();
  page.expectedErrors.push(/404/);
  await page.goto(full + "agents/none");
  await page.getByRole("heading", { name: "There is no such agent" }).waitFor();
});

test("the page of an agent has the shares that go first", async (t) => {
  const page = await open(t, "agents");
  await adds(page, "agents/exec", {
    fairBy: "job.labels.customer",
    shares: [
      { value: html, weight: 4, ahead: 0, ready: 7 },
      { value: "flood", weight: 1, ahead: 2.5, ready: 1000, readyCapped: true },
    ],
  });
  await page.getByRole("link", { name: "exec", exact: true }).click();
  const shares = page.getByRole("table", { name: "Shares" });
  await eventually(async () => assert.deepEqual(await shares.locator("tbody tr td:first-child").allInnerTexts(), [html, "flood"]));
  await page.getByText("job.labels.customer", { exact: true }).waitFor();
  assert.deepEqual((await shares.locator("tbody tr").nth(0).locator("td.num").allInnerTexts()).slice(0, 2), ["4", "7"]);
  assert.match(await shares.locator("tbody tr").nth(1).innerText(), /1,?000/);
  assert.equal(await page.locator("main img").count(), 0);
  await violations(page, "an agent with shares", { at: [narrow, wide] });
});

test("a host is drained, is ready again, and is removed once it is drained and has no runs", async (t) => {
  const page = await open(t, "hosts/h1");
  const remove = page.getByRole("button", { name: "Remove …" });
  await remove.waitFor();
  assert.ok(await remove.isDisabled());
  assert.equal(await remove.getAttribute("title"), "the host has runs");

  await page.getByRole("button", { name: "Drain …" }).click();
  const drain = page.getByRole("dialog", { name: "Drain h1" });
  await drain.getByText("The host gets no more runs. The run that it has may go on for 10m.").waitFor();
  const field = drain.getByLabel("How long its runs may go on");
  await field.fill("soon");
  await drain.getByText("Enter a length of time").waitFor();
  assert.ok(await drain.getByRole("button", { name: "Drain the host" }).isDisabled());
  await field.fill("2h");
  await drain.getByLabel("Reason (optional)").fill("kernel update");
  await drain.getByText("perdure hosts drain h1 --deadline 2h --reason 'kernel update'").waitFor();
  await violations(page, "drain a host", { at: [narrow, wide] });
  await drain.getByRole("button", { name: "Drain the host" }).click();
  await page.getByText("The host h1 gets no more runs. 1 run of it may go on until the deadline.").waitFor();
  await page.locator(".note", { hasText: "The host is being drained" }).getByText("kernel update").waitFor();
  await page.getByText("Its runs are stopped in 1 h 59 min.").waitFor();
  const shown = await call("GET", "hosts/h1");
  assert.ok(Math.abs(Date.parse(shown.drain.by) - Date.now() - 2 * 3_600_000) < 60_000, shown.drain.by);

  await page.getByRole("button", { name: "Ready …" }).click();
  await page.getByRole("dialog", { name: "End the drain of h1" }).getByRole("button", { name: "Make the host ready" }).click();
  await page.getByText("The host h1 gets runs again.").waitFor();
  await page.getByRole("button", { name: "Drain …" }).waitFor();
  await page.locator(".pill", { hasText: "ready" }).waitFor();

  // An act that the server refuses says why: the host is drained by somebody else, and removed.
  await one.report(run, "done", { output: { exit: 0 } });
  await page.getByText("The host has no run.").waitFor();
  assert.equal(await remove.getAttribute("title"), "only a host that is silent or drained can be removed");
  await page.getByRole("button", { name: "Drain …" }).click();
  await drain.getByText("The host has no run. It is drained at once").waitFor();
  await drain.getByRole("button", { name: "Drain the host" }).click();
  await page.getByText("The host h1 is drained.").waitFor();
  await remove.click();
  const dialog = page.getByRole("dialog", { name: "Remove h1" });
  await dialog.getByText("perdure hosts rm h1").waitFor();
  await call("POST", "hosts/h1/ready", {});
  page.expectedErrors.push(/409/);
  await dialog.getByRole("button", { name: "Remove the host" }).click();
  await dialog.getByRole("alert").getByText("conflict").waitFor();
  await call("POST", "hosts/h1/drain", {});
  await dialog.getByRole("button", { name: "Remove the host" }).click();
  await page.getByText("The host h1 is removed.").waitFor();
  await page.waitForURL((url) => url.pathname.endsWith("/ui/hosts"));
  await eventually(async () => assert.deepEqual(await names(page), ["h10", "h2"]));
});

test("a list of 300 hosts is followed, and is as wide as the window", async (t) => {
  for (let i = 0; i < 300; i += 20) await Promise.all(Array.from({ length: 20 }, (_, k) => host(call, `node-${String(i + k).padStart(3, "0")}`, { grid: "large", labels: { rack: `r${k}` } })));
  for (const size of [narrow, wide]) {
    const page = await open(t, "hosts?grid=large", { size });
    await page.getByText("300 hosts").waitFor();
    await counted(page.locator("tbody tr"), 300);
    await call("POST", "hosts/node-123/drain", {});
    await page.locator("tbody tr", { hasText: "node-123" }).locator(".state", { hasText: "drained" }).waitFor();
    await call("POST", "hosts/node-123/ready", {});
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    await page.context().close();
  }
});
