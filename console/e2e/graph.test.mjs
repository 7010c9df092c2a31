// The graph of a job: stacks of equal steps, the search, hidden steps, the minimap, pictures, and jobs of many steps.
import assert from "node:assert/strict";
import { api, counted, eventually, loaded, narrow, open, test, wide } from "./browser.mjs";

const submit = (definition) => api("jobs", definition);
const query = (page) => Object.fromEntries(new URL(page.url()).searchParams);

/** A job with 60 equal steps, of which one is parked. */
async function fan(key) {
  const steps = { split: { agent: "stock" } };
  const pages = Array.from({ length: 60 }, (_, i) => `page_${String(i).padStart(2, "0")}`);
  for (const name of pages) {
    const fails = name === "page_17";
    steps[name] = { agent: "payments", action: "charge", after: ["split"], with: fails ? { fail: "no toner" } : {}, ...(fails && { onFailure: ["park"] }) };
  }
  steps.bind = { agent: "stock", after: pages };
  await submit({ type: "print", key, steps });
  for (;;) {
    const job = await api(`jobs/${key}`);
    if (job.phase === "parked" && Object.values(job.steps).filter((step) => step.phase === "settled").length === 60) return;
    await new Promise((next) => setTimeout(next, 50));
  }
}

test("equal steps are one stack with its states, which unfolds", async (t) => {
  await fan("fan-1");
  const page = await open(t, "jobs/fan-1");
  const stack = page.locator("g.node[data-stack=page_00]");
  await stack.waitFor();
  assert.match(await stack.textContent(), /60 × charge.*■ 1 {2}✓ 59/);
  assert.match(await stack.getAttribute("class"), /\bbad\b/);
  await counted(page.locator("g.node"), 3);
  await stack.click();
  const panel = page.getByRole("complementary", { name: "60 equal steps" });
  await panel.getByRole("link", { name: "59" }).waitFor();
  assert.equal(query(page).stack, "page_00");
  await panel.getByRole("link", { name: "page_17" }).click();
  await page.getByRole("complementary", { name: "Step page_17" }).waitFor();
  await page.locator("g.node.chosen[data-stack=page_00]").waitFor();
  await page.keyboard.press("Escape");
  await stack.click();
  await panel.getByRole("link", { name: "59" }).click();
  await page.getByText("59 of 60 steps").waitFor();
  await counted(page.locator("tbody tr"), 59);
  await page.goBack();
  await panel.getByRole("button", { name: "Unfold" }).click();
  await page.locator("g.node[data-step=page_17]").waitFor();
  assert.equal(query(page).unfold, "page_00");
  await eventually(async () => {
    const box = await page.locator(".graph").boundingBox();
    const parked = await page.locator("g.node[data-step=page_17]").boundingBox();
    assert.ok(parked.y > box.y && parked.y + parked.height < box.y + box.height, "the graph opens at the parked step");
  });
  await page.getByLabel("fold equal steps").check();
  await stack.waitFor();
});

test("a step is found by its name, and hidden steps leave the graph", async (t) => {
  await fan("fan-2");
  const page = await open(t, "jobs/fan-2?unfold=*");
  await page.getByLabel("Find steps by name or agent").fill("page_4");
  await page.getByText("10 steps: Enter shows the next one").waitFor();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Step page_41" }).waitFor();
  await page.locator("g.node.chosen[data-step=page_41]:not(.faint)").waitFor();
  await page.locator("g.node.faint").first().waitFor();
  await page.getByLabel("hide settled").check();
  await page.waitForFunction(() => document.querySelectorAll("g.node").length === 2);
  assert.deepEqual(await page.locator("g.node").evaluateAll((nodes) => nodes.map((n) => n.dataset.step)), ["page_17", "bind"]);
  await page.reload();
  await loaded(page);
  await counted(page.locator("g.node"), 2); // the URL is the state
});

test("the URL has the part of the graph that is shown", async (t) => {
  const page = await open(t, "jobs/wide-1000");
  await page.locator("g.node").first().waitFor();
  await page.keyboard.press("-");
  await page.waitForFunction(() => new URL(location.href).searchParams.has("view"));
  const transform = () => page.locator(".graph > svg > g").getAttribute("transform");
  const before = (await transform()).match(/[\d.-]+/g).map(Number);
  await page.reload();
  await page.locator("g.node").first().waitFor();
  await eventually(async () => {
    const after = (await transform()).match(/[\d.-]+/g).map(Number);
    for (const [i, value] of before.entries()) assert.ok(Math.abs(value - after[i]) < 2 + Math.abs(value) / 100, `${before} and ${after}`);
  });
});

test("the minimap moves the graph, and is there only if the graph is larger than the window", async (t) => {
  const page = await open(t, "jobs/wide-1000");
  const map = page.locator(".minimap > svg");
  await map.waitFor();
  const colours = () => page.locator(".minimap canvas").evaluate((c) => new Set(new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)).size);
  await eventually(async () => assert.ok((await colours()) > 1, "it is drawn"));
  const first = await page.locator("g.node").first().getAttribute("data-step");
  const box = await map.boundingBox();
  await page.mouse.click(box.x + box.width - 4, box.y + box.height / 2);
  await page.locator("g.node[data-step^=s_24_]").first().waitFor();
  await counted(page.locator(`g.node[data-step="${first}"]`), 0);
  await page.goto(page.url().replace(/wide-1000.*/, "order-1042"));
  await page.locator("g.node").first().waitFor();
  await counted(page.locator(".minimap"), 0);
});

test("a picture is an SVG with its legend, and text in it is only text", async (t) => {
  const name = "<script>&\"'";
  await submit({ type: "print", key: `picture ${name}`, steps: { a: { agent: "absent" }, b: { agent: "absent", after: ["a"] } } });
  const page = await open(t, `jobs/${encodeURIComponent(`picture ${name}`)}`);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const menu = page.getByLabel("Picture of the graph");
  const choose = async (item) => {
    await menu.click();
    await page.getByRole("button", { name: item }).click();
  };
  await choose("Copy as SVG");
  await page.getByText("The SVG is on the clipboard").waitFor();
  const read = await page.evaluate(async () => {
    const text = await navigator.clipboard.readText();
    const svg = new DOMParser().parseFromString(text, "image/svg+xml");
    return { errors: svg.querySelectorAll("parsererror, script").length, text: svg.documentElement.textContent };
  });
  assert.equal(read.errors, 0);
  assert.match(read.text, /picture <script>&"'/);
  assert.match(read.text, /◌ ready/);
  assert.match(read.text, /○ waiting/);
  await choose("Copy as picture");
  await page.getByText("The picture is on the clipboard").waitFor();
  const size = await page.evaluate(async () => {
    const [item] = await navigator.clipboard.read();
    const picture = await createImageBitmap(await item.getType("image/png"));
    return picture.width;
  });
  assert.ok(size > 400, `${size} pixels`);
  for (const kind of ["SVG", "PNG"]) {
    const saved = page.waitForEvent("download");
    await choose(`Save as ${kind}`);
    assert.match((await saved).suggestedFilename(), new RegExp(`^picture_.*-graph\\.${kind.toLowerCase()}$`));
  }
});

test("a change of state recolours a step on the canvas, and the drawing stays", async (t) => {
  const steps = {};
  for (let i = 0; i < 320; i++) steps[`s_${i}`] = { agent: i === 0 ? "approval" : "absent", ...(i > 0 && { after: [`s_${Math.floor((i - 1) / 2)}`] }) };
  await submit({ type: "tree", key: "tree-320", steps });
  const page = await open(t, "jobs/tree-320");
  await page.getByText("live", { exact: true }).or(page.locator(".state.bad", { hasText: "parked" })).first().waitFor();
  await page.keyboard.press("f");
  const canvas = page.locator(".graph > canvas");
  await canvas.waitFor();
  // The colour of the first step: the only one in its column, at the left.
  const colour = () =>
    canvas.evaluate((c) => {
      const { data, width, height } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
      for (let x = 0; x < width; x++) for (let y = 0; y < height; y++) if (data[4 * (y * width + x) + 3] === 255) return [...data.slice(4 * (y * width + x + 2), 4 * (y * width + x + 2) + 3)].join();
      return "";
    });
  await page.waitForFunction(() => [...document.querySelectorAll(".graph > canvas")].some((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v > 0)));
  const before = await colour();
  await api("jobs/tree-320/steps/s_0/settle", { as: "done", reason: "approved" });
  await page.waitForFunction(() => document.querySelector(".pill")?.textContent.includes("parked") === false);
  await eventually(async () => assert.notEqual(await colour(), before));
});

/** Opens a job from the list, and measures until its graph is visible, and the frames while it is moved. */
async function figures(t, key) {
  const page = await open(t, `jobs?q=${key}`);
  await page.getByRole("link", { name: key, exact: true }).waitFor();
  const took = await page.evaluate(
    (key) =>
      new Promise((done) => {
        const begin = performance.now();
        const look = () => (document.querySelector("g.node") ? requestAnimationFrame(() => done(performance.now() - begin)) : requestAnimationFrame(look));
        [...document.querySelectorAll("a[data-row]")].find((a) => a.textContent === key).click();
        look();
      }),
    key,
  );
  const longest = {};
  for (const zoom of ["near", "far"]) {
    if (zoom === "far") {
      await page.keyboard.press("f");
      await page.locator(".graph > canvas").waitFor();
    }
    await page.evaluate(() => {
      globalThis.longest = 0;
      let last = performance.now();
      const frame = (now) => {
        globalThis.longest = Math.max(globalThis.longest, now - last);
        last = now;
        if (globalThis.longest >= 0) requestAnimationFrame(frame);
      };
      requestAnimationFrame((now) => ((last = now), requestAnimationFrame(frame)));
    });
    const box = await page.locator(".graph").boundingBox();
    await page.mouse.move(box.x + 200, box.y + 200);
    await page.mouse.down();
    for (let i = 0; i < 60; i++) await page.mouse.move(box.x + 200 + 10 * i, box.y + 200 + 4 * i);
    await page.mouse.up();
    longest[zoom] = await page.evaluate(() => {
      const { longest } = globalThis;
      globalThis.longest = -Infinity;
      return Math.round(longest);
    });
  }
  t.diagnostic(`${key}: visible ${Math.round(took)} ms after the click; longest frame while it is moved: ${longest.near} ms near, ${longest.far} ms far`);
  const drawn = await page.locator("g.node").count();
  assert.ok(drawn < 400, `${drawn} steps are in the page`);
  return took;
}

test("a job of 1,000 steps is visible soon", async (t) => {
  assert.ok((await figures(t, "wide-1000")) < 15_000); // half a second, if the machine has nothing else to do
});

test("a job of 10,000 steps is visible soon, and its table has the rows near the window", async (t) => {
  const steps = {};
  for (let column = 0; column < 250; column++) {
    for (let i = 0; i < 40; i++) steps[`s_${column}_${i}`] = { agent: "absent", ...(column > 0 && { after: [`s_${column - 1}_${i}`, `s_${column - 1}_${(i + 1) % 40}`] }) };
  }
  await submit({ type: "tenthousand", key: "large-10000", steps });
  assert.ok((await figures(t, "large-10000")) < 30_000); // 1.5 seconds, if the machine has nothing else to do
  for (const size of [wide, narrow]) {
    const page = await open(t, "jobs/large-10000?tab=steps", { size });
    await page.getByText("10000 of 10000 steps").waitFor();
    await eventually(async () => {
      await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight)); // the height is estimated until rows are drawn
      assert.equal(await page.locator("tbody tr", { hasText: "s_249_39" }).count(), 1);
      const { y } = await page.locator("tbody tr:not(.gap)").last().boundingBox();
      assert.ok(y < size.height, `the last row is at ${y}`);
    });
    assert.ok((await page.locator("tbody tr").count()) < 400);
  }
});
