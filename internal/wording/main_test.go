package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestPhrasesDoNotBecomeMore(t *testing.T) {
	text, err := os.ReadFile("phrases.tsv")
	if err != nil {
		t.Fatal(err)
	}
	phrases, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := count(os.DirFS("../.."), phrases); err != nil {
		t.Fatal(err)
	}
	fewer, more := judge(phrases)
	if more != nil {
		t.Error(more)
	}
	for _, f := range fewer {
		t.Log(f)
	}
}

func TestPhrasesAreCountedInProseOnly(t *testing.T) {
	phrases, err := parse("# a comment\nnobody\tno caller\t9\nlet out, lets out\tdispatch\t9\n")
	if err != nil {
		t.Fatal(err)
	}
	err = count(fstest.MapFS{
		"a/a.go":          {Data: []byte("package a // Nobody, and “nobodys” is another word\n\n// One lets\n// out what it has.\nvar nobody = \"nobody\"\n\nvar s = `nobody\nand nobody`\n")},
		"b.md":            {Data: []byte("Steps are let\nout.\n")},
		"b.txt":           {Data: []byte("nobody")},
		"CHANGELOG.md":    {Data: []byte("nobody")},
		"testdata/a.md":   {Data: []byte("nobody")},
		".hidden/a.md":    {Data: []byte("nobody")},
		"a/testdata/b.go": {Data: []byte("// nobody")},
	}, phrases)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a/a.go:1", "a/a.go:5", "a/a.go:7", "a/a.go:8"}; !slices.Equal(phrases[0].places, want) {
		t.Errorf("nobody is at %v, want %v", phrases[0].places, want)
	}
	if want := []string{"a/a.go:3", "b.md:1"}; !slices.Equal(phrases[1].places, want) {
		t.Errorf("let out is at %v, want %v", phrases[1].places, want)
	}
}

func TestNumbersOnlyGoDown(t *testing.T) {
	const text = "# note\nnobody\tno caller\t2\nat rest\tsettled or parked\t2\nanew\tagain\t2\n"
	phrases, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	phrases[0].places = []string{"a:1", "a:2", "a:3"}
	phrases[1].places = []string{"a:1"}
	phrases[2].places = []string{"a:1", "a:2"}
	fewer, more := judge(phrases)
	if more == nil || !strings.Contains(more.Error(), "nobody") || strings.Contains(more.Error(), "anew") {
		t.Errorf("three of a phrase that may be there twice: %v", more)
	}
	if len(fewer) != 1 || !strings.Contains(fewer[0], "at rest") {
		t.Errorf("fewer: %v", fewer)
	}
	if got, want := lowered(text, phrases), strings.Replace(text, "parked\t2", "parked\t1", 1); got != want {
		t.Errorf("lowered:\n%s\nwant:\n%s", got, want)
	}
}

func TestListWithAFaultIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"nobody\tno caller":      "phrases.tsv:1: 2 fields",
		"\nnobody\tno caller\tx": `phrases.tsv:2: "x" is not a number`,
		"nobody\tno caller\t-1":  "is not a number",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
