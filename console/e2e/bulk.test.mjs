// Bulk acts: jobs are selected in the list, a dialog shows what the act would meet, and a page shows how far it is.
import assert from "node:assert/strict";
import { api, counted, empty, eventually, narrow, open, test, violations, wide } from "./browser.mjs";

/** The page is checked at widths of a telephone, a tablet and a large window. */
const look = (page, what) => violations(page, what, { at: [narrow, { width: 768, height: 900 }, wide] });

/** Submits jobs of a type that wait for an agent that no process has. */
async function jobs(type, n) {
  const { results } = await api("batches/submit", {
    definition: { type, labels: { lot: type }, steps: { s: { agent: "nobody-at-all" } } },
    jobs: Array.from({ length: n }, (_, i) => ({ key: `${type}-${i}` })),
  });
  return results.map((one) => one.id);
}

const ended = async (id) => {
  for (;;) {
    const bulk = await api(`bulk/${id}`);
    if (bulk.state === "done") return bulk;
    await new Promise((wake) => setTimeout(wake, 200));
  }
};

/** Waits for the page of the bulk act that a dialog has started, and returns the id of the act. */
async function started(page, title) {
  await page.waitForURL(/\/bulk\/bulk_\w+$/); // the dialog may have the same heading
  await page.getByRole("heading", { name: title, exact: true }).waitFor();
  return new URL(page.url()).pathname.split("/").at(-1);
}

test("all jobs that match a filter are undone, with a preview, a reason and the same command", async (t) => {
  await jobs("lot-a", 60);
  const page = await open(t, "jobs?type=lot-a&label=lot%3Dlot-a");
  await page.getByLabel("Select lot-a-59").check();
  await page.getByText("1 job selected").waitFor();
  await page.getByRole("button", { name: "Select all 60 jobs that match" }).click();
  await page.getByText("All 60 jobs that match").waitFor();
  await look(page, "bulk-selection");
  await page.getByRole("region", { name: "Selected jobs" }).getByRole("button", { name: "Undo …" }).click();
  const dialog = page.getByRole("dialog", { name: "Undo many jobs" });
  await dialog.getByText("60 jobs", { exact: true }).waitFor();
  await counted(dialog.locator(".samples li"), 11);
  await dialog.getByText("and 50 more").waitFor();
  await dialog.getByLabel("Reason, for the history of each job").fill("wrong lot");
  await dialog.getByLabel(/^Jobs per second/).fill("10001");
  await dialog.getByRole("button", { name: "Undo 60 jobs", disabled: true }).waitFor();
  await dialog.getByLabel(/^Jobs per second/).fill("5000");
  await dialog.getByText(/--per-second 5000 --reason/).waitFor();
  await dialog.getByLabel("Your name, for the history").fill("Zoë 注");
  await dialog.getByText(/^perdure undo --type lot-a --label '?lot=lot-a'? --per-second 5000 --reason 'wrong lot' --server http/).waitFor();
  await look(page, "bulk-dialog");
  await dialog.getByRole("button", { name: "Undo 60 jobs" }).click();
  const bulk = await ended(await started(page, "Undo many jobs"));
  assert.deepEqual([bulk.done, bulk.unchanged, bulk.refused, bulk.author, bulk.reason, bulk.perSecond], [60, 0, 0, "Zoë 注", "wrong lot", 5000]);
  await page.getByText("at most 5,000").waitFor();
  await page.locator(".title .state.good").waitFor();
  await page.getByText("60 of 60 jobs").waitFor();
  await look(page, "bulk-done");
  await page.getByRole("link", { name: "those that match the filter now" }).click();
  await page.getByRole("link", { name: "lot-a-59" }).waitFor();
  assert.equal(new URL(page.url()).searchParams.get("label"), "lot=lot-a");
});

test("jobs are selected with the keyboard, and refusals are listed", async (t) => {
  await jobs("lot-b", 4);
  const page = await open(t, "jobs?type=lot-b");
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.getByText("1 job selected").waitFor();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Shift+X");
  await page.getByText("3 jobs selected").waitFor();
  await page.keyboard.press("x");
  await page.getByText("2 jobs selected").waitFor();
  await page.keyboard.press("a");
  await eventually(async () => assert.equal(await page.evaluate(() => document.activeElement.textContent), "Resume …"));
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Resume many jobs" });
  await dialog.getByText("The rules would refuse it on 2 jobs of the first 2").waitFor();
  await dialog.getByText("None of these jobs can be resumed now.").waitFor();
  await dialog.getByText("not in a state for this act, code conflict").waitFor();
  assert.ok(await dialog.getByRole("button", { name: "Resume 2 jobs" }).isDisabled());
  const { id } = await api("bulk", { act: "resume", ids: (await api("jobs?type=lot-b&limit=2")).items.map((job) => job.id), reason: "try" });
  await page.goto(new URL(`bulk/${id}`, page.url()).href);
  await page.getByText("no step of this job is parked").first().waitFor();
  await counted(page.locator("#refusals tbody tr"), 2);
  await look(page, "bulk-refused");
  await page.goto(new URL("../bulk", page.url()).href);
  await page.getByRole("heading", { name: "Bulk acts" }).waitFor();
  await page.locator("a[data-row]").first().waitFor();
  await look(page, "bulk-list");
});

test("a step of many jobs is skipped, with the step that they all wait for", async (t) => {
  await jobs("lot-d", 3);
  const page = await open(t, "jobs?type=lot-d");
  await page.getByLabel("Select all jobs that are shown").check();
  await page.getByLabel("Act on a step of each job").click();
  await page.getByRole("button", { name: "Skip …" }).click();
  const dialog = page.getByRole("dialog", { name: "Skip a step of many jobs" });
  assert.equal(await dialog.getByLabel("Step of each job").inputValue(), "s");
  await dialog.getByLabel("Step of each job").fill("none");
  await dialog.getByText("The rules would refuse it on 3 jobs of the first 3").waitFor();
  await dialog.getByLabel("Step of each job").fill("s");
  await dialog.getByText("The rules would refuse it").waitFor({ state: "detached" });
  await dialog.getByLabel("Reason, for the history of each job").fill("it was not needed");
  await dialog.getByText(/^perdure skip job_\w+ job_\w+ job_\w+ --step s --reason 'it was not needed' --server http/).waitFor();
  await look(page, "bulk-step");
  await dialog.getByRole("button", { name: "Skip 3 jobs" }).click();
  const bulk = await ended(await started(page, "Skip s of many jobs"));
  assert.deepEqual([bulk.act, bulk.step, bulk.done, bulk.refused], ["skip", "s", 3, 0]);
});

test("a step of all jobs that match is settled as undone, and the call for curl is the same", async (t) => {
  await jobs("lot-e", 60);
  const page = await open(t, "jobs?type=lot-e");
  await page.getByLabel("Select lot-e-59").check();
  await page.getByRole("button", { name: "Select all 60 jobs that match" }).click();
  await page.getByLabel("Act on a step of each job").click();
  await page.getByRole("button", { name: "Settle …" }).click();
  const dialog = page.getByRole("dialog", { name: "Settle a step of many jobs" });
  await dialog.getByLabel("Step of each job").fill("s");
  await dialog.getByLabel("undone", { exact: true }).check();
  await dialog.getByText("60 jobs", { exact: true }).waitFor();
  await dialog.getByLabel("Reason, for the history of each job").fill("by hand");
  // No command has this act: its flag --step would also be a filter.
  const body = '{"act": "settle", "filter":{"type":"lot-e"}, "reason": "by hand", "step": "s", "as": "undone"}';
  await dialog.locator(".commands code").getByText(`-d '${body}'`).waitFor();
  const request = page.waitForRequest((request) => request.url().endsWith("/v1/bulk") && request.method() === "POST");
  await dialog.getByRole("button", { name: "Settle 60 jobs" }).click();
  assert.ok((await request).postData().startsWith(body.slice(0, -1)));
  const bulk = await ended(await started(page, "Settle s of many jobs"));
  assert.equal(bulk.matched, 60);
});

test("an edit of many jobs needs an input", async (t) => {
  await jobs("lot-f", 2);
  const page = await open(t, "jobs?type=lot-f");
  await page.getByLabel("Select all jobs that are shown").check();
  await page.getByLabel("Act on a step of each job").click();
  await page.getByRole("button", { name: "Edit …" }).click();
  const dialog = page.getByRole("dialog", { name: "Edit a step of many jobs" });
  await dialog.getByText("Enter an input, or choose a new key.").waitFor();
  assert.ok(await dialog.getByRole("button", { name: /^Edit/ }).isDisabled());
  await dialog.getByLabel("Input, as JSON").fill('{"n": 12345678901234567890}');
  await dialog.getByText("2 jobs", { exact: true }).waitFor();
});

test("a bulk act is stopped and resumed on its page", async (t) => {
  await jobs("lot-c", 900);
  const { id } = await api("bulk", { act: "undo", filter: { type: "lot-c" }, reason: "stop me" });
  await api(`bulk/${id}/stop`, {}); // so that the act does not end before the page is there
  const page = await open(t, `bulk/${id}`);
  const { matched } = await api(`bulk/${id}`);
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Resume" }).waitFor();
  const stopped = await api(`bulk/${id}`);
  assert.equal(stopped.state, "stopped");
  assert.ok(stopped.matched >= matched && stopped.matched < 900, `${matched}, then ${stopped.matched}`);
  await look(page, "bulk-stopped");
  await page.getByRole("button", { name: "Resume" }).click();
  assert.equal((await ended(id)).done, 900);
  await page.locator(".title .state.good").waitFor();
});

test("without bulk acts the page says how to begin", async (t) => {
  const page = await open(t, "bulk", { base: empty });
  await page.getByText("There are no bulk acts").waitFor();
  await look(page, "bulk-empty");
  const missing = await open(t, "bulk");
  missing.expectedErrors.push(/404/);
  await missing.goto(missing.url().replace(/bulk$/, "bulk/bulk_1"));
  await missing.getByText("there is no bulk act bulk_1").waitFor();
});
