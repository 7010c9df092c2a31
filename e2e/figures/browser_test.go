package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/console"
)

// Settings of the program that drives Chromium.
type settings struct {
	Base       string `json:"base"`
	Executable string `json:"executable"`
	Rounds     int    `json:"rounds"`
	Samples    int    `json:"samples"` // reports of which the delay is measured, without load and with it
	Rate       int    `json:"rate"`    // jobs a second of the load
	TabSeconds int    `json:"tabSeconds"`
	Parked     string `json:"parked"` // a job that is parked
	Error      string `json:"error"`  // the error code of parked jobs
	Only       string `json:"only,omitempty"`
}

// measureBrowser runs console/e2e/figures.mjs.
func measureBrowser(t *testing.T, g *grid, r *report) {
	nodeJS, chromium := programs(t)
	for _, steps := range []int{1000, 10_000} {
		g.submitWide(fmt.Sprintf("wide-%d", steps), steps)
	}
	s := settings{Base: g.base, Executable: chromium, Rounds: *rounds, Samples: 4, Rate: 50, TabSeconds: max(1, int(*tab/time.Second)),
		Parked: g.find("phase=parked").ID.String(), Error: codes[0], Only: *browserOnly}
	if full() {
		s.Samples, s.Rate = 60, 1000
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), nodeJS, "e2e/figures.mjs")
	cmd.Dir = "../../console"
	cmd.Env = append(os.Environ(), "FIGURES="+string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, strings.Join(lines, "\n"), stderr.String())
	}
	var figures []figure
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &figures); err != nil || len(figures) == 0 {
		t.Fatalf("no figures: %v\n%s", err, printed)
	}
	for _, f := range figures {
		f.Part = "browser"
		r.add(t, f)
	}
}

// programs returns Node and Chromium. The test is skipped if one is missing and the environment does not require it.
func programs(t *testing.T) (nodeJS, chromium string) {
	t.Helper()
	missing := func(variable, what string) {
		if os.Getenv(variable) != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	// Reading the sources tells go test that a cached result depends on them.
	for _, pattern := range []string{"../../console/e2e/*.mjs", "../../console/dist/*", "../../console/dist/*/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			_, _ = os.ReadFile(file) // or a directory
		}
	}
	nodeJS = "node"
	if own, err := filepath.Abs("../../.cache/node/node_modules/node/bin/node"); err == nil {
		if _, err := os.Stat(own); err == nil {
			nodeJS = own
		}
	}
	if _, err := exec.LookPath(nodeJS); err != nil {
		missing("PERDURE_TEST_REQUIRE_NODE", "Node is not installed")
	}
	if _, err := os.Stat("../../console/node_modules/.package-lock.json"); err != nil {
		missing("PERDURE_TEST_REQUIRE_NODE", "console/node_modules is missing: run `make console`")
	}
	if !console.Built() {
		missing("PERDURE_TEST_REQUIRE_CHROMIUM", "the console is not built: run `make console`")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return nodeJS, path
		}
	}
	missing("PERDURE_TEST_REQUIRE_CHROMIUM", "Chromium is not installed (scripts/setup installs it)")
	return "", ""
}

// submitWide submits a job of layers of 40 steps, each with two steps before it, if there is none with this key.
func (g *grid) submitWide(key string, steps int) {
	const width = 40
	var b strings.Builder
	fmt.Fprintf(&b, "type: wide\nkey: %s\nsteps:\n", key)
	for i := range steps {
		fmt.Fprintf(&b, "  s_%d_%d: {agent: mail", i/width, i%width)
		if layer := i/width - 1; layer >= 0 {
			fmt.Fprintf(&b, ", after: [s_%d_%d, s_%d_%d]", layer, i%width, layer, (i+1)%width)
		}
		b.WriteString("}\n")
	}
	if _, _, err := g.node.Submit(g.t.Context(), []byte(b.String()), "application/yaml"); err != nil {
		g.t.Fatal(err)
	}
}
