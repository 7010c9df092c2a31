// The Submit page: the editor, the checks while the text is written, the draft, and a job as the beginning of another.
// Also the other forms: limits and saved views.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { api, eventually, loaded, narrow, open, test, violations as violationsAt, wide } from "./browser.mjs";

/** The page is checked in the size that it has. */
const violations = (page, what) => violationsAt(page, what, { at: [page.viewportSize()] });
const editor = (page) => page.getByRole("textbox", { name: "Definition of the job" });
const focusedText = (page) => page.evaluate(() => document.activeElement.textContent);

const two = "type: draft\nsteps:\n  first: {agent: stock}\n  second: {agent: nobody, after: [first], limits: [{name: seats}]}\n";

test("the plan, the warnings and the graph follow the text", async (t) => {
  const page = await open(t, "submit");
  await editor(page).fill(two);
  const plan = page.getByRole("status", { name: "Plan" });
  await plan.getByText("2 steps").waitFor();
  await plan.getByText("seats").first().waitFor();
  await page.locator("g.node.warn[data-step=second]").waitFor();
  await plan.getByRole("button", { name: "second" }).first().click();
  await page.waitForFunction(() => /^ {2}second: /.test(document.activeElement.value?.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)));
  await violations(page, "a definition with warnings");
  await editor(page).fill(two.replace("type: draft", "type: draft\nkey: order-1042"));
  await plan.getByText("belongs to another definition or input").waitFor();
});

test("a fault is marked at its line 300 ms after the last key, and the graph of the valid text stays", async (t) => {
  for (const size of [narrow, wide]) {
    const page = await open(t, "submit", { size });
    page.expectedErrors.push(/4(00|22)/);
    await editor(page).fill(two);
    await page.locator("g.node[data-step=second]").waitFor();
    // By the clock of the page: when the latest key was pressed before each check, and how long before.
    await page.evaluate(() => {
      globalThis.checks = [];
      let keyAt = performance.now();
      document.addEventListener("input", () => (keyAt = performance.now()));
      const { fetch } = globalThis;
      globalThis.fetch = (url, ...rest) => {
        if (String(url).endsWith("/validate")) globalThis.checks.push({ keyAt, pause: performance.now() - keyAt });
        return fetch(url, ...rest);
      };
    });
    await editor(page).focus();
    await page.keyboard.press("Control+End");
    await page.keyboard.type("  third: {agent: stock, after: [nothing]}", { delay: 20 });
    await page.getByRole("button", { name: "line 5, column" }).waitFor();
    const checks = await page.evaluate(() => globalThis.checks);
    assert.equal(new Set(checks.map((check) => check.keyAt)).size, checks.length, "a text is checked once");
    for (const { pause } of checks) assert.ok(pause > 290, `a check began ${pause} ms after a key`);
    await page.locator(".editor-marks rect.bad[y='90']").waitFor({ state: "attached" }); // line 5
    await page.locator(".outdated g.node[data-step=second]").waitFor();
    await violations(page, "a definition with a fault");
    await page.keyboard.press("Home");
    await page.getByRole("button", { name: "line 5, column" }).click();
    await page.waitForFunction((least) => document.activeElement.selectionStart > least, two.length + 20);
  }
});

test("Tab and Enter indent, undo works, and Esc leaves the editor", async (t) => {
  const page = await open(t, "submit");
  page.expectedErrors.push(/4(00|22)/);
  const text = editor(page);
  await text.fill("");
  await page.keyboard.type("steps:\na:\nb");
  assert.equal(await text.inputValue(), "steps:\n  a:\n    b");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Tab");
  assert.equal(await text.inputValue(), "  steps:\n    a:\n      b");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await text.inputValue(), "steps:\na:\n  b");
  await page.keyboard.press("Control+z");
  assert.equal(await text.inputValue(), "steps:\n  a:\n    b");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  await eventually(async () => assert.equal(await focusedText(page), "Submit"));
});

test("the draft survives a reload, and is gone after the submission", async (t) => {
  const page = await open(t, "submit");
  await editor(page).fill("type: draft\nkey: kept-draft\nsteps:\n  hold: {agent: sleep, with: {for: 1h}}\n");
  await page.locator("g.node[data-step=hold]").waitFor();
  await page.reload();
  await loaded(page);
  assert.match(await editor(page).inputValue(), /key: kept-draft/);
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "kept-draft" }).waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await editor(page).waitFor();
  assert.match(await editor(page).inputValue(), /^type: hello/);
});

test("a job is the beginning of a similar one, without its key and with exact numbers", async (t) => {
  const page = await open(t, "jobs/order-1042");
  await page.getByLabel("More actions").click();
  await page.getByRole("link", { name: "Submit a similar job" }).click();
  await editor(page).waitFor();
  const text = await editor(page).inputValue();
  assert.match(text, /^# From "order-1042", without its key/);
  assert.match(text, / {2}id: 12345678901234567890\n/);
  assert.match(text, / {2}amount: 10\.50\n/);
  assert.doesNotMatch(text, /\nkey:/);
  await page.getByRole("status", { name: "Plan" }).getByText("valid").waitFor();
  await editor(page).fill(text.replace("type: order", "type: similar")); // other tests count the orders
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "similar" }).waitFor();
});

test("every job of these tests is valid as YAML again", async (t) => {
  const page = await open(t, "submit");
  for (const key of ["expense-12", "import-7", (await api("jobs?type=hostile")).items[1].id]) {
    await page.goto(new URL(`submit?from=${encodeURIComponent(key)}`, page.url()).href);
    await loaded(page);
    await page.getByRole("status", { name: "Plan" }).getByText("valid").waitFor();
  }
});

test("a limit with keys shows those that most steps wait for", async (t) => {
  await api("limits/tenant", { perKey: { max: 1 } }, "PUT");
  for (const tenant of ["acme", "acme", "acme", "bolt", "bolt", "<b>"]) await api("jobs", { type: "rent", input: { tenant }, steps: { rent: { agent: "renter", limits: [{ name: "tenant", key: "${input.tenant}" }] } } });
  const { runs } = await api("agents/renter/claim", { holder: "renter-1", max: 9, heartbeat: "30m", requestId: "renter-1" });
  assert.equal(runs.length, 3, "one for each tenant");
  for (const size of [narrow, wide]) {
    const page = await open(t, "limits", { size });
    await page.getByRole("link", { name: "keys of tenant that steps wait for" }).click();
    await page.waitForURL(/limits\?keys=tenant$/);
    const keys = page.getByRole("region", { name: "Keys of tenant that steps wait for" });
    await eventually(async () => assert.deepEqual(await keys.locator("tbody tr").evaluateAll((rows) => rows.map((row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent.trim()))), [["acme", "2", "1 of 1"], ["bolt", "1", "1 of 1"]]));
    await violations(page, "keys of a limit");
    await keys.getByRole("link", { name: "Close" }).click();
    await keys.waitFor({ state: "hidden" });
  }
  const page = await open(t, "limits?keys=nothing");
  page.expectedErrors.push(/404/);
  await page.getByText('there is no limit "nothing"').first().waitFor();
});

test("an operator sets and removes a limit in a dialog", async (t) => {
  for (const size of [narrow, wide]) {
    const page = await open(t, "limits", { size });
    await page.getByRole("button", { name: "New limit" }).click();
    const fresh = page.getByRole("dialog", { name: "A new limit" });
    await fresh.getByLabel(/^Name/).fill(`seats-${size.width}`);
    await fresh.getByLabel(/^At most/).fill("many");
    assert.ok(await fresh.getByRole("button", { name: "Set the limit" }).isDisabled());
    await fresh.getByLabel(/^At most/).fill("7");
    await fresh.getByLabel(/^For each key/).fill("2");
    await fresh.getByLabel(/^Rate,/).fill("5/x");
    assert.ok(await fresh.getByRole("button", { name: "Set the limit" }).isDisabled());
    await fresh.getByLabel(/^Rate,/).fill("50/s");
    await fresh.getByLabel(/^Rate for each key/).fill("1/m");
    await fresh.getByText(`perdure limits set seats-${size.width} 7 --rate 50/s --per-key 2 --key-rate 1/m --server http`).waitFor();
    await violations(page, "a new limit");
    await fresh.getByRole("button", { name: "Set the limit" }).click();
    const row = page.locator("tbody tr", { hasText: `seats-${size.width}` });
    await row.getByText("0 of 7").waitFor();
    await row.getByRole("button").click();
    const dialog = page.getByRole("dialog", { name: `Limit seats-${size.width}` });
    await page.keyboard.press("Escape");
    // A bound of a single key and a burst, which the dialog does not have, stay.
    const path = `limits/seats-${size.width}`;
    await api(path, { max: 7, rate: "50/s", burst: 9, perKey: { max: 2, rate: "1/m" }, keys: { a: { max: 3 } } }, "PUT");
    await page.reload();
    await row.getByRole("button").click();
    await dialog.getByText("1 key with bounds of their own: these stay.").waitFor();
    await dialog.getByLabel(/^At most/).fill("0");
    await dialog.getByRole("button", { name: "Set the limit" }).click();
    await row.getByText("paused").waitFor();
    const { max, rate, burst, perKey, keys } = await api(path);
    assert.deepEqual({ max, rate, burst, perKey, keys }, { max: 0, rate: "50/s", burst: 9, perKey: { max: 2, rate: "1/m", burst: 1 }, keys: { a: { max: 3 } } });
    // With one permit for each key, the jobs of a key may go in order.
    await api(path, { max: 7, perKey: { max: 2, rate: "1/m" } }, "PUT");
    await page.reload();
    await row.getByRole("button").click();
    const inOrder = dialog.getByLabel("The jobs of a key in the order of submission");
    await inOrder.waitFor({ state: "detached" });
    await dialog.getByLabel(/^For each key/).fill("1");
    await inOrder.check();
    await dialog.getByText("--per-key 1 --key-rate 1/m --key-burst 1 --order submitted").waitFor();
    await violations(page, "a limit with an order");
    await dialog.getByRole("button", { name: "Set the limit" }).click();
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
    assert.equal((await api(path)).order, "submitted");
    await page.reload();
    await row.getByRole("button").click();
    assert.ok(await inOrder.isChecked());
    await dialog.getByRole("button", { name: "Remove the limit" }).click();
    await row.waitFor({ state: "detached" });
    page.expectedErrors.push(/4\d\d/);
    await page.getByRole("button", { name: "New limit" }).click();
    await fresh.getByLabel(/^Name/).fill("agent:");
    await fresh.getByLabel(/^At most/).fill("1");
    await fresh.getByRole("button", { name: "Set the limit" }).click();
    await fresh.getByRole("alert").waitFor();
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => !document.querySelector("dialog[open]"));
  }
});

test("filters are saved as a view in this browser", async (t) => {
  for (const size of [narrow, wide]) {
    const page = await open(t, "jobs?phase=parked&type=order", { size });
    const views = page.getByLabel("Saved views");
    await views.click();
    await page.getByLabel("Name of the view").fill("Stuck <b>orders</b>");
    await page.getByRole("button", { name: "Save" }).click();
    await violations(page, "saved views");
    const box = await page.locator(".menu-items:visible").boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= size.width, "the menu is in the window");
    await page.goto(new URL("jobs", page.url()).href);
    await loaded(page);
    await views.click();
    await page.getByRole("link", { name: "Stuck <b>orders</b>" }).click();
    await page.waitForURL(/phase=parked&type=order/);
    await views.click();
    await page.getByRole("button", { name: "Remove the view Stuck <b>orders</b>" }).click();
    await page.getByText("Save filters that you need often").waitFor();
  }
});

test("the menu of a job copies its id, a command and curl, and saves it as JSON", async (t) => {
  const page = await open(t, "jobs/order-1042");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const choose = async (name) => {
    await page.getByLabel("More actions").click();
    await page.getByRole("button", { name }).click();
  };
  await choose("Copy as command");
  await eventually(async () => assert.match(await clipboard(), /^perdure get job_\w+ --server http:\/\/127/));
  await choose("Copy as curl");
  await eventually(async () => assert.match(await clipboard(), /^curl -fsS http:\/\/127\S+\/v1\/jobs\/job_\w+$/));
  await page.keyboard.press(".");
  await eventually(async () => assert.match(await clipboard(), /^job_\w+$/));
  const saved = page.waitForEvent("download");
  await choose("Download as JSON");
  const file = await (await saved).path();
  assert.match(readFileSync(file, "utf8"), /12345678901234567890/);
  await page.keyboard.press("a");
  await eventually(async () => assert.equal(await focusedText(page), "Resume …"));
});

test("a large value is a tree that folds, with exact numbers", async (t) => {
  const input = JSON.stringify({ lines: Array.from({ length: 300 }, (_, i) => ({ sku: `tea-${i}`, units: i })), big: "@" }).replace('"@"', "12345678901234567890");
  const response = await fetch(new URL("../v1/jobs", process.env.CONSOLE_URL), {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: `{"type": "tree", "key": "large-value", "input": ${input}, "steps": {"hold": {"agent": "sleep", "with": {"for": "1h"}}}}`,
  });
  assert.ok(response.ok, await response.text());
  const page = await open(t, "jobs/large-value?tab=data");
  const tree = page.getByRole("region", { name: "Input of the job" });
  await tree.getByText("12345678901234567890").waitFor();
  assert.equal(await tree.getByText('"tea-0"').count(), 0, "the list is folded");
  await tree.getByText("300 items").click();
  await tree.getByText("3 more items").or(tree.getByText("200 more items")).waitFor();
  await tree.locator("summary").nth(2).click();
  await tree.getByText('"tea-0"').waitFor();
  await violations(page, "a large value");
});

test("an operator who has left the page stays where they are when the job is accepted", async (t) => {
  const page = await open(t, "submit");
  await editor(page).fill("type: draft\nkey: left-alone\nsteps:\n  first: {agent: stock}\n");
  let answer;
  const asked = new Promise((resolve) => {
    void page.route("**/v1/jobs", async (route) => {
      if (route.request().method() !== "POST") return route.continue();
      const response = await route.fetch();
      const leave = new Promise((done) => (answer = done));
      resolve(response.status());
      await leave;
      await route.fulfill({ response });
    });
  });
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  assert.equal(await asked, 201);
  await page.locator("nav").getByRole("link", { name: "Limits" }).click();
  await page.getByRole("heading", { name: "Limits", exact: true }).waitFor();
  const answered = page.waitForResponse((r) => r.request().method() === "POST" && r.url().endsWith("/v1/jobs"));
  answer();
  await (await answered).finished();
  await page.evaluate(() => new Promise((done) => setTimeout(done, 100)));
  assert.match(page.url(), /limits$/);
});

test("a part of the console that cannot be loaded says so", async (t) => {
  const page = await open(t, "jobs");
  page.expectedErrors.push(/ERR_FAILED|404/);
  await page.route("**/assets/submit-*.js", (route) => route.abort());
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.getByRole("alert").getByText("A part of the console could not be loaded").waitFor();
  await page.unroute("**/assets/submit-*.js");
  await page.getByRole("button", { name: "Load the page again" }).click();
  await editor(page).waitFor();
});
