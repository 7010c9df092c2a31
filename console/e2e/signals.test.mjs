// Steps that wait for a signal or an approval: what the page of the job says, and how an approval is decided there.
import assert from "node:assert/strict";
import { api, eventually, full, open, test } from "./browser.mjs";

const ask = (key, more = {}) => ({ type: "ask", key, onFailure: "undo", steps: { ok: { agent: "approval", with: { message: "Refund 412.00?", group: "managers", ...more } } } });

test("an approval is given on the page of its job", async (t) => {
  await api("jobs", ask("ask-approve", { quorum: 2 }));
  const page = await open(t, "jobs/ask-approve");
  await page.locator(".note p", { hasText: "ok waits for approval by 2 members of managers (0 given): Refund 412.00? Approve or reject it." }).waitFor();
  await page.locator(".job-head").getByRole("button", { name: "Approve ok …" }).click();
  const dialog = page.getByRole("dialog", { name: "Approve ok of ask-approve" });
  await dialog.getByLabel("Reason (optional)").fill("checked the order");
  await dialog.getByLabel("Data for the step's output, as JSON (optional)").fill('{"limit": 500}');
  await dialog.getByText(/perdure approve .* --data '\{"limit": 500\}'/).waitFor();
  await dialog.getByRole("button", { name: "Approve", exact: true }).click();
  await page.locator(".note p", { hasText: "(1 given: " }).waitFor();
  const second = await fetch(new URL("../v1/jobs/ask-approve/steps/ok/approve", full), { method: "POST", headers: { "Content-Type": "application/json", "Perdure-Author": "ben" }, body: "{}" });
  assert.equal(second.status, 200);
  await page.locator("h1 + .state.good").waitFor();
  await page.goto(page.url().replace(/\?.*|$/, "?tab=history"));
  await page.getByText("approved").first().waitFor();
});

test("an approval is rejected on the page of its job", async (t) => {
  await api("jobs", ask("ask-reject"));
  const page = await open(t, "jobs/ask-reject?step=ok");
  const panel = page.getByRole("complementary", { name: "Step ok" });
  await panel.getByRole("button", { name: "Reject …" }).click();
  const dialog = page.getByRole("dialog", { name: "Reject ok of ask-reject" });
  await dialog.getByLabel("Reason (optional)").fill("paid back in March");
  await dialog.getByText("perdure reject").waitFor();
  await dialog.getByRole("button", { name: "Reject", exact: true }).click();
  await eventually(async () => assert.equal((await api("jobs/ask-reject")).current, "undone"));
  await panel.getByText("paid back in March").first().waitFor();
});

test("a step says which signal it waits for, and goes on with it", async (t) => {
  await api("jobs", { type: "wait", key: "wait-signal", steps: { paid: { agent: "signal", with: { name: "payment.completed", key: "p-7" }, completeWithin: "2h" } } });
  const page = await open(t, "jobs/wait-signal?step=paid");
  const panel = page.getByRole("complementary", { name: "Step paid" });
  await panel.getByText(/waits for signal payment\.completed with key p-7 for another \d/).first().waitFor();
  await api("signals", { name: "payment.completed", key: "p-7", id: "evt_9", data: { amount: 4200 } });
  await page.locator("h1 + .state.good").waitFor();
  await panel.getByText("evt_9").first().waitFor();
});
