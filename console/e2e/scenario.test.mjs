// What operators do from the beginning to the end, on each store: scenario_test.go starts the nodes.
import assert from "node:assert/strict";
import process from "node:process";
import { api, full, loaded, open, test } from "./browser.mjs";

const submit = (definition) => api("jobs", definition);
const done = (page) => page.locator("h1 + .state.good").waitFor();

test("a job is submitted, followed, parked, found through the overview, edited, resumed, undone and redone", async (t) => {
  const page = await open(t, "submit");
  page.expectedErrors.push(/409/); // the preview of an act, if the job has moved on meanwhile
  await page.getByLabel("Definition of the job").fill(`
type: trip
key: trip-1
steps:
  hotel: {agent: approval, with: {message: "Hotel in Lisbon"}}
  charge: {agent: payments, after: [hotel], with: {fail: "51 insufficient funds"}, undo: {}}
  ship: {agent: stock, after: [charge], undo: {}}
`);
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "trip-1" }).waitFor();
  await page.locator("g.node.warn[data-step=hotel]").waitFor();
  await api("jobs/trip-1/steps/hotel/settle", { as: "done", reason: "approved" });
  await page.locator("g.node.bad[data-step=charge]").waitFor(); // without a reload

  await page.goto(full);
  await loaded(page);
  // The overview leads to the job, directly or through the list that a number counts.
  await page.locator("main a", { hasText: /trip|charge|card_declined|parked/ }).first().click();
  await page.waitForURL((url) => url.href !== full);
  await loaded(page);
  if (!new URL(page.url()).pathname.includes("/jobs/")) await page.locator("main").getByRole("link", { name: "trip-1" }).first().click();
  await page.getByRole("heading", { name: "trip-1" }).waitFor();
  await page.locator("g.node.bad[data-step=charge]").click();
  const panel = page.getByRole("complementary", { name: "Step charge" });
  await panel.getByRole("button", { name: "Resume …" }).click();
  const resume = page.getByRole("dialog");
  await resume.getByLabel("Another input, as JSON (empty: as it is now)").fill('{"fail": ""}');
  await resume.getByText("can run at once").waitFor();
  await resume.getByRole("button", { name: "Resume", exact: true }).click();
  await done(page);

  await page.getByRole("button", { name: "Undo …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Undo", exact: true }).click();
  await page.locator("g.node[data-step=ship]", { hasText: "undone" }).waitFor();
  await page.waitForFunction(() => document.querySelector("h1 + .state")?.textContent.includes("undone"));
  await page.getByRole("button", { name: "Redo …" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Redo", exact: true }).click();
  await page.locator("g.node.warn[data-step=hotel]").waitFor(); // it asks for approval again
  const events = (await api("jobs/trip-1/history")).items.map((entry) => entry.event);
  for (const act of ["resume", "undo", "redo"]) assert.ok(events.includes(act), `${act} is in the history: ${events}`);
});

test("a page survives the restart of its node", async (t) => {
  const key = "restarted-1";
  await submit({ type: "restarted", key, steps: { first: { agent: "approval" }, second: { agent: "stock", after: ["first"] } } });
  const page = await open(t, `jobs/${key}`);
  page.expectedErrors.push(/Failed to load resource/, /ERR_/);
  await page.locator("g.node.warn[data-step=first]").waitFor();
  const response = await fetch(process.env.RESTART_URL, { method: "POST" });
  assert.ok(response.ok);
  await page.locator("g.node.warn[data-step=first]").waitFor(); // the data stays
  await api(`jobs/${key}/steps/first/settle`, { as: "done", reason: "after the restart" });
  await page.locator("g.node.good[data-step=second]").waitFor();
  await done(page);
  await page.getByText(/^No response since/).waitFor({ state: "hidden" });
});

test("two tabs show the same job, and the act in one is visible in the other", async (t) => {
  const key = "tabs-1";
  await submit({ type: "tabs", key, steps: { charge: { agent: "payments", with: { fail: "51 insufficient funds" }, undo: {} }, ship: { agent: "stock", after: ["charge"] } } });
  const one = await open(t, `jobs/${key}?step=charge`), two = await open(t, `jobs/${key}?step=charge`);
  for (const page of [one, two]) await page.locator("g.node.bad[data-step=charge]").waitFor();
  const skip = async (page) => {
    await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: "Skip …" }).click();
    await page.getByRole("dialog").getByLabel("Reason", { exact: true }).fill("paid in cash");
  };
  await skip(one);
  await skip(two);
  await one.getByRole("dialog").getByRole("button", { name: "Skip", exact: true }).click();
  await done(one);
  await done(two); // it follows, with its dialog open
  await two.getByRole("dialog").getByText("Nothing: this holds already.").waitFor();
  await two.getByRole("dialog").getByRole("button", { name: "Skip", exact: true }).click();
  await two.getByText("Skip charge of tabs-1: nothing to do, it is so already.").waitFor();
  const events = (await api(`jobs/${key}/history`)).items.filter((entry) => entry.event === "skip");
  assert.equal(events.length, 1, "the act was performed once");
});

test("markup in any field has no effect, and every asset is of the one origin", async (t) => {
  const html = "<img src=x onerror=document.title='broken'><svg onload=document.title='broken'>";
  const key = "<b onmouseover=document.title='broken'>k<b>".replaceAll("/", "");
  const job = await submit({
    type: "markup", key, labels: { "<i>n</i>": html }, input: { [html]: html },
    steps: {
      sign: { agent: "approval", with: { message: html } },
      charge: { agent: "payments", action: "charge", after: ["sign"], with: { fail: html }, undo: {} },
      later: { agent: "stock", after: ["charge"], with: { note: html } },
    },
  });
  const act = (path, body) => fetch(new URL(`../v1/jobs/${job.id}/${path}`, full), { method: "POST", headers: { "Content-Type": "application/json", "Perdure-Author": html }, body: JSON.stringify(body) });
  assert.ok((await act("steps/sign/settle", { as: "done", output: { [html]: html }, reason: html })).ok);
  const patience = Date.now() + 60_000;
  while ((await api(`jobs/${job.id}`)).phase !== "parked") assert.ok(Date.now() < patience, "the job is parked");
  assert.ok((await act("steps/charge/edit", { input: { fail: html }, reason: html })).ok);
  const paths = ["", "jobs?type=markup", `jobs?q=${encodeURIComponent(html)}`, `jobs?type=${encodeURIComponent(html)}`, `jobs?label=${encodeURIComponent(`<i>n</i>=${html}`)}`, "alerts", "agents", "nodes", "limits", "submit",
    `${encodeURIComponent(html)}`, `jobs/${encodeURIComponent(html)}`, ...["", "?tab=steps", "?tab=data", "?tab=history", "?tab=definition", "?step=sign", "?step=charge", "?step=later", `?step=${encodeURIComponent(html)}`].map((rest) => `jobs/${job.id}${rest}`)];
  const page = await open(t, "");
  page.expectedErrors.push(/40[04]/);
  const origin = new URL(full).origin;
  const foreign = [], dialogs = [];
  page.on("request", (request) => request.url().startsWith(origin) || request.url().startsWith("data:") || foreign.push(request.url()));
  page.on("dialog", (dialog) => (dialogs.push(dialog.message()), dialog.dismiss()));
  let shown = 0;
  for (const path of paths) {
    await page.goto(full + path);
    await loaded(page);
    assert.doesNotMatch(await page.title(), /^broken/, path);
    assert.equal(await page.locator("main img, main script, main [onload], main [onerror], main [onmouseover]").count(), 0, path);
    if ((await page.locator("main").innerText()).includes("onerror=document.title")) shown++;
  }
  assert.ok(shown >= 6, `the text is shown on ${shown} pages, and so it was there to be misread`);
  await page.goto(`${full}jobs/${job.id}?step=charge`);
  await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: "Skip …" }).click();
  await page.getByRole("dialog").getByLabel("Reason", { exact: true }).fill(html);
  await page.getByRole("dialog").getByText("perdure skip").waitFor();
  assert.equal(await page.locator("dialog img, dialog [onload], dialog [onerror]").count(), 0);
  assert.doesNotMatch(await page.title(), /^broken/);
  assert.deepEqual(foreign, []);
  assert.deepEqual(dialogs, []);
});
