import assert from "node:assert/strict";
import { test } from "node:test";
import { absolute, minute, observeServerTime, relative, serverNow, span, stamp, zoneName } from "../src/time.ts";

test("spans have one or two units", () => {
  const s = 1000, min = 60 * s, h = 60 * min, d = 24 * h;
  for (const [ms, text] of [[0, "0 s"], [7, "7 ms"], [999, "999 ms"], [1000, "1 s"], [59_999, "59 s"], [min, "1 min"], [9 * min + 30 * s, "9 min"], [h + 10 * min, "1 h 10 min"], [2 * h, "2 h"], [11 * h + 20 * min, "11 h"], [d + 3 * h, "1 d 3 h"], [40 * d + h, "40 d"], [-5, "0 s"]] as const) {
    assert.equal(span(ms), text);
  }
});

test("times are relative to the server's clock", () => {
  const now = Date.parse("2026-11-27T14:00:00Z");
  for (const [at, text] of [["2026-11-27T14:00:00.5Z", "now"], ["2026-11-27T13:59:51Z", "9 s ago"], ["2026-11-27T13:00:00Z", "1 h ago"], ["2026-11-27T14:02:00Z", "in 2 min"], ["2026-11-20T14:00:00Z", "7 d ago"], ["no time", "no time"]] as const) {
    assert.equal(relative(at, now), text);
  }
});

test("a wrong clock of this computer is corrected, and a small difference is not", () => {
  const here = Date.parse("2026-11-27T14:00:00Z");
  observeServerTime("Fri, 27 Nov 2026 15:00:00 GMT", here);
  assert.equal(serverNow(here), here + 3_600_500);
  observeServerTime("Fri, 27 Nov 2026 15:00:01 GMT", here);
  assert.equal(serverNow(here), here + 3_600_500);
  observeServerTime(null, here);
  observeServerTime("yesterday", here);
  assert.equal(serverNow(here), here + 3_600_500);
  observeServerTime("Fri, 27 Nov 2026 14:00:01 GMT", here);
  assert.equal(serverNow(here), here);
});

test("the absolute time names its zone", () => {
  assert.match(absolute("2026-11-27T13:20:05.25Z"), /^2026-11-2[78] \d\d:\d\d:05\.250 UTC/);
  assert.equal(absolute("no time"), "no time");
});

test("a time to the minute names its zone", () => {
  const at = new Date("2026-07-01T10:30:00Z");
  assert.equal(stamp(at, true), "2026-07-01 10:30 UTC");
  assert.equal(minute(at, true), "2026-07-01T10:30");
  const before = process.env.TZ;
  for (const [zone, text] of [["Europe/Paris", "2026-07-01 12:30 CEST"], ["America/New_York", "2026-07-01 06:30 EDT"], ["Asia/Kolkata", "2026-07-01 16:00 GMT+5:30"]] as const) {
    process.env.TZ = zone;
    assert.equal(stamp(at, false), text);
    assert.notEqual(zoneName(at, false), "UTC");
  }
  if (before === undefined) delete process.env.TZ;
  else process.env.TZ = before;
});
