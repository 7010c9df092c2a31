package sdk

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built compiles a command of this module once for all tests of this package.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := binaries[name]()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binaries = map[string]func() (string, error){
	"perdure": sync.OnceValues(func() (string, error) { return build("github.com/perdure/perdure/cmd/perdure") }),
	"shop":    sync.OnceValues(func() (string, error) { return build("github.com/perdure/perdure/examples/shop") }),
}

func build(pkg string) (string, error) {
	path := filepath.Join(scratch, filepath.Base(pkg))
	out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput()
	if err != nil {
		return "", errors.New(pkg + ": " + string(out))
	}
	return path, nil
}

// The shop's payment step is done by an agent in another language, which is killed in the middle, as everything else is:
// every order ends, and the ledgers are right (F035 to F038, F055, F088 to F092).
func TestShop(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole shop for some seconds")
	}
	t.Parallel()
	for name, agent := range map[string]func(t *testing.T) []string{
		"python": func(t *testing.T) []string { return []string{python(t), absolute(t, "python/examples/payments.py")} },
		"typescript": func(t *testing.T) []string {
			return []string{node(t), absolute(t, "typescript/build/examples/payments.js")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := agent(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for try, enough := 1, false; !enough; try++ { // all may be over before the demo has come to kill
				dir := filepath.Join(t.TempDir(), "shop")
				demo := exec.CommandContext(ctx, built(t, "shop"), "demo", "--perdure", built(t, "perdure"), "--orders", "20",
					"--seed", "4", "--timeout", "4m", "--dir", dir, "--payment-agent", strings.Join(argv, " "))
				demo.Env = environment(t)
				demo.Cancel = func() error { return demo.Process.Signal(syscall.SIGTERM) } // it ends its processes
				demo.WaitDelay = 20 * time.Second
				out, err := demo.CombinedOutput() // it exits 0 only if the audit finds nothing
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				enough = strings.Count(string(out), "kill -9 payment-agent\n") >= 2
				if !enough && try == 3 {
					t.Fatalf("the agent was killed too rarely\n%s", out)
				}
			}
		})
	}
}

// serve starts a node of its own for a test, and waits until it answers.
func serve(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	spawn(t, built(t, "perdure"), "serve", "--listen", address, "--store", "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if resp, err := http.Get("http://" + address + "/readyz"); err == nil {
			resp.Body.Close()
			return "http://" + address
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// The packages' own tests, which ask a real server too.
func TestUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	t.Parallel()
	for name, command := range map[string]func(t *testing.T) []string{
		"python": func(t *testing.T) []string {
			return []string{python(t), "-W", "error", "-m", "unittest", "discover", "-s", "python/tests", "-t", "python"}
		},
		"typescript": func(t *testing.T) []string {
			run := node(t)
			tests, err := filepath.Glob("typescript/build/tests/*.test.js")
			if err != nil || len(tests) == 0 {
				t.Fatal("there are no tests", err)
			}
			return append([]string{run, "--test"}, tests...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			argv := command(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(environment(t), "PERDURE_SERVER="+serve(t), "PERDURE_BINARY="+built(t, "perdure"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
