// The log of a run in the panel of its step, and the timeline of hosts.
import assert from "node:assert/strict";
import { createConnection, createServer } from "node:net";
import { counted, eventually, full, loaded, narrow, open, test, violations, wide } from "./browser.mjs";
import { caller, command, host } from "./grid.mjs";

const call = caller(full);

/** A job of one command, which has been claimed by a host of its own. */
async function started(key, more = {}) {
  await call("POST", "jobs", command(key, more));
  const on = await host(call, key, { labels: { job: key } });
  const [run] = await on.claim(1);
  return { on, run };
}

/** The lines that the page has, with those that are not near the window. */
const lines = (page) => page.evaluate(() => [...document.querySelectorAll(".log-view .log-block")].flatMap((block) => block.textContent.replace(/\n$/, "").split("\n")));
const view = (page) => page.locator(".log-view");
/** Whether the end of the log is in view. */
const atEnd = (page) => view(page).evaluate((e) => e.scrollHeight - e.scrollTop - e.clientHeight < 30);
const numbered = (from, to) => Array.from({ length: to - from }, (_, i) => `line ${from + i}`);

test("a log is followed while its run writes, and ends with it", async (t) => {
  const { on, run } = await started("follow");
  const page = await open(t, "jobs/follow?step=render");
  await page.getByText("The run has written nothing here yet.").waitFor();
  const out = on.log(run), err = on.log(run, "stderr");
  await out("line 0\nline 1\nline");
  await eventually(async () => assert.deepEqual(await lines(page), ["line 0", "line 1", "line"]));
  await out(" 2\n");
  await eventually(async () => assert.deepEqual(await lines(page), numbered(0, 3)));
  await err("careful\n");
  await page.getByRole("button", { name: /stderr 8 bytes/ }).click();
  await eventually(async () => assert.deepEqual(await lines(page), ["careful"]));
  assert.match(page.url(), /stream=stderr/);
  await page.getByRole("button", { name: /stdout/ }).click();
  await out(numbered(3, 200).join("\n") + "\n");
  await eventually(async () => assert.deepEqual(await lines(page), numbered(0, 200)));
  await eventually(async () => assert.ok(await atEnd(page)));
  // Who scrolls up reads on undisturbed.
  await view(page).evaluate((e) => e.scrollTo(0, 300));
  await page.getByText("not followed").waitFor();
  await out("line 200\n");
  await eventually(async () => assert.equal((await lines(page)).length, 201));
  assert.equal(await view(page).evaluate((e) => e.scrollTop), 300);
  await page.getByRole("button", { name: "Follow the end" }).click();
  await eventually(async () => assert.ok(await atEnd(page)));
  // The end of a log may come after the report.
  await on.report(run, "done", { output: { exit: 0 } });
  await page.getByText("the run has ended").waitFor();
  await out("the last words\n", { last: true });
  await eventually(async () => assert.equal((await lines(page)).at(-1), "the last words"));
});

/** A way to the console that can be cut, as by a node that is restarted: connections break, and none is accepted for a while. */
async function way() {
  const { hostname, port } = new URL(full);
  const sockets = new Set();
  let server, at = 0;
  const begin = async () => {
    server = createServer((socket) => {
      const there = createConnection(Number(port), hostname);
      for (const one of [socket, there]) {
        sockets.add(one);
        one.on("error", () => {});
        one.on("close", () => sockets.delete(one) && (one === socket ? there : socket).destroy());
      }
      socket.pipe(there).pipe(socket);
    });
    await new Promise((listens) => server.listen(at, "127.0.0.1", listens));
    at = server.address().port;
  };
  const end = async () => {
    const closed = new Promise((done) => server.close(done));
    for (const one of sockets) one.destroy();
    await closed;
  };
  await begin();
  return { url: full.replace(`:${port}/`, `:${at}/`), begin, end };
}

test("a log goes on without a gap and without doubling after the connection has broken, and after a restart", async (t) => {
  const { on, run } = await started("broken");
  const cut = await way();
  t.after(cut.end);
  const page = await open(t, "jobs/broken?step=render", { base: cut.url });
  page.expectedErrors.push(/ERR_/);
  const out = on.log(run);
  let n = 0;
  const write = async (count) => {
    for (const end = n + count; n < end; n++) await out(`line ${n}\n`);
  };
  for (let round = 0; round < 3; round++) {
    await write(20);
    await eventually(async () => assert.deepEqual(await lines(page), numbered(0, n)));
    const writing = write(30); // while it is cut
    await cut.end();
    await writing;
    await page.getByText("No response since").waitFor();
    await write(10);
    await cut.begin();
    await eventually(async () => assert.deepEqual(await lines(page), numbered(0, n)));
  }
  await context(page, true);
  await write(10);
  await page.getByText("No response since").waitFor();
  await context(page, false);
  await eventually(async () => assert.deepEqual(await lines(page), numbered(0, n)));
});

const context = (page, offline) => page.context().setOffline(offline);

test("of 100,000 lines the end is first, earlier lines are loaded on request, and the page keeps a bounded part", async (t) => {
  const { on, run } = await started("long");
  const out = on.log(run);
  const width = "line 100000".length;
  const all = Array.from({ length: 100_000 }, (_, i) => `line ${i}`.padEnd(width) + " of a long log, with some more text in it");
  const size = await out(all.join("\n") + "\n");
  const page = await open(t, "jobs/long?step=render&log=wide");
  const shown = async () => {
    const have = await lines(page);
    const first = all.indexOf(have[0]);
    assert.deepEqual(have, all.slice(first, first + have.length), "lines follow each other");
    return { first, end: first + have.length };
  };
  await eventually(async () => assert.equal((await shown()).end, 100_000));
  const { first } = await shown();
  assert.ok(first > 90_000, `the end is loaded first: from line ${first} on`);
  await eventually(async () => assert.ok(await atEnd(page)));
  await page.getByText(`of ${(size / 2 ** 20).toFixed(1)} MiB`).waitFor();
  const more = page.getByRole("button", { name: "Load earlier lines" });
  for (let before = first; ; before = (await shown()).first) {
    // The line at the top of the view stays there.
    await view(page).evaluate((e) => e.scrollTo(0, 0));
    await more.click();
    await eventually(async () => assert.ok((await shown()).first < before));
    if ((await shown()).end < 100_000) break; // the page has as many lines as it keeps
    assert.ok(await view(page).evaluate((e) => e.scrollTop > 1000), "what was in view has not moved");
  }
  const kept = await shown();
  assert.ok(kept.end - kept.first <= 20_001 && kept.end - kept.first > 15_000, `${kept.end - kept.first} lines are kept`);
  assert.ok((await page.locator(".log-view *").count()) < 500, "lines are not elements");
  await page.getByText("after this are not shown").waitFor();
  await out("one more\n");
  await page.waitForTimeout(1500);
  assert.ok((await shown()).end < 100_000, "new lines do not push out what is read");
  await page.getByRole("button", { name: "Follow the end" }).click();
  await eventually(async () => assert.equal((await lines(page)).at(-1), "one more"));
  await eventually(async () => assert.ok(await atEnd(page)));
  // A run that writes more than the page keeps.
  const rest = Array.from({ length: 30_000 }, (_, i) => `more ${i}`.padEnd(60));
  for (let i = 0; i < rest.length; i += 5000) {
    await out(rest.slice(i, i + 5000).join("\n") + "\n");
    await page.waitForTimeout(300);
  }
  await eventually(async () => assert.equal((await lines(page)).at(-1), rest.at(-1)));
  assert.ok((await lines(page)).length <= 20_201);
  // After the end of the run nothing is read any more, until the user goes elsewhere.
  await on.report(run, "done", { output: { exit: 0 } });
  await page.getByText("the run has ended").waitFor();
  await page.waitForTimeout(8000);
  await view(page).evaluate((e) => e.scrollTo(0, 0));
  await more.click();
  await page.getByText("after this are not shown").waitFor();
  await page.getByRole("button", { name: "To the end" }).click();
  await eventually(async () => assert.equal((await lines(page)).at(-1), rest.at(-1)));
});

test("bytes that are not stored are marked, and what precedes them can be loaded", async (t) => {
  const { on, run } = await started("holes");
  const out = on.log(run);
  await out("the first line\n");
  await out("after the hole\n", { skip: 300 << 20 });
  const page = await open(t, "jobs/holes?step=render");
  await eventually(async () => assert.deepEqual(await lines(page), ["… at least 255 KiB left out …", "after the hole"]));
  await page.getByRole("button", { name: "Load earlier lines" }).click();
  await eventually(async () => assert.deepEqual(await lines(page), ["the first line", "… 300 MiB left out …", "after the hole"]));
});

test("a log is text, whatever it contains, and colours of terminals are shown", async (t) => {
  const { on, run } = await started("hostile-log");
  const html = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>";
  await on.log(run)(`${html}\n\x1b[31mred ${html}\x1b[0m\nplain \x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 \u202eabc\n10 %\r100 %\r\n${"x".repeat(40_000)}\n`);
  for (const size of [narrow, wide]) {
    const page = await open(t, "jobs/hostile-log?step=render", { size });
    await page.locator(".log-view .ansi-red", { hasText: `red ${html}` }).waitFor();
    const shown = await lines(page);
    assert.equal(shown[0], html);
    assert.equal(shown[2], "plain link \ufffdabc");
    assert.equal(shown[3], "100 %");
    assert.equal(shown.slice(4).join(""), "x".repeat(40_000));
    assert.equal(await page.locator("main img, main script, .log-view a").count(), 0);
    assert.doesNotMatch(await page.title(), /^broken/);
    await page.getByRole("button", { name: "Wrap long lines" }).click();
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    await page.context().close();
  }
  const page = await open(t, "jobs/hostile-log?step=render");
  await page.locator(".log-view .ansi-red").waitFor();
  await violations(page, "a log", { at: [narrow, wide] });
  await page.getByRole("button", { name: "As wide as the page" }).click();
  await page.waitForURL(/log=wide/);
  await violations(page, "a log as wide as the page", { at: [narrow, wide] });
});

test("each run of a step has its log, and it can be saved", async (t) => {
  const { on, run } = await started("again", { retry: { attempts: 3, backoff: "1ms" } });
  await on.log(run, "stderr")("the first attempt\n", { last: true });
  await on.report(run, "failed", { error: { code: "exit_1", message: "exit status 1" } });
  const [second] = await on.claim(1);
  await on.log(second)("the second attempt\n", { last: true });
  const page = await open(t, "jobs/again?step=render");
  await eventually(async () => assert.deepEqual(await lines(page), ["the second attempt"]));
  const choose = page.getByLabel("Run", { exact: true });
  assert.deepEqual(await choose.locator("option").allTextContents(), ["run 2, the latest", "run 1"]);
  await choose.selectOption("1");
  await eventually(async () => assert.deepEqual(await lines(page), ["the first attempt"])); // stderr, because stdout is empty
  assert.match(page.url(), /run=1/);
  await page.reload();
  await loaded(page);
  await eventually(async () => assert.deepEqual(await lines(page), ["the first attempt"]));
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save the log" }).click();
  const download = await saved;
  assert.equal(download.suggestedFilename(), "again-render-1-stderr.log");
  let text = "";
  for await (const part of await download.createReadStream()) text += part;
  assert.equal(text, "the first attempt\n");
  await on.report(second, "done", { output: { exit: 0 } });
  // A step that writes no log has no part for it.
  await page.goto(full + "jobs/order-1004?step=charge");
  await page.getByRole("complementary", { name: "Step charge" }).getByRole("heading", { name: "Runs" }).waitFor();
  await page.waitForTimeout(500);
  await counted(page.locator(".log"), 0);
});

test("the timeline of 1,000 steps on ten hosts has the rows of each host, and details of each run", async (t) => {
  const hosts = 10, slots = 5, count = 1000;
  const steps = {};
  for (let i = 0; i < count; i++) steps[`tile_${String(i).padStart(3, "0")}`] = { agent: "exec", with: { command: ["tile", String(i)] }, requires: { slots: 1, labels: { farm: "x" } }, undo: { with: { command: ["rm", String(i)] } } };
  await call("POST", "jobs", { type: "tiles", key: "tiles", steps });
  const farm = [];
  for (let i = 1; i <= hosts; i++) farm.push(await host(call, `farm-${i}`, { labels: { farm: "x" }, capacity: { slots } }));
  const work = async (rounds, fail) => {
    for (let round = 0; round < rounds; round++) {
      await Promise.all(
        farm.map(async (on) => {
          const runs = await on.claim(slots, { slots });
          await call("POST", "logs", { holder: on.holder, chunks: runs.flatMap(({ job, step, run }) => ({ job, step, run, stream: "stdout", offset: 0, data: Buffer.from(`${step} on ${on.name}\n`).toString("base64"), last: true })) });
          await call("POST", "reports", { holder: on.holder, reports: runs.map(({ job, step, run }) => (fail?.(step) ? { job, step, run, outcome: "rejected", error: { code: "exit_2", message: "no memory" } } : { job, step, run, outcome: "done", output: { exit: 0 } })) });
        }),
      );
    }
  };
  await work(count / hosts / slots);
  await eventually(async () => assert.equal((await call("GET", "jobs/tiles?steps=none")).phase, "settled"));
  await call("POST", "jobs/tiles/undo", {});
  await work(4);
  const begin = Date.now();
  const page = await open(t, "jobs/tiles?tab=timeline&by=host");
  await page.locator("g.timeline-row g.span.done").first().waitFor();
  t.diagnostic(`visible after ${Date.now() - begin} ms`);
  const named = await page.locator("g.timeline-row text.name").evaluateAll((all) => all.map((one) => one.lastChild.textContent).filter(Boolean));
  assert.deepEqual(named, farm.map((on) => on.name), "hosts in the order of their numbers");
  const rows = await page.locator("g.timeline-row").count();
  assert.ok(rows >= hosts && rows <= hosts * slots, `${rows} rows`);
  await page.locator("g.span.undo.done").first().waitFor();
  const colour = (what) => page.locator(what).first().evaluate((e) => getComputedStyle(e).stroke);
  assert.notEqual(await colour("g.span.done:not(.undo) rect"), await colour("g.span.undo.done rect"), "undo runs have another colour");
  // Keys go from run to run, and Enter opens the step with the log of the run.
  const detail = page.locator(".timeline-detail");
  await page.locator(".timeline").focus();
  await page.keyboard.press("ArrowDown");
  await detail.getByText(/^tile_\d+, run 1, do, turn 1: done · .* · by host\/farm-1\/inc-farm-1$/).waitFor();
  const step = /^tile_\d+/.exec(await detail.innerText())[0];
  await counted(page.locator("g.span.lit"), 1);
  await page.keyboard.press("Enter");
  const panel = page.getByRole("complementary", { name: `Step ${step}` });
  await panel.waitFor();
  await eventually(async () => assert.deepEqual(await lines(page), [`${step} on farm-1`]));
  assert.match(page.url(), /run=1/);
  await page.keyboard.press("Escape");
  await panel.waitFor({ state: "hidden" });
  // So does the pointer.
  const undone = page.locator("g.span.undo.done rect").first();
  await undone.hover();
  await detail.getByText(/, undo, turn 2: done/).waitFor();
  await undone.click();
  await page.waitForURL(/run=2/);
  await violations(page, "timeline of hosts", { at: [narrow, wide] });
  // The rows of steps are drawn near the window only.
  await page.getByRole("button", { name: "Steps", exact: true }).click();
  await page.locator("g.timeline-row[data-step=tile_000]").waitFor();
  assert.ok((await page.locator("g.timeline-row").count()) < 150);
  const longest = await page.evaluate(async () => {
    let longest = 0, last = performance.now();
    for (let i = 0; i < 60; i++) {
      window.scrollBy(0, 400);
      await new Promise((next) => requestAnimationFrame(next));
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }
    return longest;
  });
  t.diagnostic(`longest frame while scrolling: ${Math.round(longest)} ms`);
});
