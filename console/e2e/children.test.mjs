// Steps with child jobs: how far they are, the lists of them, and the way from a child to its parent.
import assert from "node:assert/strict";
import { api, eventually, open, test } from "./browser.mjs";

/** A job with a child for each of the names, whose step is skipped, or fails if the name is bad. */
const album = (key, names, onFailure, more = {}) => ({
  type: "album", key,
  steps: {
    list: { agent: "sleep", with: { for: "1ms" } },
    resize: {
      after: ["list"], forEach: { in: names }, as: "name", ...more,
      job: { input: { name: "${name}" }, key: key + "-${index}", definition: { type: "album.resize", onFailure, steps: { first: { agent: "sleep", with: { for: "1ms" } }, one: { agent: "sleep", after: ["first"], when: "input.name == 'bad' ? steps.first.output.none : false", with: { for: "1ms" } } } } },
    },
  },
});

test("the page of a job shows how far the children of its step are", async (t) => {
  await api("jobs", album("album-parked", ["a", "b", "bad"], "park"));
  await eventually(async () => assert.equal((await api("jobs/album-parked-2")).phase, "parked"));
  const page = await open(t, "jobs/album-parked?step=resize");
  const panel = page.getByRole("complementary", { name: "Step resize" });
  await panel.getByRole("img", { name: "2 of 3 child jobs done, 1 parked" }).waitFor();
  assert.equal(await panel.locator(".children-bar rect").count(), 2);
  await panel.getByText("3 jobs, 2 done, 1 parked").waitFor();
  assert.equal(await panel.getByText("agent", { exact: true }).count(), 0);
  await panel.getByRole("link", { name: "1 parked" }).click();
  await page.getByRole("row", { name: /album-parked-2/ }).waitFor();
  assert.equal(await page.getByRole("row", { name: /album-parked-/ }).count(), 1);
  await page.locator(".chip", { hasText: "Children of: " }).waitFor();

  await page.getByRole("link", { name: "album-parked-2" }).click();
  await page.getByText("child of step resize, with its other children").waitFor();
  await page.getByRole("link", { name: "its other children" }).click();
  await eventually(async () => assert.equal(await page.getByRole("row", { name: /album-parked-/ }).count(), 3));
  await page.getByRole("link", { name: "album-parked-0" }).click();
  await page.getByRole("link", { name: "step resize" }).click();
  await panel.getByRole("link", { name: "a parked child" }).waitFor();

  // The page follows the job.
  const settled = await api("jobs/album-parked-2/steps/one/settle", { as: "done", reason: "by hand" });
  assert.ok(settled.id);
  await panel.getByRole("img", { name: "3 of 3 child jobs done" }).waitFor();
  await page.locator("h1 + .state.good").waitFor();
});

test("children that have failed are counted, and lead to a list of them", async (t) => {
  await api("jobs", album("album-failed", ["a", "bad", "b"], "undo", { tolerate: { failed: 1 } }));
  await eventually(async () => assert.equal((await api("jobs/album-failed")).phase, "settled"));
  const page = await open(t, "jobs/album-failed?step=resize");
  const panel = page.getByRole("complementary", { name: "Step resize" });
  await panel.getByRole("img", { name: "2 of 3 child jobs done, 1 failed" }).waitFor();
  await panel.getByRole("link", { name: "the first that failed" }).waitFor();
  await panel.getByRole("link", { name: "1 failed, undone" }).click();
  await page.getByRole("row", { name: /album-failed-1/ }).waitFor();
  assert.equal(await page.getByRole("row", { name: /album-failed-/ }).count(), 1);
});
