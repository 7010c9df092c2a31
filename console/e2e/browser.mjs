// A browser for the tests: Debian's Chromium, driven by playwright-core. The environment has the addresses of two
// consoles, with jobs and without, and the path of Chromium (browser_test.go sets them).
import assert from "node:assert/strict";
import process from "node:process";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

export const full = process.env.CONSOLE_URL;
export const empty = process.env.EMPTY_CONSOLE_URL;

export const narrow = { width: 360, height: 740 };
export const wide = { width: 1400, height: 900 };

/** How long a test waits for something, in milliseconds: the machine may be busy with other tests. */
const patience = 60_000;

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
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.expectedErrors = [];
  t.after(async () => {
    await context.close();
    const unexpected = errors.filter((text) => !page.expectedErrors.some((pattern) => pattern.test(text)));
    assert.deepEqual(unexpected, [], `errors of the browser at ${path}`);
  });
  await page.goto(base + path);
  await loaded(page);
  return page;
}

/** Waits until nothing is being loaded for the first time. */
export async function loaded(page) {
  await page.waitForSelector("main h1, main h2, .login[open]");
  await page.waitForFunction(() => !document.querySelector(".waiting"));
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
export async function api(path, body) {
  const init = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(new URL(`../v1/${path}`, full), init);
  const text = await response.text();
  assert.ok(response.ok, `${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}
