// Program wording counts phrases that Perdure's prose is to lose, in comments and strings of Go and in Markdown.
//
// phrases.tsv has a line for each: the phrase and its forms, the plain word to use instead, and how many there may be.
// The numbers only go down: more than a number is a fault, and fewer is a reason to lower it.
//
//	go run ./internal/wording              what make lint runs
//	go run ./internal/wording -refresh     lower the numbers to what is there
//	go run ./internal/wording -dirs        counts by directory
//	go run ./internal/wording -where nobody   each place of a phrase
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const list = "internal/wording/phrases.tsv"

// left are files and directories that are not counted: records of the past, code of others, and fragments of code.
var left = []string{"CHANGELOG.md", "internal/mutants/table.go", "internal/wording", "bin"}

func main() {
	refresh := flag.Bool("refresh", false, "lower the numbers of "+list)
	dirs := flag.Bool("dirs", false, "print counts by directory")
	where := flag.String("where", "", "print each place of this `phrase`")
	flag.Parse()
	if err := run(os.Stdout, *refresh, *dirs, *where); err != nil {
		fmt.Fprintln(os.Stderr, "wording:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, refresh, dirs bool, where string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("%w (run it in the directory of go.mod)", err)
	}
	phrases, err := parse(string(text))
	if err != nil {
		return err
	}
	if err := count(os.DirFS("."), phrases); err != nil {
		return err
	}
	for _, p := range phrases {
		if dirs {
			p.print(out)
		}
		if where != "" && slices.Contains(p.forms, where) {
			fmt.Fprintln(out, strings.Join(p.places, "\n"))
		}
	}
	if refresh {
		if err := os.WriteFile(list, []byte(lowered(string(text), phrases)), 0o644); err != nil {
			return err
		}
	}
	reduced, more := judge(phrases)
	for _, f := range reduced {
		if !refresh {
			fmt.Fprintln(out, f)
		}
	}
	return more
}

// phrase is a line of the list.
type phrase struct {
	forms   []string
	instead string
	allowed int

	match  []*regexp.Regexp // of lower-case text, one for each form
	places []string         // file:line of each that is there
}

func parse(text string) (all []*phrase, err error) {
	for i, l := range strings.Split(text, "\n") {
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		f := strings.Split(l, "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("%s:%d: %d fields; want phrase, tab, plain word, tab, number", list, i+1, len(f))
		}
		p := &phrase{forms: strings.Split(f[0], ", "), instead: f[1]}
		if p.allowed, err = strconv.Atoi(f[2]); err != nil || p.allowed < 0 {
			return nil, fmt.Errorf("%s:%d: %q is not a number of places", list, i+1, f[2])
		}
		for _, form := range p.forms {
			p.match = append(p.match, regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(form), " ", `\s+`)))
		}
		all = append(all, p)
	}
	return all, nil
}

// count finds the places of the phrases.
func count(in fs.FS, phrases []*phrase) error {
	return fs.WalkDir(in, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case file != "." && strings.HasPrefix(d.Name(), "."), slices.Contains(left, file), d.Name() == "testdata", d.Name() == "node_modules":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir(), !strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, ".md"):
			return nil
		}
		text, err := fs.ReadFile(in, file)
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, ".go") {
			text = proseOf(text)
		}
		prose := strings.ToLower(string(text))
		for _, p := range phrases {
			p.count(file, prose)
		}
		return nil
	})
}

func (p *phrase) count(file, prose string) {
	var lines []int
	for _, m := range p.match {
		for _, at := range m.FindAllStringIndex(prose, -1) {
			if !letter(prose, at[0]-1) && !letter(prose, at[1]) {
				lines = append(lines, 1+strings.Count(prose[:at[0]], "\n"))
			}
		}
	}
	slices.Sort(lines)
	for _, l := range lines {
		p.places = append(p.places, fmt.Sprintf("%s:%d", file, l))
	}
}

// letter reports whether there is a part of a word at i.
func letter(s string, i int) bool {
	return i >= 0 && i < len(s) && (s[i] == '_' || s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'z')
}

// proseOf blanks out what is neither comment nor string, and the marks of comments, so that a phrase is also found
// over the end of a line, and each line keeps its number.
func proseOf(src []byte) []byte {
	prose := make([]byte, len(src))
	for i, b := range src {
		if prose[i] = ' '; b == '\n' {
			prose[i] = b
		}
	}
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return prose
		}
		at := int(pos) - 1
		switch tok {
		case token.COMMENT:
			copy(prose[at:], strings.Replace(lit, "//", "  ", 1))
		case token.STRING:
			copy(prose[at:], lit)
		}
	}
}

// judge returns an error if there are more of a phrase than its number, and a line for each of which there are fewer.
func judge(phrases []*phrase) (reduced []string, more error) {
	for _, p := range phrases {
		switch n := len(p.places); {
		case n > p.allowed:
			more = errors.Join(more, fmt.Errorf("%q: %d times, and %d are allowed. Write: %s. Places: go run ./internal/wording -where '%s'", p.forms[0], n, p.allowed, p.instead, p.forms[0]))
		case n < p.allowed:
			reduced = append(reduced, fmt.Sprintf("%q: %d times, and %d are allowed: lower the number with go run ./internal/wording -refresh", p.forms[0], n, p.allowed))
		}
	}
	return reduced, more
}

// lowered is the list with lower numbers where there are fewer places. No number is raised.
func lowered(text string, phrases []*phrase) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		f := strings.Split(l, "\t")
		for _, p := range phrases {
			if len(f) == 3 && f[0] == strings.Join(p.forms, ", ") {
				f[2] = strconv.Itoa(min(p.allowed, len(p.places)))
				lines[i] = strings.Join(f, "\t")
			}
		}
	}
	return strings.Join(lines, "\n")
}

// print prints the places by directory, most first.
func (p *phrase) print(out io.Writer) {
	by := map[string]int{}
	for _, place := range p.places {
		by[path.Dir(place)]++
	}
	dirs := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if by[a] != by[b] {
			return by[b] - by[a]
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(out, "%5d  %s\n", len(p.places), p.forms[0])
	for _, d := range dirs {
		fmt.Fprintf(out, "       %5d  %s\n", by[d], d)
	}
}
