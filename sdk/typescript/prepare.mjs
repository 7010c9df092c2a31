// Builds dist/. npm runs this in a checkout: for `npm ci` here, for `npm pack`, and for `npm install PATH` elsewhere,
// which links to this folder. npm does not install the compiler for a linked folder, so that is done here, into a
// folder of its own: what the tests need beyond the compiler is not installed.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const show = ["ignore", "inherit", "inherit"];

let modules = join(here, "node_modules");
if (!existsSync(join(modules, "typescript")) || !existsSync(join(modules, "@types/node"))) {
  const own = join(here, "build/compiler");
  const { devDependencies } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, "package.json"), JSON.stringify({ private: true }));
  const needed = ["typescript", "@types/node"].map((name) => `${name}@${devDependencies[name]}`);
  execFileSync("npm", ["install", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--no-save", ...needed],
    { cwd: own, stdio: show, shell: process.platform === "win32" });
  modules = join(own, "node_modules");
}
execFileSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", "tsconfig.build.json", "--typeRoots", join(modules, "@types")],
  { cwd: here, stdio: show });
