// Writes the pictures of docs/console.md: go test ./console -run Pictures -refresh. PICTURES is the directory.
import { statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { chromium } from "playwright-core";

/** The name of each picture, the page, its height, and the button that opens a dialog, which is the picture then. */
const pictures = [
  ["overview", "", 520],
  ["jobs", "jobs", 620],
  ["job", "jobs/order-1042?step=charge", 690],
  ["timeline", "jobs/order-1038?tab=timeline", 560],
  ["history", "jobs/order-1042?tab=history", 500],
  ["stack", "jobs/print-2027?stack=page_001", 640],
  ["alerts", "alerts", 400],
  ["agents", "agents", 440],
  ["limits", "limits", 320],
  ["nodes", "nodes", 420],
  ["submit", "submit?from=order-1042", 640],
  ["act", "jobs/order-1042?step=charge", 760, "Settle …"],
  ["bulk", "bulk/BULK", 620],
];
const width = 1200;
/** The most bytes of a picture: pages of documents must be quick. */
const mostBytes = 100_000;

/** Resumes orders, of which some have nothing to resume, and returns the id of the bulk act. */
async function bulkAct() {
  const call = async (path, init) => (await fetch(new URL(`../v1/${path}`, process.env.CONSOLE_URL), init)).json();
  const { id } = await call("bulk", {
    method: "POST", headers: { "Content-Type": "application/json", "Perdure-Author": "Anna" }, body: JSON.stringify({ act: "resume", filter: { type: "order", phase: ["parked", "settled"] }, reason: "the bank is back", key: "picture" }),
  });
  for (;;) {
    const { state } = await call(`bulk/${id}`);
    if (state === "done") return id;
    await new Promise((wake) => setTimeout(wake, 100));
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
for (const colorScheme of ["light", "dark"]) {
  for (const [name, path, height, button] of pictures) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    await page.goto(process.env.CONSOLE_URL + (path.includes("BULK") ? path.replace("BULK", await bulkAct()) : path));
    await page.waitForSelector("main h1, main h2");
    await page.waitForFunction(() => !document.querySelector(".waiting") && !document.querySelector(".checking"));
    if (path === "") await page.getByRole("link", { name: /submitted in the last hour/ }).waitFor({ timeout: 150_000 }); // nodes store their counts once a minute
    if (path.startsWith("submit")) await page.locator("g.node").first().waitFor();
    if (button) {
      await page.locator(".panel").getByRole("button", { name: button }).click();
      await page.getByText("The job would be").waitFor();
    }
    await page.waitForTimeout(300);
    const file = join(process.env.PICTURES, `${name}-${colorScheme}.png`);
    await (button ? page.locator("dialog[open]") : page).screenshot({ path: file });
    const { size } = statSync(file);
    if (size > mostBytes) throw new Error(`${file} has ${size} bytes; at most ${mostBytes} are allowed`);
    console.log(`${file}: ${size} bytes`);
    await context.close();
  }
}
await browser.close();
