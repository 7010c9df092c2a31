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
  ["stack", "jobs/print-2027?stack=page_001", 640],
  ["alerts", "alerts", 400],
  ["limits", "limits", 320],
  ["submit", "submit?from=order-1042", 640],
  ["act", "jobs/order-1042?step=charge", 760, "Settle …"],
];
const width = 1200;
/** The most bytes of a picture: pages of documents must be quick. */
const mostBytes = 100_000;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
for (const colorScheme of ["light", "dark"]) {
  for (const [name, path, height, button] of pictures) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    await page.goto(process.env.CONSOLE_URL + path);
    await page.waitForSelector("main h1, main h2");
    await page.waitForFunction(() => !document.querySelector(".waiting") && !document.querySelector(".checking"));
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
