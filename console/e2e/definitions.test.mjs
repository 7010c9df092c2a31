// The pages of stored definitions: the list, one with its versions and their differences, and the acts on it.
import assert from "node:assert/strict";
import { before } from "node:test";
import { empty, full, narrow, open, test, titled, violations, wide } from "./browser.mjs";
import { caller } from "./grid.mjs";

const call = caller(full);
const html = "<img src=x onerror=document.title='broken'>";
const definition = (seconds, more = {}) => ({
  type: "parcel", input: { to: "ada" },
  steps: { pack: { agent: "sleep", with: { for: seconds } }, ...more },
});

before(async () => {
  await call("PUT", "definitions/parcel", definition("1ms"));
  await call("PUT", "definitions/parcel", definition("2ms", { note: { agent: "sleep", after: ["pack"], with: { for: "1ms" } } }));
  await call("PUT", "definitions/hostile", { ...definition("1ms"), input: { to: html } });
});

test("a store without definitions says how to begin", async (t) => {
  const page = await open(t, "definitions", { base: empty });
  await page.getByRole("heading", { name: "There are no stored definitions" }).waitFor();
  await page.getByText("perdure definitions apply order.yaml").waitFor();
  await violations(page, "no definitions", { at: [narrow, wide] });
});

test("the list has the current and the latest version of each definition", async (t) => {
  const page = await open(t, "definitions");
  await titled(page, "Definitions · Perdure");
  const row = page.locator("tbody tr", { hasText: "parcel" });
  assert.deepEqual(await row.locator("td.num").allInnerTexts(), ["1", "2"]);
  await violations(page, "definitions");
  await row.getByRole("link", { name: "parcel" }).click();
  await titled(page, "parcel · Perdure");
});

test("versions are shown, compared, and promoted", async (t) => {
  const page = await open(t, "definitions/parcel");
  const versions = page.getByRole("table", { name: "Versions" });
  await versions.locator("tbody tr").nth(1).waitFor();
  const text = page.getByRole("region", { name: "Definition" });
  await text.getByText("for: 1ms").waitFor();
  await versions.getByRole("link", { name: "2" }).click();
  await text.getByText("for: 2ms").waitFor();
  await versions.getByRole("button", { name: "Compare with 2" }).click();
  const differences = page.getByRole("region", { name: "Differences" });
  await differences.getByText("/steps/pack/with/for").waitFor();
  assert.deepEqual(await differences.locator("tbody tr").first().locator("td").allInnerTexts().then((cells) => cells.map((c) => c.trim()).slice(0, 1)), ["/steps/note"]);
  assert.ok(page.url().includes("version=2&against=1"), page.url());
  await violations(page, "a definition", { at: [narrow, wide] });
  await page.getByRole("button", { name: "Promote version 2" }).click();
  await page.getByRole("status").getByText("parcel means version 2 from now on").waitFor();
  await versions.locator("tbody tr", { hasText: "current" }).getByRole("link", { name: "2" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Promote" }).count(), 0);
  assert.equal((await call("GET", "definitions/parcel")).current, 2);
});

test("a job of a version is submitted with an input", async (t) => {
  const page = await open(t, "definitions/parcel?version=1");
  page.expectedErrors.push(/400/); // the input that is no JSON
  await page.getByRole("button", { name: "Submit a job" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("perdure submit --definition parcel@1").waitFor();
  await dialog.getByLabel("Input, as JSON").fill("{");
  await dialog.getByRole("button", { name: "Submit" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByLabel("Input, as JSON").fill('{"to": "grace", "number": 12345678901234567890}');
  await violations(page, "a job of a definition");
  await dialog.getByRole("button", { name: "Submit" }).click();
  await page.waitForURL(/jobs\/job_/);
  const job = await call("GET", `jobs/${page.url().split("/").pop().split("?")[0]}`);
  assert.deepEqual([job.madeFrom, job.input.to], ["parcel@1", "grace"]);
});

test("text of users is only text", async (t) => {
  const page = await open(t, "definitions/hostile");
  await page.getByRole("region", { name: "Definition" }).getByText("onerror").waitFor();
  await titled(page, "hostile · Perdure");
});

test("a definition that does not exist is said to be missing", async (t) => {
  const page = await open(t, "definitions/none");
  page.expectedErrors.push(/404/);
  await page.getByRole("alert").getByText("there is no definition none").waitFor();
});
