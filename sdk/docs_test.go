package sdk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// documents have programs in them. A block of code that begins with the name of a file in a comment belongs to that file;
// several make one file, in their order.
var documents = []string{"python/README.md", "typescript/README.md", "../docs/guides/python-and-typescript.md", "../docs/guides/typescript.md"}

var block = regexp.MustCompile("(?ms)^```(python|ts)\n(?:#|//) (\\w+\\.(?:py|ts))\n(.*?)^```$")

// programsIn are the programs of a document in one language (python or ts), by name.
func programsIn(doc, language string) (map[string]string, error) {
	text, err := os.ReadFile(doc)
	if err != nil {
		return nil, err
	}
	programs := map[string]string{}
	found := block.FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "```python\n") + strings.Count(string(text), "```ts\n"); n != len(found) {
		return nil, fmt.Errorf("%s: %d of %d blocks of code do not say which file they are of", doc, n-len(found), n)
	}
	for _, m := range found {
		if m[1] == language {
			programs[m[2]] += m[3]
		}
	}
	return programs, nil
}

// snippet is where a program of a document is kept.
func snippet(doc, name string) string {
	dir := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(doc, "../"), ".md"), "/", "-")
	return filepath.Join(dir, name)
}

// The programs of the documents, against a real server: the agent works, the other submits a job, waits for it to be
// done, and has it undone.
func TestDocumentedPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	t.Parallel()
	for _, doc := range documents {
		for _, kind := range []string{"python", "ts"} {
			programs, err := programsIn(doc, kind)
			if err != nil {
				t.Fatal(err)
			}
			if len(programs) == 0 {
				continue
			}
			t.Run(snippet(doc, kind), func(t *testing.T) {
				t.Parallel()
				command := func(name string) []string {
					if kind == "ts" {
						run := node(t)
						return []string{run, absolute(t, filepath.Join("typescript/build/snippets", snippet(doc, name+".js")))}
					}
					path := filepath.Join(t.TempDir(), name+".py")
					if err := os.WriteFile(path, []byte(programs[name+".py"]), 0o644); err != nil {
						t.Fatal(err)
					}
					return []string{python(t), path}
				}
				agent, submit := command("agent"), command("submit")
				dir := t.TempDir()
				env := append(environment(t), "PERDURE_SERVER="+serve(t))
				spawnIn(t, dir, env, agent...)
				cmd := exec.Command(submit[0], submit[1:]...)
				cmd.Dir, cmd.Env = dir, env
				kill := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
				defer kill.Stop()
				out, err := cmd.CombinedOutput()
				if lines := strings.Fields(string(out)); err != nil || len(lines) < 2 || lines[0] != "done" || lines[len(lines)-1] != "undone" {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}
