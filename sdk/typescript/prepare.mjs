// Builds dist/. npm runs this in a checkout: for `npm ci` here, for `npm pack`, and for `npm install PATH` elsewhere,
// which links to this folder. npm does not install the compiler for a linked folder, so that is done here.
import { execSync } from "node:child_process";
import { existsSync } from "node:fs";

const npm = (command) => execSync(`npm ${command}`, { cwd: new URL(".", import.meta.url), stdio: ["ignore", "inherit", "inherit"] });

if (!existsSync(new URL("node_modules/typescript", import.meta.url))) {
  npm("ci --include=dev --ignore-scripts --prefer-offline --no-audit --no-fund");
}
npm("run build");
