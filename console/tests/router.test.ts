import assert from "node:assert/strict";
import { test } from "node:test";
import { link, placeOf, queryText, type Page } from "../src/router.ts";

const at = (path: string, base = "/perdure/ui/") => placeOf(new URL(path, "http://127.0.0.1:7420"), base);

test("a path is a page", () => {
  const pages: [string, Page, string][] = [
    ["/perdure/ui/", "overview", ""],
    ["/perdure/ui/jobs", "jobs", ""],
    ["/perdure/ui/jobs/", "jobs", ""],
    ["/perdure/ui/jobs/order-1042", "job", "order-1042"],
    ["/perdure/ui/jobs/a%20b%3Fc", "job", "a b?c"],
    ["/perdure/ui/alerts", "alerts", ""],
    ["/perdure/ui/webhooks", "webhooks", ""],
    ["/perdure/ui/webhooks/shop", "webhooks", "shop"],
    ["/perdure/ui/webhooks/shop/deliveries", "unknown", ""],
    ["/perdure/ui/submit", "submit", ""],
    ["/perdure/ui/nothing", "unknown", ""],
    ["/perdure/ui/jobs/a/b", "unknown", ""],
    ["/perdure/ui/alerts/7", "unknown", ""],
    ["/perdure/ui/jobs/%zz", "unknown", ""],
    ["/perdure/ui/unknown", "unknown", ""],
    ["/perdure/ui/job", "unknown", ""],
  ];
  for (const [path, page, job] of pages) {
    const place = at(path);
    assert.deepEqual([place.page, place.job], [page, job], path);
  }
});

test("the query is the state of the page", () => {
  const place = at("/perdure/ui/jobs?type=order&label=a%3Db&label=c%3Dd");
  assert.equal(place.query.get("type"), "order");
  assert.deepEqual(place.query.getAll("label"), ["a=b", "c=d"]);
});

test("links lead to the place that they name, whatever the key is", () => {
  for (const job of ["order-1042", "a b", "50%", "<img src=x>", "שלום", "a?b#c", "x&y=z"]) {
    assert.equal(placeOf(new URL(link.job(job, { step: "charge" }), "http://h/ui/"), "/ui/").job, job);
  }
  assert.equal(placeOf(new URL(link.overview(), "http://h/perdure/ui/"), "/perdure/ui/").page, "overview");
  assert.equal(link.jobs({ label: ["a=b", "c=d"], type: "", phase: undefined }), "jobs?label=a%3Db&label=c%3Dd");
  assert.equal(link.webhooks("shop", { state: "dead" }), "webhooks/shop?state=dead");
  assert.equal(link.webhooks(), "webhooks");
  assert.equal(queryText({}), "");
});
