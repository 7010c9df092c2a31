package sdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// node is Node 20 or later, as a command, once the package for TypeScript, its tests, its examples and the programs of
// the documentation are type-checked and compiled.
func node(t *testing.T) string {
	t.Helper()
	name := "node"
	if _, err := os.Stat(ownNode); err == nil {
		name = absolute(t, ownNode)
	}
	path := needed(t, "PERDURE_TEST_REQUIRE_NODE", name, func(path string) error {
		if err := exec.Command(path, "-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)").Run(); err != nil {
			return errors.New("it is older than 20")
		}
		if _, err := os.Stat(compiler); err != nil {
			return errors.New("sdk/typescript/node_modules is missing: run `npm ci` there")
		}
		return nil
	})
	if err := compiled(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ownNode is what scripts/setup gets where the machine's is too old.
const ownNode = "../.cache/node/node_modules/node/bin/node"

const compiler = "typescript/node_modules/typescript/bin/tsc"

// compiled does it once, whichever of the tests comes first.
func compiled(node string) error {
	compile.Do(func() { compileError = compileAll(node) })
	return compileError
}

var (
	compile      sync.Once
	compileError error
)

func compileAll(node string) error {
	for _, dir := range []string{"typescript/dist", "typescript/build", "typescript/snippets"} {
		if err := os.RemoveAll(dir); err != nil { // or what is gone from the sources would still run
			return err
		}
	}
	for _, doc := range documents {
		programs, err := programsIn(doc, "ts")
		if err != nil {
			return err
		}
		for name, text := range programs {
			path := filepath.Join("typescript/snippets", snippet(doc, name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	for _, project := range []string{"tsconfig.build.json", "tsconfig.json"} {
		if out, err := exec.Command(node, compiler, "-p", filepath.Join("typescript", project)).CombinedOutput(); err != nil {
			return fmt.Errorf("tsc -p %s: %w\n%s", project, err, out)
		}
	}
	return nil
}

// `npm install FOLDER` of a fresh checkout gives a package that can be imported, with its types: npm links to the
// folder, and the folder's script prepare builds it.
func TestTypeScriptPackageInstallsFromItsFolder(t *testing.T) {
	t.Parallel()
	bin := filepath.Dir(node(t))
	npm := needed(t, "PERDURE_TEST_REQUIRE_NODE", "npm", func(string) error { return nil })
	checkout, app := filepath.Join(t.TempDir(), "typescript"), t.TempDir()
	copySources(t, "typescript", checkout)
	run := func(path string, args ...string) string {
		cmd := exec.Command(path, args...)
		cmd.Dir = app
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", path, args, err, out)
		}
		return string(out)
	}
	run(npm, "install", "--prefer-offline", "--no-audit", "--no-fund", checkout)
	if out := run(filepath.Join(bin, "node"), "--input-type=module", "-e", `import { Agent, Client } from "perdure"; console.log(typeof Agent, typeof Client)`); out != "function function\n" {
		t.Errorf("the installed package exports %q", out)
	}
	if _, err := os.Stat(filepath.Join(app, "node_modules/perdure/dist/index.d.ts")); err != nil {
		t.Error(err)
	}
}

// copySources copies a package as it is in a fresh checkout: without installed or built files.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inner, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"node_modules", "dist", "build", "snippets"}, inner) {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, inner), 0o700)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, inner), text, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
