// The pages of schedules: the list, one schedule with its next times and its history, and the acts on it.
import assert from "node:assert/strict";
import { before } from "node:test";
import { empty, eventually, full, narrow, open, test, titled, violations, wide } from "./browser.mjs";
import { caller } from "./grid.mjs";

const call = caller(full);
const html = "<img src=x onerror=document.title='broken'>";
const job = { definition: { type: "tick", steps: { s: { agent: "sleep", with: { for: "1ms" } } } } };

before(async () => {
  await call("PUT", "schedules/often", { every: "1s", overlap: "allow", job });
  await call("PUT", "schedules/nightly", { cron: ["30 2 * * *", "@weekly"], timezone: "Europe/Warsaw", job });
  await call("POST", "schedules/nightly/pause", { reason: html });
  await call("PUT", "schedules/once", { at: ["2020-01-01T00:00:00Z"], job });
});

test("a store without schedules says how to begin", async (t) => {
  const page = await open(t, "schedules", { base: empty });
  await page.getByRole("heading", { name: "There are no schedules" }).waitFor();
  await page.getByText("perdure schedules apply nightly.yaml").waitFor();
  await violations(page, "no schedules", { at: [narrow, wide] });
});

test("the list has the state and the times of each schedule", async (t) => {
  const page = await open(t, "schedules");
  await titled(page, "Schedules · Perdure");
  const row = (name) => page.locator("tbody tr", { hasText: name }).first();
  await row("often").locator(".state.good", { hasText: "active" }).waitFor();
  await row("often").getByText("every 1s").first().waitFor();
  await row("nightly").locator(".state.warn", { hasText: "paused" }).waitFor();
  await row("nightly").getByText("30 2 * * *; @weekly Europe/Warsaw").first().waitFor();
  await row("once").locator(".state", { hasText: "ended" }).waitFor();
  await violations(page, "schedules");
});

test("a schedule has its next times and its history, and is resumed and triggered", async (t) => {
  const page = await open(t, "schedules/nightly");
  await page.getByText("paused by").waitFor();
  await page.getByText(html).first().waitFor();
  assert.equal(await page.getByRole("list", { name: "Next times" }).locator("li").count(), 5);
  await page.getByRole("button", { name: "Start a job now" }).click();
  await page.getByRole("status").getByText("was started").waitFor();
  await page.locator("tbody tr", { hasText: "trigger" }).locator(".state.good", { hasText: "done" }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".state.good", { hasText: "active" }).first().waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator(".state.warn", { hasText: "paused" }).first().waitFor();
  await titled(page, "nightly · Perdure");
  await violations(page, "a schedule", { at: [narrow, wide] });
});

test("the history grows while the page is open", async (t) => {
  const page = await open(t, "schedules/often");
  const rows = page.locator("tbody tr");
  await rows.first().waitFor();
  const first = await rows.first().innerText();
  await eventually(async () => assert.notEqual(await rows.first().innerText(), first));
});
