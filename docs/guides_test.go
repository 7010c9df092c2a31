package docs

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var refresh = flag.Bool("refresh", false, "write the code into the guides, and the tables of reliability.md")

// shown is a block of a guide that is a region of a file beside it: <!-- agents_test.go: handlers -->
var shown = regexp.MustCompile("(?s)<!-- (\\w+\\.\\w+): ([\\w-]+) -->\n```(\\w+)\n(.*?)```\n")

// Every block of Go in the guides is a piece of a test that runs (in docs/guides), as the comment before it says.
func TestGuidesShowWhatIsTested(t *testing.T) {
	guides, err := filepath.Glob("guides/*.md")
	if err != nil || len(guides) < 5 {
		t.Fatal(guides, err)
	}
	for _, guide := range guides {
		text := read(t, guide)
		fresh := shown.ReplaceAllStringFunc(text, func(block string) string {
			m := shown.FindStringSubmatch(block)
			code := region(t, filepath.Join("guides", m[1]), m[2])
			return "<!-- " + m[1] + ": " + m[2] + " -->\n```" + m[3] + "\n" + code + "```\n"
		})
		if strings.Contains(shown.ReplaceAllString(text, ""), "```go\n") {
			t.Errorf("%s has code that is not tested: put it into a test beside it", guide)
		}
		if fresh == text {
			continue
		}
		if !*refresh {
			t.Errorf("%s does not show the code as it is: go test ./docs -run Guides -refresh", guide)
		} else if err := os.WriteFile(guide, []byte(fresh), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// region is what stands between "// show: NAME" and "// end" in a file, without the indentation of its first line.
func region(t *testing.T, file, name string) string {
	t.Helper()
	_, after, ok := strings.Cut(read(t, file), "// show: "+name+"\n")
	if !ok {
		t.Fatalf("%s has no region %s", file, name)
	}
	body, _, ok := strings.Cut(after, "// end\n")
	if !ok {
		t.Fatalf("%s: region %s has no end", file, name)
	}
	lines := strings.Split(strings.TrimRight(body, "\t\n"), "\n")
	indent := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], "\t"))]
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], indent)
	}
	return strings.Join(lines, "\n") + "\n"
}
