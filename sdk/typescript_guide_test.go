package sdk

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs of docs/guides/typescript.md that TestDocumentedPrograms does not run: the operator's, and the tests.
func TestTypeScriptGuide(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	t.Parallel()
	run := node(t)
	program := func(name string) string {
		return absolute(t, filepath.Join("typescript/build/snippets", snippet("../docs/guides/typescript.md", name+".js")))
	}
	server := serve(t)
	dir, env := t.TempDir(), append(environment(t), "PERDURE_SERVER="+server, "PERDURE_BINARY="+built(t, "perdure"))
	spawnIn(t, dir, env, run, program("agent"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	check := withParkedTrip(t, server)
	operate := exec.CommandContext(ctx, run, program("operate"))
	operate.Env = env
	out, err := operate.CombinedOutput()
	if text := string(out); err != nil || !strings.HasSuffix(text, "at most 30 nights\nnotFound\n") {
		t.Errorf("operate.ts: %v\n%s", err, out)
	}
	check()
	tests := exec.CommandContext(ctx, run, "--test", "--test-reporter=tap", program("hotel_test"))
	tests.Env = env
	out, err = tests.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "# pass 3\n") || !strings.Contains(text, "# skipped 0\n") {
		t.Errorf("hotel_test.ts: %v\n%s", err, out)
	}
}
