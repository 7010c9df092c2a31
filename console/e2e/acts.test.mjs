// Dialogs of acts: where the focus is, what follows the job, and what an operator reads before an act. Also times of
// filters, and texts that could be read as something else.
import assert from "node:assert/strict";
import { api, counted, eventually, loaded, open, test } from "./browser.mjs";

const parks = (key, more = {}) => ({ type: "acts", key, labels: { lot: "acts" }, steps: { charge: { agent: "payments", with: { fail: "51 insufficient funds" }, onFailure: ["park"], undo: {} }, ship: { agent: "stock", after: ["charge"], with: { note: "x" } } }, ...more });

async function parked(t, key, query = "?step=charge", options = {}) {
  await api("jobs", parks(key));
  const page = await open(t, `jobs/${key}${query}`, options);
  await page.locator(".note p", { hasText: "charge is parked" }).waitFor();
  return page;
}

const panelOf = (page) => page.getByRole("complementary", { name: "Step charge" });
const focused = (page) => page.evaluate(() => document.activeElement.closest("label")?.textContent.trim() || document.activeElement.textContent.trim() || document.activeElement.tagName);

test("the times of filters are local or UTC, and say so", async (t) => {
  const page = await open(t, "jobs?since=2020-01-02T03:04:00Z", { zone: "Europe/Paris" });
  await page.getByRole("button", { name: "Remove the filter Submitted from: 2020-01-02 04:04 CET" }).waitFor();
  const from = page.getByLabel("Submitted from (CET)");
  assert.equal(await from.inputValue(), "2020-01-02T04:04");
  assert.equal(await page.getByRole("combobox", { name: "Submitted" }).locator("option:checked").textContent(), "from 2020-01-02 04:04 CET");
  await page.getByRole("button", { name: "Times: relative" }).click();
  await page.getByRole("button", { name: "Times: local" }).click();
  await page.getByRole("button", { name: "Remove the filter Submitted from: 2020-01-02 03:04 UTC" }).waitFor();
  const utc = page.getByLabel("Submitted from (UTC)");
  assert.equal(await utc.inputValue(), "2020-01-02T03:04");
  await utc.fill("2020-07-01T12:30");
  await utc.blur();
  await page.waitForURL((url) => url.searchParams.get("since") === "2020-07-01T12:30:00Z");
  await page.getByRole("button", { name: "Times: UTC" }).click();
  await page.getByRole("button", { name: "Remove the filter Submitted from: 2020-07-01 14:30 CEST" }).waitFor();
});

test("the focus goes to the first field of a dialog, and comes back to its button", async (t) => {
  const page = await parked(t, "acts-focus");
  page.expectedErrors.push(/400/); // the preview with what is typed into a field for JSON
  for (const [button, field] of [["Resume …", "Reason (optional)"], ["Edit input …", "Input, as JSON"], ["Settle …", "Reason"], ["Skip …", "Reason"]]) {
    await panelOf(page).getByRole("button", { name: button }).click();
    await page.getByRole("dialog").waitFor();
    await eventually(async () => assert.match(await focused(page), new RegExp(`^${field.replace(/[()]/g, "\\$&")}`)));
    await page.keyboard.type(" a b");
    assert.ok(await page.getByRole("dialog").isVisible(), "a space closes nothing");
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    await eventually(async () => assert.equal(await focused(page), button));
    await panelOf(page).getByRole("button", { name: button }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await eventually(async () => assert.equal(await focused(page), button));
  }
  await page.getByLabel("More actions").click();
  await page.getByRole("button", { name: "Give up …" }).click();
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("enough");
  assert.equal(await page.getByRole("dialog").getByLabel("Reason", { exact: true }).inputValue(), "enough");
  await page.keyboard.press("Escape");
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY"));
  // The button of an act that was performed is gone: the page has the focus.
  await panelOf(page).getByRole("button", { name: "Skip …" }).click();
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("paid in cash");
  await page.getByRole("dialog").getByText("settled at once").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Skip", exact: true }).click();
  await page.locator("h1 + .state.good").waitFor();
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.id), "main"));
});

test("the focus comes back to a menu whose dialog was late, and the script of dialogs is loaded before one is opened", async (t) => {
  const page = await open(t, "jobs/wide-1000");
  await page.waitForFunction(() => performance.getEntriesByType("resource").some((entry) => /\/dialogs-\w+\.js$/.test(entry.name)));
  let load;
  const asked = new Promise((wake) => (load = wake));
  await page.route("**/assets/dialogs-*.js", async (route) => {
    await asked;
    await route.continue();
  });
  await page.reload();
  await loaded(page);
  await page.getByLabel("More actions").click();
  await page.getByRole("button", { name: "Give up …" }).click();
  await page.evaluate(() => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))); // a button that is hidden has lost the focus by then
  load();
  await page.getByRole("dialog", { name: "Give up wide-1000" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "More actions"));
});

test("Back closes a dialog", async (t) => {
  await api("jobs", parks("acts-back"));
  const page = await open(t, "jobs?type=acts");
  await page.getByRole("link", { name: "acts-back" }).click();
  await page.getByRole("button", { name: "Undo …" }).click();
  await page.getByRole("dialog").waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await counted(page.locator("dialog[open]"), 0);
  await page.getByLabel("Select acts-back").check();
  await page.getByRole("button", { name: "Undo …" }).click();
  await page.getByRole("dialog").waitFor();
  await page.goBack();
  await counted(page.locator("dialog[open]"), 0);
});

test("an open dialog previews the act again when the job has moved", async (t) => {
  const page = await parked(t, "acts-moves");
  await panelOf(page).getByRole("button", { name: "Settle …" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Reason", { exact: true }).fill("seen");
  await dialog.getByText("settled at once").waitFor();
  page.expectedErrors.push(/409/);
  await api("jobs/acts-moves/giveUp", { reason: "by another operator" });
  await dialog.getByRole("alert").waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Settle", exact: true }).isDisabled());
});

test("the sentence about a parked step has its acts, and its input can be begun with", async (t) => {
  const page = await parked(t, "acts-banner", "");
  const note = page.locator(".note.bad");
  assert.deepEqual(await note.getByRole("button").allInnerTexts(), ["Resume …", "Edit input …", "Settle …", "Skip …"]);
  await note.getByRole("button", { name: "Resume …" }).click();
  const dialog = page.getByRole("dialog", { name: "Resume charge of acts-banner" });
  const input = dialog.getByLabel(/^Another input/);
  assert.equal(await input.getAttribute("placeholder"), '{"fail": "51 insufficient funds"}');
  await dialog.getByRole("button", { name: "Begin with the present input" }).click();
  await eventually(async () => assert.equal(await input.inputValue(), '{"fail": "51 insufficient funds"}'));
  await dialog.getByText("Start again under a new key (only if no earlier run had an effect)").waitFor();
  await page.keyboard.press("Escape");
  await note.getByRole("button", { name: "Edit input …" }).click();
  await page.getByRole("dialog").getByLabel("Input, as JSON").fill('{"fail": ""}');
  await page.getByRole("dialog").getByText("The job would be").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Edit", exact: true }).click();
  await page.getByText("The input of charge of acts-banner is changed. The step stays parked until you resume it.").waitFor();
  await page.goto(page.url() + "?step=ship");
  await page.getByRole("complementary", { name: "Step ship" }).getByText("not computed yet").waitFor();
});

test("controls of the direction of text are shown, and letters are left as they are", async (t) => {
  const { id } = await api("jobs", { type: "acts", key: "acts-bidi", labels: { note: "\u202eabc\u202c שלום" }, input: { "to\u2066": "acc\u202etnuo" }, steps: { ask: { agent: "approval", with: { message: "pay \u202e001\u202c שלום" } } } });
  const page = await open(t, `jobs/${id}?step=ask&tab=data`);
  await page.locator(".note p", { hasText: "pay \ufffd001\ufffd שלום" }).waitFor();
  await page.getByText("note=\ufffdabc\ufffd שלום").waitFor();
  for (const text of [/\{"to\\u2066": "acc\\u202etnuo"\}/, /"pay \\u202e001\\u202c שלום"/]) await eventually(async () => assert.match(await page.locator("main").innerText(), text));
  for (const path of [`jobs/${id}?tab=graph`, `jobs/${id}?tab=steps`, "jobs?type=acts", "alerts", "jobs?type=hostile"]) {
    await page.goto(new URL(path, page.url().replace(/ui\/.*/, "ui/")).href);
    await loaded(page);
    assert.doesNotMatch(await page.content(), /[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]/, path);
  }
});

test("a count that stopped early is never below the rows, and all jobs need a filter", async (t) => {
  for (let i = 0; i < 3; i++) await api("jobs", parks(`acts-count-${i}`));
  const page = await open(t, "jobs");
  await page.getByLabel("Select acts-count-0").check();
  await page.getByText("To select all jobs, not only those shown, set a filter.").waitFor();
  // A count that stopped at once.
  await page.route(/v1\/jobs\?.*type=acts/, async (route) => {
    const response = await route.fetch({ headers: { ...route.request().headers(), accept: "application/json" } });
    const list = { ...(await response.json()), count: { n: 0, capped: true } };
    await route.fulfill({ contentType: "text/event-stream", body: `event: page\ndata: ${JSON.stringify(list)}\n\n` });
  });
  await page.route(/v1\/bulk\?dryRun/, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), count: { n: 0, capped: true } } });
  });
  await page.getByRole("textbox", { name: "Search" }).fill("lot=acts");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.searchParams.get("label") === "lot=acts" && !url.searchParams.get("q"));
  await page.getByRole("textbox", { name: "Type" }).fill("acts");
  await page.keyboard.press("Enter");
  await page.waitForURL(/type=acts/);
  await page.getByLabel("Select acts-count-0").check();
  await page.getByRole("button", { name: /^Select all (\d+) or more jobs that match$/ }).click();
  await page.getByRole("button", { name: "Undo …" }).click();
  await page.getByRole("dialog").getByText(/^[3-9] or more jobs$|^10 or more jobs$/).waitFor();
});

test("narrow lists have the job of an alert, and why a job waits", async (t) => {
  const page = await parked(t, "acts-narrow", "", { size: { width: 420, height: 800 } });
  await page.goto(page.url().replace(/jobs\/.*/, "alerts"));
  await page.locator("td .under", { hasText: "acts-narrow: " }).waitFor();
  await page.goto(page.url().replace(/alerts$/, "jobs?key=acts-narrow"));
  await page.locator("td .under", { hasText: /^charge: .*51 insufficient funds/ }).waitFor();
});
