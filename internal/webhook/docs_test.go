package webhook

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The program of docs/notifications.md accepts our signatures, also while a secret is rotated, and nothing else.
func TestVerificationInTheDocumentation(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("PERDURE_TEST_REQUIRE_PYTHON") != "" {
			t.Fatal(err)
		}
		t.Skip("Python is not installed")
	}
	text, err := os.ReadFile("../../docs/notifications.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(text)
	if program == nil {
		t.Fatal("the documentation has no program")
	}
	const secret, old, other = "whsec_c2VjcmV0LW9uZQ==", "whsec_b2xkLXNlY3JldA==", "whsec_b3RoZXI="
	const body = `{"id":"ntc_1","data":"ü"}`
	for name, tt := range map[string]struct {
		secrets []string // that sign
		age     time.Duration
		body    string // that arrives
		want    string
	}{
		"right":            {[]string{secret}, 0, body, "True"},
		"rotated":          {[]string{other, secret}, time.Minute, body, "True"},
		"another secret":   {[]string{other, old}, 0, body, "False"},
		"another body":     {[]string{secret}, 0, body + " ", "False"},
		"an old timestamp": {[]string{secret}, time.Hour, body, "False"},
	} {
		headers := map[string]string{}
		if err := sign(headers, tt.secrets, "ntc_1", time.Now().Add(-tt.age), []byte(body)); err != nil {
			t.Fatal(err)
		}
		arguments, err := json.Marshal([]any{secret, headers, tt.body})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), python, "-c", string(program[1])+"\nimport json, sys\ns, h, b = json.load(sys.stdin)\nprint(verified(s, h, b.encode()))")
		cmd.Stdin = strings.NewReader(string(arguments))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != tt.want {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}
