package console

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The bounds of what a browser loads for the first page of the console, compressed, and of one part that it loads later.
const (
	maxScript = 60 << 10
	maxPart   = 20 << 10
	maxStyle  = 10 << 10
)

// staticImport finds the scripts that a script needs at once; import() loads the others later.
var staticImport = regexp.MustCompile(`(?:from|import)\s*"\./([^"]+\.js)"`)

// firstScripts returns the names of the scripts that the page names, and of those that they need at once.
func firstScripts(s *site) map[string]bool {
	first := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if first[name] {
			return
		}
		first[name] = true
		for _, match := range staticImport.FindAllSubmatch(s.assets[name].plain, -1) {
			add(string(match[1]))
		}
	}
	for name := range s.assets {
		if path.Ext(name) == ".js" && bytes.Contains(s.page, []byte(`"assets/`+name+`"`)) {
			add(name)
		}
	}
	return first
}

func TestScriptAndStyleAreSmall(t *testing.T) {
	s := files()
	if !s.built {
		t.Skip("the console is not built: run `make console`")
	}
	sizes := map[string]int{}
	first := firstScripts(s)
	for name, a := range s.assets {
		size := len(a.gzipped)
		if size == 0 {
			size = len(a.plain)
		}
		if path.Ext(name) == ".js" && !first[name] {
			if size > maxPart {
				t.Errorf("%s has %d bytes, compressed; the bound of a part is %d", name, size, maxPart)
			}
			sizes["parts"] += size
			continue
		}
		sizes[path.Ext(name)] += size
	}
	t.Logf("compressed: %v bytes", sizes)
	for kind, most := range map[string]int{".js": maxScript, ".css": maxStyle} {
		if sizes[kind] == 0 || sizes[kind] > most {
			t.Errorf("the console has %d bytes of %s, compressed; the bound is %d, and 0 would be a build without it", sizes[kind], kind, most)
		}
	}
}

// The page of a build obeys its own policy: no script, style or handler in the page itself, nothing from elsewhere. The
// script calls nothing that the policy, or the rules of the source, forbid.
func TestBuiltPageHasNothingInline(t *testing.T) {
	s := files()
	if !s.built {
		t.Skip("the console is not built: run `make console`")
	}
	for _, bad := range []string{"<style", " style=", "onclick", "onload", "http://", "https://", "<script>"} {
		page := bytes.ReplaceAll(s.page, []byte("http://www.w3.org/2000/svg"), nil)
		page = bytes.ReplaceAll(page, []byte("xmlns='http://www.w3.org/2000/svg'"), nil)
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("index.html contains %s", bad)
		}
	}
	for name := range s.assets {
		used := bytes.Contains(s.page, []byte(`"assets/`+name+`"`))
		for _, other := range s.assets {
			used = used || bytes.Contains(other.plain, []byte(`"./`+name+`"`))
		}
		if !used {
			t.Errorf("neither index.html nor a script names %s, which is in the build", name)
		}
		if !strings.Contains(name, "-") {
			t.Errorf("the name of %s has no hash, and it is cached for a year", name)
		}
	}
}

// The sources use nothing that reads text as HTML or as a program, and no inline style, which the policy forbids.
func TestSourcesReadNoTextAsHTML(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function\(|\bstyle=|javascript:`)
	sources := 0
	err := filepath.WalkDir("src", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sources++
		text, err := os.ReadFile(file)
		if bad := forbidden.Find(text); bad != nil {
			t.Errorf("%s contains %s", file, bad)
		}
		return err
	})
	if err != nil || sources < 20 {
		t.Fatalf("%d sources: %v", sources, err)
	}
}
