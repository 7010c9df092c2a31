// A browser for the tests: Debian's Chromium, driven by playwright-core. The environment has the addresses of two
// consoles, with jobs and without, and the path of Chromium (browser_test.go sets them).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import process from "node:process";
import { after, before, test as nodeTest } from "node:test";
import { chromium } from "playwright-core";

export const full = process.env.CONSOLE_URL;
export const empty = process.env.EMPTY_CONSOLE_URL;

export const narrow = { width: 360, height: 740 };
export const wide = { width: 1400, height: 900 };

const axe = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** How long a test waits for something, in milliseconds: the machine may be busy with other tests. */
const patience = 60_000;

/**
 * What makes the console slow, to find tests that depend on its speed. Each call, answer and script, and each part of a
 * stream, is late by a random time of at most SLOW milliseconds. Scripts of pages take SLOW_CPU times as long.
 */
const slow = Number(process.env.SLOW ?? 0), slowCPU = Number(process.env.SLOW_CPU ?? 1);

/** How long a test may take: Chromium under load does not answer some calls that have no limit of their own. */
const longest = 2 * patience;

export const test = (name, fn) => nodeTest(name, { timeout: longest }, fn);

let browser;

export async function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
}

before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** Opens a page of a console, waits until its data is there, and fails the test if the browser reports an error. */
export async function open(t, path, { base = full, size = wide, dark = false, zone, cookie } = {}) {
  const context = await browser.newContext({ viewport: size, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce", ...(zone && { timezoneId: zone }) });
  context.setDefaultTimeout(patience);
  if (cookie) await context.addCookies([{ ...cookie, domain: new URL(base).hostname, path: "/" }]);
  const page = await context.newPage();
  await slowDown(page);
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.expectedErrors = [];
  t.after(async () => {
    if (!page.isClosed()) await page.unrouteAll({ behavior: "ignoreErrors" }); // an answer that a test changes may be on its way
    await context.close();
    const unexpected = errors.filter((text) => !page.expectedErrors.some((pattern) => pattern.test(text)));
    assert.deepEqual(unexpected, [], `errors of the browser at ${path}`);
  });
  await page.goto(base + path);
  await loaded(page);
  return page;
}

/** Makes a page as slow as the environment says. */
async function slowDown(page) {
  if (!slow && slowCPU === 1) return;
  const devTools = await page.context().newCDPSession(page);
  await devTools.send("Emulation.setCPUThrottlingRate", { rate: slowCPU });
  if (!slow) return;
  devTools.on("Fetch.requestPaused", async ({ requestId }) => {
    await new Promise((wake) => setTimeout(wake, slow * Math.random()));
    await devTools.send("Fetch.continueRequest", { requestId }).catch(() => {}); // the page may have left
  });
  const patterns = ["*/v1/*", "*.js"].flatMap((urlPattern) => ["Request", "Response"].map((requestStage) => ({ urlPattern, requestStage })));
  await devTools.send("Fetch.enable", { patterns });
  await page.addInitScript((slow) => {
    const reader = ReadableStreamDefaultReader.prototype, { read } = reader;
    reader.read = async function () {
      const part = await read.call(this);
      await new Promise((wake) => setTimeout(wake, slow * Math.random()));
      return part;
    };
  }, slow);
}

/** Waits until nothing is being loaded for the first time. */
export async function loaded(page) {
  await page.waitForSelector("main h1, main h2, .login[open]");
  await page.waitForFunction(() => !document.querySelector(".waiting"));
}

/** Waits until the tab has a title: it gets one after the page is shown. */
export const titled = (page, title) => page.waitForFunction((title) => document.title === title, title);

/** Waits until a selector matches so many elements. */
export async function counted(locator, n) {
  await eventually(async () => assert.equal(await locator.count(), n));
}

/** Repeats a check until it passes: after an act the page changes when the server has answered. */
export async function eventually(check) {
  for (const end = Date.now() + patience; ; await new Promise((wake) => setTimeout(wake, 50))) {
    try {
      return await check();
    } catch (error) {
      if (!(error instanceof assert.AssertionError) || Date.now() > end) throw error;
    }
  }
}

/** Calls the API of the console with jobs. */
export async function api(path, body, method = "POST") {
  const init = body === undefined ? {} : { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(new URL(`../v1/${path}`, full), init);
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

const everything = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] };
const colours = { runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } };

/**
 * Fails if axe finds a violation on a page, in any of the sizes, light or dark, or if a part is too wide. covered: whether
 * a menu covers a part of the page. SHOTS is a directory for a picture of each. The page then has its size of before.
 */
export async function violations(page, what, { covered = false, at = [narrow, { width: 1024, height: 900 }, wide] } = {}) {
  await loaded(page);
  const before = page.viewportSize();
  for (const size of at) {
    await page.setViewportSize(size);
    // Colours are the same in all sizes: in dark, what only one of the narrowest and the widest shows is checked there.
    for (const colorScheme of size === at[0] || size === at.at(-1) ? ["light", "dark"] : ["light"]) {
      await page.emulateMedia({ colorScheme });
      if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe); // the policy forbids script elements
      const rules = colorScheme === "light" ? { ...everything, rules: { "target-size": { enabled: !covered } } } : colours; // the rest is the same in dark
      const { violations, passes } = await page.evaluate((rules) => globalThis.axe.run(document, rules), rules);
      assert.ok(passes.length > (rules === colours ? 0 : 5), "axe has checked the page");
      assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 150)} (${n.failureSummary})`).join("; ")}`), [], `${what}, ${size.width}, ${colorScheme}`);
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${what.replaceAll(/\W+/g, "-")}-${size.width}-${colorScheme}.png` });
    }
    await eventually(async () => {
      for (const part of ["html", "dialog[open]"]) {
        const wider = await page.evaluate((part) => [...document.querySelectorAll(part)].map((element) => element.scrollWidth - element.clientWidth), part);
        assert.ok(wider.every((pixels) => pixels === 0), `${what}: ${part} is wider than its room in ${size.width} pixels`);
      }
    });
  }
  await page.emulateMedia({ colorScheme: null });
  await page.setViewportSize(before);
}
