package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"testing"
	"time"
)

// withFastAPI is a Python that can import FastAPI and uvicorn: the first one on the PATH, or the one that Debian's packages
// are for.
func withFastAPI(t *testing.T) string {
	t.Helper()
	imports := func(path string) error {
		out, err := exec.Command(path, "-c", "import fastapi, uvicorn").CombinedOutput()
		if err != nil {
			return errors.New(string(out))
		}
		return nil
	}
	if path := python(t); imports(path) == nil {
		return path
	}
	return needed(t, "PERDURE_TEST_REQUIRE_PYTHON", "/usr/bin/python3", imports)
}

// The types of the package hold under mypy's strictest rules, and so do the examples and a program of a user; what is wrong
// in that program is noticed (python/tests/typed.py).
func TestPythonTypes(t *testing.T) {
	t.Parallel()
	python(t)
	mypy := needed(t, "PERDURE_TEST_REQUIRE_PYTHON", "mypy", func(string) error { return nil })
	for _, files := range [][]string{
		{"perdure", "examples/payments.py", "tests/typed.py"},
		{"--ignore-missing-imports", "--allow-untyped-decorators", "--allow-subclassing-any", "examples/fastapi_app.py"},
	} {
		cmd := exec.Command(mypy, append([]string{"--strict", "--python-version", "3.9", "--cache-dir", t.TempDir()}, files...)...)
		cmd.Dir = "python"
		cmd.Env = append(environment(t), "MYPYPATH=.")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// application is examples/fastapi_app.py, as uvicorn runs it.
type application struct {
	*process
	t   *testing.T
	url string
}

func startApplication(t *testing.T, server string) *application {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	p := spawnIn(t, "python/examples", append(environment(t), "PERDURE_SERVER="+server),
		withFastAPI(t), "-m", "uvicorn", "fastapi_app:app", "--port", port)
	a := &application{process: p, t: t, url: "http://127.0.0.1:" + port}
	a.until("application", func() bool {
		resp, err := http.Get(a.url + "/letters/nothing")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return a
}

func (a *application) until(what string, ok func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatalf("no %s", what)
		}
	}
}

func (a *application) call(method, path, body string) (status int, answer object) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		a.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, raw)
	}
	return resp.StatusCode, answer
}

// An agent in the lifespan of a FastAPI application starts and stops with it. When the application is told to stop, what
// can finish within the grace does, and what cannot is given back and carried out by the next process. No run is lost:
// it would count as a failure.
func TestFastAPI(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	t.Parallel()
	withFastAPI(t) // or the test is skipped
	server := serve(t)
	first := startApplication(t, server)
	if status, answer := first.call("PUT", "/letters/short", `{"to": "Ada"}`); status != 202 || answer["created"] != true {
		t.Fatalf("%d %v", status, answer)
	}
	if status, answer := first.call("PUT", "/letters/short", `{"to": "Ada"}`); status != 202 || answer["created"] != false {
		t.Errorf("repeated: %d %v", status, answer)
	}
	if status, answer := first.call("PUT", "/letters/short", `{"to": "Bob"}`); status != 409 {
		t.Errorf("another definition: %d %v", status, answer)
	}
	if _, answer := first.call("GET", "/letters/short?wait=30", ""); answer["current"] != "done" || answer["runs"] != 1.0 {
		t.Errorf("%v", answer)
	}
	first.call("DELETE", "/letters/short", "")
	first.until("undo", func() bool {
		_, answer := first.call("GET", "/letters/short", "")
		return answer["current"] == "undone"
	})

	// One run takes six seconds, and the other five minutes: longer than the grace.
	first.call("PUT", "/letters/fits", `{"to": "Ada", "parts": 60}`)
	first.call("PUT", "/letters/long", `{"to": "Ada", "parts": 3000}`)
	for _, key := range []string{"fits", "long"} { // what has not begun would be given back
		first.until("progress", func() bool {
			step := stepOf(t, server, key, "send")
			return step["progress"] != nil || step["outcome"] != nil
		})
	}
	if _, answer := first.call("GET", "/letters/long", ""); answer["phase"] != "running" || answer["waitsFor"] == nil || answer["error"] != nil {
		t.Errorf("what runs: %v", answer)
	}
	first.stop()
	if err := first.wait(); err != nil {
		t.Errorf("the application ends with %v", err)
	}
	second := startApplication(t, server)
	if _, answer := second.call("GET", "/letters/fits", ""); answer["current"] != "done" || answer["runs"] != 1.0 {
		t.Errorf("what fits into the grace: %v", answer)
	}
	second.until("second run", func() bool { _, answer := second.call("GET", "/letters/long", ""); return answer["runs"] == 2.0 })
	if step := stepOf(t, server, "long", "send"); step["failures"] != 0.0 || step["returns"] != 1.0 {
		t.Errorf("what does not fit into the grace: %v", step)
	}
	second.call("DELETE", "/letters/long", "")
	second.until("undo", func() bool {
		_, answer := second.call("GET", "/letters/long", "")
		return answer["current"] == "undone"
	})
	second.stop()
	if err := second.wait(); err != nil {
		t.Errorf("the application ends with %v", err)
	}
}

func stepOf(t *testing.T, server, job, step string) (view object) {
	t.Helper()
	resp, err := http.Get(server + "/v1/jobs/" + job + "/steps/" + step)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&view); err != nil {
		t.Fatal(err)
	}
	return view
}
