// Package docs has tests that hold the documentation against the code.
package docs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
)

func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var complete = regexp.MustCompile("(?s)<!-- complete -->\n```yaml\n(.*?)```")

// Every block that says that it is complete is a definition that would be accepted.
func TestDefinitionsAreValid(t *testing.T) {
	n := 0
	for _, page := range pages(t) {
		for _, m := range complete.FindAllStringSubmatch(read(t, page), -1) {
			n++
			_, err := definition.Parse([]byte(m[1]), definition.YAML, definition.Options{})
			var refused *perdure.Error
			if errors.As(err, &refused) {
				t.Errorf("%s:\n%s%v", page, m[1], definition.FormatError(page, []byte(m[1]), err))
			} else if err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if n < 4 {
		t.Fatalf("only %d complete definitions: is the mark spelled otherwise?", n)
	}
}

var (
	view     = regexp.MustCompile(`(?is)create view (?:perdure\.)?(\w+) as\s+select\b(.*?);`)
	comment  = regexp.MustCompile(`(?m)--.*$`)
	lastWord = regexp.MustCompile(`(\w+)"?\s*$`)
)

// columnsOf are the names that a select list gives: the last word of each of its items.
func columnsOf(list string) []string {
	var columns []string
	depth, start := 0, 0
	quoted := false
	item := func(text string) {
		if m := lastWord.FindStringSubmatch(text); m != nil {
			columns = append(columns, m[1])
		}
	}
	for i, c := range list {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			item(list[start:i])
			start = i + 1
		}
	}
	item(list[start:])
	return columns
}

// topLevelFrom cuts a select at its own from.
func topLevelFrom(body string) string {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case depth == 0 && i > 0 && strings.ContainsAny(body[i-1:i], " \n\t") && len(body) > i+4 && strings.EqualFold(body[i:i+4], "from"):
			return body[:i]
		}
	}
	return body
}

// Every column of every view of both stores is in schema.md, in the section of its view.
func TestSchemaIsDocumented(t *testing.T) {
	sections := map[string]string{}
	for _, s := range strings.Split(read(t, "schema.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		sections[strings.TrimSpace(name)] = text
	}
	files, err := filepath.Glob("../store/*/migrations/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal("no migrations", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		for _, m := range view.FindAllStringSubmatch(comment.ReplaceAllString(read(t, file), ""), -1) {
			name := strings.TrimPrefix(m[1], "perdure_") // on SQLite
			seen[name] = true
			section, ok := sections[name]
			if !ok {
				t.Errorf("%s: view %s has no section in schema.md", file, name)
				continue
			}
			if name == "steps" || name == "alerts" || name == "history" {
				section += sections["jobs"][:strings.Index(sections["jobs"], "| `key`")] // job_id is described there, for all
			}
			columns := columnsOf(topLevelFrom(m[2]))
			if len(columns) < 2 {
				t.Errorf("%s: view %s: read only the columns %v", file, name, columns)
			}
			for _, c := range columns {
				if !strings.Contains(section, "`"+c+"`") {
					t.Errorf("%s: column %s of view %s is not in schema.md", file, c, name)
				}
			}
		}
	}
	for _, want := range []string{"jobs", "steps", "alerts", "history", "limits", "nodes"} {
		if !seen[want] {
			t.Errorf("no migration makes the view %s", want)
		}
	}
}

// Every code is in errors.md, every reason and every refusal of a report in rest.md.
func TestWordsAreDocumented(t *testing.T) {
	for _, c := range []struct{ page, source, pattern string }{
		{"errors.md", "../errors.go", `Code = "(\w+)"`},
		{"errors.md", "../internal/rest/problem.go", `code\w+ +perdure\.Code = "(\w+)"`},
		{"rest.md", "../reason.go", `ReasonKind = "(\w+)"`},
		{"rest.md", "../protocol/protocol.go", `RefusalReason = "(\w+)"`},
		{"schema.md", "../view.go", `AlertKind = "(\w+)"`},
		{"errors.md", "../view.go", `AlertKind = "(\w+)"`},
	} {
		words := regexp.MustCompile(c.pattern).FindAllStringSubmatch(read(t, c.source), -1)
		if len(words) < 3 {
			t.Errorf("%s: found only %d words in it", c.source, len(words))
		}
		text := read(t, c.page)
		for _, w := range words {
			if !strings.Contains(text, "`"+w[1]+"`") {
				t.Errorf("%s of %s is not in %s", w[1], c.source, c.page)
			}
		}
	}
}

// Every problem code has a row in errors.md with its HTTP status and the exit code of the command line.
func TestProblemCodesHaveStatusAndExit(t *testing.T) {
	status := map[string]int{} // by name in net/http
	for n := 400; n < 600; n++ {
		status[strings.ReplaceAll(http.StatusText(n), " ", "")] = n
	}
	code := map[string]string{} // by name of the constant
	for _, file := range []string{"../errors.go", "../internal/rest/problem.go"} {
		for _, m := range regexp.MustCompile(`(?i)(code\w+) +(?:perdure\.)?Code += "(\w+)"`).FindAllStringSubmatch(read(t, file), -1) {
			code[m[1]] = m[2]
		}
	}
	exits := exitNumbers(t)
	exit := map[string]int{} // by name of the constant; 1 for all others
	for _, m := range regexp.MustCompile(`case ((?:perdure\.Code\w+(?:, )?)+):\s+return (exit\w+)`).FindAllStringSubmatch(read(t, "../cmd/perdure/exit.go"), -1) {
		for _, name := range strings.Split(m[1], ", ") {
			exit[strings.TrimPrefix(name, "perdure.")] = exits[m[2]]
		}
	}
	kinds := regexp.MustCompile(`(?:perdure\.)?(\w+): +\{http\.Status(\w+), "`).FindAllStringSubmatch(read(t, "../internal/rest/problem.go"), -1)
	if len(kinds) != len(code) || len(exit) < 10 {
		t.Fatalf("found %d codes, %d of them with a status and %d with an exit code", len(code), len(kinds), len(exit))
	}
	page := read(t, "errors.md")
	for _, k := range kinds {
		want, ends := status[k[2]], cmp.Or(exit[k[1]], 1)
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| `%s` \\| %d\\b[^|]*\\| %d \\|", code[k[1]], want, ends))
		if want == 0 || !row.MatchString(page) {
			t.Errorf("errors.md has no row for %s with status %d (%s) and exit code %d", code[k[1]], want, k[2], ends)
		}
	}
}

// exitNumbers are the exit codes of the command line, by the names of their constants.
func exitNumbers(t *testing.T) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\t(exit\w+) += (\d+)`).FindAllStringSubmatch(read(t, "../cmd/perdure/exit.go"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		numbers[m[1]] = n
	}
	if len(numbers) < 10 {
		t.Fatalf("found only %d exit codes", len(numbers))
	}
	return numbers
}

func TestExitCodesAreDocumented(t *testing.T) {
	section := sectionOf(t, "errors.md", "Exit codes")
	for name, n := range exitNumbers(t) {
		if !strings.Contains(section, fmt.Sprintf("\n| %d | ", n)) {
			t.Errorf("exit code %d (%s) is not in errors.md", n, name)
		}
	}
}

// Every code of a failed run that Perdure, its built-in agents or its packages for agents set is in errors.md.
func TestRunFailureCodesAreDocumented(t *testing.T) {
	section := sectionOf(t, "errors.md", "Codes of failed runs")
	words := map[string]string{} // by code, its file
	for glob, pattern := range map[string]string{
		"../agent.go":             `(?s)Rejected\(fmt\.Errorf\([^;{}]*?"(\w+)"\)\)`,
		"../protocol/*.go":        `Failed\(.*, "(\w+)"\)`,
		"../agents/*/*.go":        `(?:Failed|Rejected)\(.*, "(\w+)"\)|return "(\w+)"`,
		"../internal/agenthost/*": `Failed\(.*, "(\w+)"\)|Error\.Code = "(\w+)"`,
		"../internal/kernel/*.go": `Cause = "(\w+)"|code: "(\w+)"|ErrorCode, r\.LastError = "(\w+)"`,
		"../sdk/python/perdure/*": `code="(\w+)"|code = "(\w+)"`,
		"../sdk/typescript/src/*": `code: "(\w+)"`,
	} {
		files, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || filepath.Ext(file) == "" || strings.HasPrefix(filepath.Base(file), "testing.") {
				continue // or a test kit, whose fakes have codes of their own
			}
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
				if word := strings.Join(m[1:], ""); word != "" {
					words[word] = file
					found++
				}
			}
		}
		if found == 0 {
			t.Errorf("found no code in %s", glob)
		}
	}
	for word, file := range words {
		if !strings.Contains(section, "`"+word+"`") {
			t.Errorf("code %s of %s is not in errors.md", word, file)
		}
	}
	if len(words) < 20 {
		t.Errorf("found only %d codes: %v", len(words), words)
	}
}

// Every message that the pages explain is one that the code writes. FILE, ADDRESS and … stand for what varies.
func TestMessagesExist(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"../node", "../internal", "../store", "../cmd/perdure", "../tracing"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				source.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, section := range []string{sectionOf(t, "errors.md", "Messages of a node"), sectionOf(t, "operations.md", "The log")} {
		for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(section, -1) {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				n++
				for _, part := range regexp.MustCompile(`FILE|ADDRESS|…`).Split(m[1], -1) {
					if !strings.Contains(source.String(), strings.TrimSpace(part)) {
						t.Errorf("no message of the code contains %q", part)
					}
				}
			}
		}
	}
	if n < 30 {
		t.Errorf("found only %d messages", n)
	}
}

// sectionOf is the text under a heading of a page, to the next heading of the same level or a higher one.
func sectionOf(t *testing.T, page, heading string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^(#+) ` + regexp.QuoteMeta(heading) + `\n`).FindStringSubmatchIndex(read(t, page))
	if m == nil {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	text := read(t, page)[m[1]:]
	next := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, m[3]-m[2])).FindStringIndex(text)
	if next == nil {
		return text
	}
	return text[:next[0]]
}

// Every role is in operations.md, with what its leader does, and in schema.md.
func TestRolesAreDocumented(t *testing.T) {
	operations, schema := read(t, "operations.md"), read(t, "schema.md")
	for _, r := range kernel.RoleTable() {
		if row := fmt.Sprintf("| `%s` | %s |", r.Name, r.Does); !strings.Contains(operations, row) {
			t.Errorf("operations.md has no row %s", row)
		}
		if !strings.Contains(schema, "`"+r.Name+"`") {
			t.Errorf("role %s is not in schema.md", r.Name)
		}
	}
}

// Every metric is in operations.md.
func TestMetricsAreDocumented(t *testing.T) {
	text := read(t, "operations.md")
	source := read(t, "../internal/metrics/metrics.go") + read(t, "../internal/metrics/overview.go") + read(t, "../internal/rest/metrics.go")
	names := regexp.MustCompile(`(?:counter|histogram)\("(\w+)"|"perdure_(\w+)"`).FindAllStringSubmatch(source, -1)
	n := 0
	for _, m := range names {
		name := m[1] + m[2]
		if name == "" {
			continue
		}
		if n++; !strings.Contains(text, "`perdure_"+name+"`") {
			t.Errorf("metric perdure_%s is not in operations.md", name)
		}
	}
	if n < 10 {
		t.Errorf("found only %d metrics", n)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Every link to a file leads to one, and to a heading that is there.
func TestLinksLead(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
				continue
			}
			if fragment != "" && !slices.Contains(anchors(read(t, file)), fragment) {
				t.Errorf("%s: %s has no heading #%s", page, file, fragment)
			}
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)"></a>`)
)

// anchors are the headings of a page, as a link names them, and older names of a heading.
func anchors(text string) []string {
	var list []string
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(m[1])), " ", "-")
		list = append(list, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(name, ""))
	}
	return list
}

// Every direct dependency is in dependencies.md, and nothing else is.
func TestDependenciesAreExplained(t *testing.T) {
	text := read(t, "dependencies.md")
	var direct []string
	for _, line := range strings.Split(read(t, "../go.mod")+read(t, "../brokers/nats/go.mod"), "\n") {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] != "github.com/perdure/perdure" && strings.HasPrefix(fields[1], "v") && !strings.Contains(line, "// indirect") {
			direct = append(direct, fields[0])
		}
	}
	for _, module := range direct {
		if !strings.Contains(text, "`"+module+"`") {
			t.Errorf("%s is in go.mod, and dependencies.md does not say why", module)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+/[^`]+)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(direct, m[1]) {
			t.Errorf("dependencies.md explains %s, which is not in go.mod", m[1])
		}
	}
}

// Every command is in cli.md, with the exit codes.
func TestCommandsAreDocumented(t *testing.T) {
	text := read(t, "cli.md")
	files, err := filepath.Glob("../cmd/perdure/*.go")
	if err != nil {
		t.Fatal(err)
	}
	use := regexp.MustCompile(`Use:\s+"([\w-]+)`)
	flag := regexp.MustCompile(`(?:StringVar|BoolVar|IntVar|Var|VarP|StringVarP|StringArrayVarP|BoolVarP|StringSliceVar)\((?:&?[^,"]*(?:\{[^}]*\}(?:\})?)?), "([\w-]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := read(t, file)
		for _, m := range use.FindAllStringSubmatch(source, -1) {
			if name := m[1]; name != "perdure" && name != "cancel" && name != "help" && !strings.Contains(text, name) {
				t.Errorf("%s: command %s is not in cli.md", file, name)
			}
		}
		for _, m := range flag.FindAllStringSubmatch(source, -1) {
			if !strings.Contains(text, "--"+m[1]) && m[1] != "set" {
				t.Errorf("%s: flag --%s is not in cli.md", file, m[1])
			}
		}
	}
}
