package timetable

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestZones(t *testing.T) {
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "update.bash"))
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^DATA=(\S+)$`).FindSubmatch(text); found == nil || string(found[1]) != EmbeddedZones {
		t.Errorf("Go has %s, and EmbeddedZones is %s", found, EmbeddedZones)
	}
	dir := t.TempDir()
	t.Setenv("ZONEINFO", dir)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(version string) {
		t.Helper()
		if v, at := Zones(); v != version || at != dir {
			t.Errorf("%s in %s, want %s", v, at, version)
		}
	}
	want("unknown")
	write("tzdata.zi", "# version 2026a\n# redo\n")
	want("2026a")
	write("+VERSION", "2026b\n")
	want("2026b")
	was := zoneDirs
	defer func() { zoneDirs = was }()
	zoneDirs = nil
	t.Setenv("ZONEINFO", "")
	if v, at := Zones(); v != EmbeddedZones || at != "" {
		t.Errorf("%s in %q, want the embedded version", v, at)
	}
}
