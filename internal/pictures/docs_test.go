package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inTicks  = regexp.MustCompile("`([^`\n]+)`")
	filePath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+/?$|^[\w-]+\.(go|md|tsv|yaml)$`)
	clause   = regexp.MustCompile(`^[A-Z]\w*/`) // of the contract
	goName   = regexp.MustCompile(`^([a-z]+)\.([A-Za-z]\w*(\.\w+)?)$`)
	member   = regexp.MustCompile(`^[A-Z]\w*\.[A-Za-z]\w*$`)
)

// The pages for contributors name files and parts of the code; these exist.
func TestNamesInPagesExist(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range []string{"docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inTicks.FindAllStringSubmatch(string(text), -1) {
			ok, known := src.exists(m[1])
			if known {
				checked++
			}
			if known && !ok {
				t.Errorf("%s: there is no `%s`", page, m[1])
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d names were checked: are they in backticks still?", checked)
	}
}

// exists reports whether a file or a name of the code exists. known: the text is one of both.
func (src *source) exists(text string) (ok, known bool) {
	if filePath.MatchString(text) && !clause.MatchString(text) {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(text)))
		return err == nil, true
	}
	if member.MatchString(text) {
		for _, p := range src.packages {
			if p.declared[text] {
				return true, true
			}
		}
		return false, true
	}
	m := goName.FindStringSubmatch(text)
	if m == nil {
		return false, false
	}
	dir := m[1]
	if dir == "perdure" {
		dir = ""
	}
	for in, p := range src.packages {
		if in == dir || dir != "" && path.Base(in) == dir {
			known = true
			ok = ok || p.has(m[2])
		}
	}
	if !known { // the name of a type that is not exported
		for _, p := range src.packages {
			ok = ok || p.declared[text]
		}
		known = strings.ToLower(dir) == dir
	}
	return ok, known
}

func TestPagesWithUnknownNamesAreRefused(t *testing.T) {
	src, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][2]bool{
		"internal/kernel":         {true, true},
		"internal/kernel/turn.go": {true, true},
		"internal/kernel/burn.go": {false, true},
		"deps_test.go":            {true, true},
		"kernel.Workset":          {true, true},
		"kernel.Worksheet":        {false, true},
		"Workset.setPhase":        {true, true},
		"Workset.displace":        {false, true},
		"batch.run":               {true, true},
		"batch.walk":              {false, true},
		"perdure.Direction":       {true, true},
		"make lint":               {false, false},
	} {
		if ok, known := src.exists(text); ok != want[0] || known != want[1] {
			t.Errorf("%s: exists %v, known %v; want %v", text, ok, known, want)
		}
	}
}
