package sdk

import (
	"encoding/json"
	"fmt"
	"net/http"
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
var documents = []string{"python/README.md", "typescript/README.md", "../docs/guides/python.md", "../docs/guides/typescript.md"}

var block = regexp.MustCompile("(?ms)^```(python|ts)\n(?:#|//) (\\w+\\.(?:py|ts))\n(.*?)^```$")

// otherPrograms are the further programs of the documents in Python, and what the end of their output is after the agent
// has done the job of submit.py. A module that they import prints nothing.
var otherPrograms = map[string]string{
	"hotel":   "",
	"operate": "at most 30 nights\nnotFound\n",
	"reasons": "room parked tooLong at most 30 nights\n" +
		"room parked after 1 failure, last: at most 30 nights; try: resume, skip, settle, or undo the job\nrejected room tooLong: at most 30 nights\n",
}

// withParkedTrip submits the job that the operator's program of a guide settles. It returns a function that checks that.
func withParkedTrip(t *testing.T, server string) (check func()) {
	t.Helper()
	return withParkedJob(t, server, "parked-trip")
}

// withParkedJob submits a job with a key, and waits until it is parked, because the hotel of the guides rejects it. It
// returns a function that checks that a program has settled it.
func withParkedJob(t *testing.T, server, key string) (check func()) {
	t.Helper()
	resp, err := http.Post(server+"/v1/jobs", "application/yaml", strings.NewReader(
		"type: trip\nkey: "+key+"\nsteps: {room: {agent: hotel, action: book, with: {guest: Bob, nights: 99}, undo: {}}}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	phase := func(wait string) (any, any) {
		resp, err := http.Get(server + "/v1/jobs/" + key + "?wait=" + wait)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var job object
		if err := json.NewDecoder(resp.Body).Decode(&job); err != nil {
			t.Fatal(err)
		}
		return job["phase"], job["current"]
	}
	if is, _ := phase("60s"); is != "parked" {
		t.Errorf("the job is %v, want parked", is)
	}
	return func() {
		t.Helper()
		if is, current := phase("0s"); is != "settled" || current != "done" {
			t.Errorf("the operator's program left the job %v and %v", is, current)
		}
	}
}

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
			t.Run(filepath.Dir(snippet(doc, kind))+"/"+kind, func(t *testing.T) {
				t.Parallel()
				sources := t.TempDir() // a program may import another one
				for name, text := range programs {
					if err := os.WriteFile(filepath.Join(sources, name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				command := func(name string) []string {
					if kind == "ts" {
						run := node(t)
						return []string{run, absolute(t, filepath.Join("typescript/build/snippets", snippet(doc, name+".js")))}
					}
					return []string{python(t), filepath.Join(sources, name+".py")}
				}
				agent, submit := command("agent"), command("submit") // compiled before the server starts
				dir := t.TempDir()
				server := serve(t)
				env := append(environment(t), "PERDURE_SERVER="+server, "PERDURE_BINARY="+built(t, "perdure"), "PERDURE_TEST_REQUIRE_SERVER=1",
					"PYTHONPATH="+absolute(t, "python")+string(os.PathListSeparator)+sources)
				run := func(argv []string) string {
					t.Helper()
					cmd := exec.Command(argv[0], argv[1:]...)
					cmd.Dir, cmd.Env = dir, env
					kill := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
					defer kill.Stop()
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Errorf("%q: %v\n%s", argv, err, out)
					}
					return string(out)
				}
				spawnIn(t, dir, env, agent...)
				if out := run(submit); !strings.HasPrefix(out, "done") || !strings.HasSuffix(out, "undone\n") {
					t.Errorf("it prints %q", out)
				}
				for name := range programs {
					name, ext := strings.TrimSuffix(name, ".py"), filepath.Ext(name)
					switch want, listed := otherPrograms[name]; {
					case ext != ".py" || name == "agent" || name == "submit":
					case strings.HasPrefix(name, "test_"):
						run([]string{python(t), "-W", "error", "-m", "unittest", "-v", name})
					case listed:
						check := func() {}
						switch name {
						case "operate":
							check = withParkedTrip(t, server)
						case "reasons":
							_ = withParkedJob(t, server, "trip-18") // as it is in the guide
						}
						if out := run(command(name)); !strings.HasSuffix(out, want) || want == "" && out != "" {
							t.Errorf("%s prints %q, want %q", name, out, want)
						}
						check()
					default:
						t.Errorf("%s: nothing runs %s.py", doc, name)
					}
				}
			})
		}
	}
}
