// The head of a job's page: the sentence that says what is wrong, the actions, and keys. Also the help, the
// roles of nodes, and the focus.
import assert from "node:assert/strict";
import { api, eventually, narrow, open, test, wide } from "./browser.mjs";

test("a sentence says what is wrong with a job, and what can be done", async (t) => {
  const sentences = {
    "order-1042": "charge is parked: card_declined after 1 failure. Resume it, edit its input, settle it, skip it, or undo the job.",
    "order-1002": /charge has failed: 1 failure; again in [^.]*\. Resume it to try again now\./,
    "order-1004": "mail waits: no process claims runs of the agent mail. Start a process of this agent.",
    "expense-12": "sign waits for approval by a member of finance: Hotel in Lisbon, 412.00. Approve or reject it.",
    "wide-1000": "s_0_0 and 39 more steps wait: no process claims runs of the agent absent.",
  };
  for (const [job, text] of Object.entries(sentences)) {
    const page = await open(t, `jobs/${job}`);
    await page.locator(".note p", { hasText: text }).waitFor();
    await page.context().close();
  }
  for (const job of ["order-1003", "import-7", "order-1001"]) {
    const page = await open(t, `jobs/${job}`);
    assert.equal(await page.locator("main .note").filter({ hasNotText: "undo" }).count(), 0, `${job} needs nobody`);
    await page.context().close();
  }
});

test("a job leads to its trace", async (t) => {
  const page = await open(t, "jobs/order-1042");
  const trace = page.locator(".facts a", { hasText: "4bf92f3577b34da6a3ce929d0e0e4736" });
  assert.equal(await trace.getAttribute("href"), "https://traces.example.com/4bf92f3577b34da6a3ce929d0e0e4736");
});

test("a job that waits for an approval has nothing to resume", async (t) => {
  const page = await open(t, "jobs/expense-12");
  const head = page.locator(".job-head");
  await head.getByRole("button", { name: "Approve sign …" }).click();
  await page.getByRole("dialog", { name: "Approve sign of expense-12" }).waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await head.getByRole("button", { name: "Resume …" }).count(), 0);
});

/** Waits until an element has the focus that fits. */
const focused = (page, text) => page.waitForFunction((text) => document.activeElement.textContent === text, text);

test("the head of a job stays in view, and its menu works with the keyboard", async (t) => {
  for (const size of [narrow, wide]) {
    const page = await open(t, "jobs/wide-1000?tab=steps", { size });
    await page.locator("tbody tr").nth(20).waitFor();
    await page.evaluate(() => scrollTo(0, 3000));
    await page.waitForFunction(() => scrollY > 2000);
    const { y, height } = await page.locator(".job-head").boundingBox();
    assert.ok(y >= 0 && y + height < 160, `the head is at ${y}`);
    await page.keyboard.press("a");
    await focused(page, "Undo …");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowDown");
    await focused(page, "Give up …");
    await page.keyboard.press("ArrowUp");
    await focused(page, "Download as JSON");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.activeElement.tagName === "SUMMARY");
    await page.getByRole("button", { name: "Give up …" }).waitFor({ state: "hidden" });
  }
});

test("every control that Tab reaches shows the focus, in the order of the page", async (t) => {
  for (const path of ["jobs/order-1042?step=charge", "submit", "limits", "jobs"]) {
    const page = await open(t, path);
    let seen = 0;
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press("Tab");
      const focus = await page.evaluate(() => {
        const e = document.activeElement;
        if (!e || e === document.body) return undefined;
        const last = globalThis.lastFocus;
        const ordered = !last?.isConnected || last === e || (last.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING) > 0;
        globalThis.lastFocus = e;
        const outlined = [e, e.closest(".editor")].some((x) => x && getComputedStyle(x).outlineStyle !== "none" && parseFloat(getComputedStyle(x).outlineWidth) >= 1);
        return { outlined, ordered, what: e.outerHTML.slice(0, 100), editor: e.matches("textarea") };
      });
      if (!focus) break;
      seen++;
      assert.ok(focus.outlined, `${path}: no outline at ${focus.what}`);
      assert.ok(focus.ordered, `${path}: ${focus.what} comes after what follows it`);
      if (focus.editor) await page.keyboard.press("Escape"); // Tab indents
    }
    assert.ok(seen > 12, `${path}: Tab reached ${seen} controls`);
    await page.context().close();
  }
});

test("the list of shortcuts has every key", async (t) => {
  const page = await open(t, "jobs/order-1042");
  await page.keyboard.press("?");
  const dialog = page.getByRole("dialog", { name: "Help" });
  await dialog.waitFor();
  const keys = new Set(await dialog.locator("kbd").allInnerTexts());
  for (const key of ["/", "j", "k", "Enter", "a", "g", "o", "e", "h", "l", "n", "s", "[", "]", "←", "→", "↑", "↓", "f", "+", "-", ".", "Esc", "?"]) assert.ok(keys.has(key), key);
  await page.keyboard.press("f"); // a dialog's keys are its own
  assert.ok(await dialog.isVisible());
});

test("the dialog of an act has the act as a command and for curl, and curl carries it out", async (t) => {
  await api("jobs", { type: "repair", key: "repair-curl", steps: { charge: { agent: "payments", with: { fail: "51 insufficient funds" }, onFailure: ["park"] } } });
  const page = await open(t, "jobs/repair-curl?step=charge");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.locator("g.node.bad[data-step=charge]").waitFor();
  await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: "Settle …" }).click();
  const dialog = page.getByRole("dialog");
  page.expectedErrors.push(/409/); // the open dialog previews the act again
  await dialog.getByLabel("Reason", { exact: true }).fill("it's paid");
  await dialog.getByRole("button", { name: "Copy as curl" }).click();
  const command = await eventually(async () => {
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(text, /^curl -fsS -X POST http:\S+\/steps\/charge\/settle -H 'Content-Type: application\/json' -d '\{"reason": "it'\\''s paid", "as": "done"\}'$/);
    return text;
  });
  const [, url, body] = /POST (\S+) .* -d '(.*)'$/.exec(command);
  const response = await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: body.replaceAll("'\\''", "'") });
  assert.equal(response.status, 200);
});

test("the page of nodes has each role with its leader and epoch", async (t) => {
  const page = await open(t, "nodes");
  for (const role of ["supervisor", "courier"]) {
    const card = page.getByRole("region", { name: `Role ${role}` });
    await card.getByText("test-1").waitFor();
    await card.getByText(/epoch \d+/).waitFor();
    await card.getByText("no standby").waitFor();
  }
});
