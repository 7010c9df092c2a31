// Every page loads under the policy of its headers, shows its data as text, and has no violation that axe finds.
import assert from "node:assert/strict";
import { api, empty, eventually, full, loaded, narrow, open, test, titled, violations as violationsAt, wide } from "./browser.mjs";

const pages = {
  overview: "", jobs: "jobs", "no match": "jobs?type=none&phase=parked", hostile: "jobs?type=hostile", job: "jobs/order-1042", step: "jobs/order-1042?step=charge",
  steps: "jobs/order-1042?tab=steps&step=charge", data: "jobs/order-1042?tab=data", history: "jobs/order-1001?tab=history", timeline: "jobs/order-1001?tab=timeline&step=charge", "running timeline": "jobs/order-1003?tab=timeline", "timeline without runs": "jobs/wide-1000?tab=timeline", definition: "jobs/order-1042?tab=definition",
  undone: "jobs/order-1001", running: "jobs/order-1003?step=ship", approval: "jobs/expense-12", large: "jobs/wide-1000", "large table": "jobs/wide-1000?tab=steps", stack: "jobs/print-2027?stack=page_001", "stack as table": "jobs/print-2027?tab=steps&stack=page_001&state=done", similar: "submit?from=order-1042", "no job": "jobs/none",
  alerts: "alerts", "closed alerts": "alerts?closed=true", agents: "agents", limits: "limits", nodes: "nodes", submit: "submit", unknown: "nothing",
};

const violations = (page, what, at = [narrow, wide]) => violationsAt(page, what, { at });

for (const [name, path] of Object.entries(pages)) {
  test(`page ${name}: axe finds nothing, in light and dark, at 360 and 1400 pixels`, async (t) => {
    const page = await open(t, path, { size: narrow });
    if (name === "no job") page.expectedErrors.push(/404/);
    await violations(page, name);
  });
}

test("pages without data say how to begin", async (t) => {
  const texts = { "": "There are no jobs yet", jobs: "perdure submit", alerts: "There are no open alerts", limits: "There are no limits", webhooks: "There are no receivers", hosts: "There are no hosts", agents: "carrier", nodes: "test-1" };
  const page = await open(t, "", { base: empty });
  for (const [path, text] of Object.entries(texts)) {
    await page.goto(empty + path);
    await loaded(page);
    await page.getByText(text).first().waitFor();
    await violations(page, `no data: ${path}`);
  }
});

test("the help is accessible, and Esc closes it", async (t) => {
  const page = await open(t, "");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await violations(page, "help", [wide]);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
});

test("hostile names and values are shown as text", async (t) => {
  const html = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>";
  const { items } = await api("jobs?type=hostile");
  const page = await open(t, "jobs?type=hostile");
  for (const job of items) {
    for (const path of ["?tab=graph", "?tab=steps", "?tab=data", "?tab=history", "?tab=timeline", "?tab=definition", `?step=${Object.keys((await api(`jobs/${job.id}`)).steps)[0]}`]) {
      await page.goto(full + `jobs/${job.id}${path}`);
      await loaded(page);
      assert.doesNotMatch(await page.title(), /^broken/);
      assert.equal(await page.locator("main img, main script").count(), 0);
      const wider = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
      assert.ok(!wider, `jobs/${job.id}${path} is wider than the window`);
    }
  }
  await page.goto(full + "alerts");
  await page.locator("td.text", { hasText: html }).waitFor();
  await page.goto(full + `jobs/${items.find((job) => job.key.startsWith("<img")).id}?tab=data`);
  await loaded(page);
  await page.getByText(html).first().waitFor();
  await titled(page, `${html.slice(0, 45)} · Perdure`);
});

test("integers above 2^53 and decimals are shown exactly", async (t) => {
  const page = await open(t, "jobs/order-1042?tab=data");
  await eventually(async () => {
    const text = await page.locator("main pre").allInnerTexts();
    assert.match(text[0] ?? "", /"id": 12345678901234567890/);
    assert.match(text[0], /"amount": 10\.50/);
    assert.match(text[1] ?? "", /"units": 12345678901234567890/);
  });
});

test("a page of the console has the headers of security, and nothing of another origin", async (t) => {
  const requests = [];
  const page = await open(t, "");
  page.on("request", (request) => requests.push(request.url()));
  const response = await page.reload();
  await loaded(page);
  assert.match(response.headers()["content-security-policy"], /^default-src 'none'/);
  assert.ok(requests.length > 3);
  for (const url of requests) assert.ok(url.startsWith(new URL("../", full).href) || url.startsWith("data:"), url);
});

test("the dialog of an act is accessible, in light and dark, at 360 and 1400 pixels", async (t) => {
  for (const size of [narrow, wide]) {
    const page = await open(t, "jobs/order-1042?step=charge", { size });
    for (const act of ["Settle", "Resume"]) {
      await page.getByRole("complementary", { name: "Step charge" }).getByRole("button", { name: `${act} …` }).click();
      await page.getByRole("dialog").getByText("The job would be").waitFor();
      await violations(page, act, [size]);
      await page.keyboard.press("Escape");
    }
  }
});
