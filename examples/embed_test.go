package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
)

// A new module in another folder goes from empty to a job with undo on SQLite in under 40 lines, and to
// PostgreSQL by changing one.
func TestEmbed(t *testing.T) {
	source, err := os.ReadFile("embed/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n >= 40 {
		t.Errorf("%d lines", n)
	}
	const want = "done\nrefund of receipt over 4200\nundone\n"
	if out := elsewhere(t, string(source)); out != want {
		t.Errorf("on SQLite: %s", out)
	}
	url := pgtest.Start(t)
	if out := elsewhere(t, strings.Replace(string(source), "sqlite:shop.db", url, 1)); out != want {
		t.Errorf("on PostgreSQL: %s", out)
	}
}

// elsewhere runs a program as the only file of a new module beside this one.
func elsewhere(t *testing.T, source string) string {
	t.Helper()
	repo, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	// What `go mod edit -replace github.com/perdure/perdure=…; go mod tidy` would write, without a network: our own requirements.
	_, rest, _ := strings.Cut(string(ours), "\n")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": source,
		"go.sum":  string(sums),
		"go.mod":  "module shop\n" + rest + "\nrequire github.com/perdure/perdure v0.0.0\n\nreplace github.com/perdure/perdure => " + repo + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "run", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
