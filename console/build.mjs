// Compiles the console into dist/, which the Go package embeds, or with the argument "tests" its unit tests into build/.
// Names in dist/assets/ contain a hash of the content, so that browsers may keep the files. A part that is imported with
// import() becomes a script of its own.
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
    ...common, entryPoints: ["src/main.tsx", "src/style.css"], outdir: "dist/assets", entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]",
    platform: "browser", format: "esm", splitting: true, minify: true, metafile: true,
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
  // The browser loads the scripts that the first one needs at the same time.
  const needed = new Set();
  const add = (file) => {
    for (const { path, kind } of metafile.outputs[file].imports) {
      if (kind !== "import-statement" || needed.has(path)) continue;
      needed.add(path);
      add(path);
    }
  };
  add(built.find(([, output]) => output.entryPoint === "src/main.tsx")[0]);
  const preloads = [...needed].map((file) => `<link rel="modulepreload" href="assets/${basename(file)}">\n`).join("");
  writeFileSync("dist/index.html", page.replace("</head>", `${preloads}</head>`));
}

await (process.argv[2] === "tests" ? buildTests() : buildConsole());
