// Compiles the console into dist/, which the Go package embeds, or with the argument "tests" its unit tests into build/.
// Names in dist/assets/ contain a hash of the content, so that browsers may keep the files.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
process.chdir(here);

const common = { bundle: true, target: "es2022", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning", legalComments: "none" };

async function buildTests() {
  rmSync("build", { recursive: true, force: true });
  const entryPoints = readdirSync("tests").filter((name) => name.endsWith(".test.ts")).map((name) => join("tests", name));
  await build({ ...common, entryPoints, outdir: "build", platform: "node", format: "esm", outExtension: { ".js": ".mjs" } });
}

async function buildConsole() {
  mkdirSync("dist", { recursive: true });
  for (const name of readdirSync("dist")) {
    if (name !== "missing.html") rmSync(join("dist", name), { recursive: true });
  }
  const { metafile } = await build({
    ...common, entryPoints: ["src/main.tsx", "src/style.css"], outdir: "dist/assets", entryNames: "[name]-[hash]",
    platform: "browser", format: "esm", minify: true, metafile: true,
  });
  const built = Object.entries(metafile.outputs);
  const nameOf = (entry) => {
    const found = built.find(([, output]) => output.entryPoint === entry);
    if (!found) throw new Error(`esbuild wrote no file for ${entry}`);
    return `assets/${basename(found[0])}`;
  };
  let page = readFileSync("src/index.html", "utf8");
  for (const [place, entry] of [["style.css", "src/style.css"], ["main.js", "src/main.tsx"]]) {
    if (page.split(`"${place}"`).length !== 2) throw new Error(`src/index.html must name "${place}" once`);
    page = page.replace(`"${place}"`, `"${nameOf(entry)}"`);
  }
  writeFileSync("dist/index.html", page);
}

await (process.argv[2] === "tests" ? buildTests() : buildConsole());
