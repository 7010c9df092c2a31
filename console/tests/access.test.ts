import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { rights, type Right } from "../src/rights.ts";

// A call for each right. The test runs in the directory of the console.
const callOf: Record<Right, string> = { read: "listJobs", watch: "getStats", submit: "submitJob", act: "undoJob", access: "listTokens" };

test("the rights are those of docs/access.md", () => {
  const rows = readFileSync("../docs/access.md", "utf8").split("\n").filter((line) => line.startsWith("| `"));
  for (const [right, call] of Object.entries(callOf)) {
    const row = rows.find((line) => line.split("|")[1]!.includes(`\`${call}\``));
    assert.ok(row, call);
    const roles = row.split("|")[2]!.trim();
    assert.equal(rights[right as Right].join(", ") || "admin only", roles, right);
  }
  // All calls of operators, bulk acts and limits among them, have the user roles of acts.
  for (const call of ["startBulk", "stopBulk", "resumeBulk", "putLimit", "deleteLimit", "editStep", "pauseWebhook", "resumeWebhook", "testWebhook", "resendWebhook", "closeAlert"]) {
    assert.match(rows.find((line) => line.includes(`\`${call}\``))!, /\| operator \|$/, call);
  }
  for (const call of ["createWebhook", "putWebhook", "deleteWebhook", "rotateWebhook"]) {
    assert.match(rows.find((line) => line.includes(`\`${call}\``))!, /\| admin only \|$/, call);
  }
});
