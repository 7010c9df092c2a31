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
	dir, env := t.TempDir(), append(environment(t), "PERDURE_SERVER="+serve(t), "PERDURE_BINARY="+built(t, "perdure"))
	spawnIn(t, dir, env, run, program("agent"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	operate := exec.CommandContext(ctx, run, program("operate"))
	operate.Env = env
	out, err := operate.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "parked tooLong\n") || !strings.HasSuffix(text, "\ndone\n1 and no more\n") {
		t.Errorf("operate.ts: %v\n%s", err, out)
	}
	tests := exec.CommandContext(ctx, run, "--test", "--test-reporter=tap", program("hotel_test"))
	tests.Env = env
	out, err = tests.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "# pass 5\n") || !strings.Contains(text, "# skipped 0\n") {
		t.Errorf("hotel_test.ts: %v\n%s", err, out)
	}
}
