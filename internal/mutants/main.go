// Command mutants tests the tests (make mutants): it puts one bug after another into Perdure, and runs the tests that
// must notice it. A bug that they do not notice shows a missing test.
//
// The files are not changed: the compiler reads others in their place (go build's -overlay).
//
// With PERDURE_WITHOUT (package speed), it leaves out mutants whose tests fail without the optimisation even if there is
// no bug: those tests are about the optimisation.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/speed"
)

func all() []mutant {
	return slices.Concat(ofRules, ofActors, ofText, ofBounds, ofStores, ofReach, ofNotifications, ofAccess, ofValues)
}

func main() {
	only := flag.String("run", "", "only those whose name or file matches this `REGEXP`")
	jobs := flag.Int("jobs", runtime.NumCPU(), "how many at once")
	most := flag.Duration("timeout", 3*time.Minute, "how long the tests of one may take: who hangs was noticed")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Puts known bugs into Perdure, one at a time, and demands that its tests notice.\n\n"+
			"  go run ./internal/mutants\n  go run ./internal/mutants -run 'limit|sqlite'\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*only, *jobs, *most); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, jobs int, most time.Duration) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "perdure-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	began := time.Now()
	verdicts := make([]verdict, len(chosen))
	next := make(chan int, len(chosen))
	for i := range chosen {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range max(jobs, 1) {
		wg.Go(func() {
			for i := range next {
				verdicts[i] = chosen[i].judge(filepath.Join(dir, fmt.Sprint(i)), most)
				fmt.Printf("%-9s %-22s %s (%s)\n", verdicts[i].word(), verdicts[i].by, chosen[i].name, chosen[i].file)
			}
		})
	}
	wg.Wait()
	return report(chosen, verdicts, time.Since(began))
}

func choose(only string) ([]mutant, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(all(), func(m mutant) bool { return !wanted.MatchString(m.name + " " + m.file) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant matches %q", only)
	}
	return chosen, nil
}

func report(chosen []mutant, verdicts []verdict, duration time.Duration) error {
	survived, broken, leftOut := 0, 0, 0
	for i, v := range verdicts {
		switch {
		case v.err != nil:
			broken++
			fmt.Printf("\n%s (%s): %v\n", chosen[i].name, chosen[i].file, v.err)
		case v.leftOut:
			leftOut++
		case !v.killed:
			survived++
			fmt.Printf("\n%s (%s): go test -run '%s' ./%s did not notice\n", chosen[i].name, chosen[i].file, chosen[i].run, chosen[i].tests())
		}
	}
	fmt.Printf("\n%d mutants in %s: %d noticed, %d not, %d could not be tried", len(chosen), duration.Round(time.Second), len(chosen)-survived-broken-leftOut, survived, broken)
	if leftOut > 0 {
		fmt.Printf(", %d left out", leftOut)
	}
	fmt.Println()
	if survived+broken > 0 {
		return errors.New("not every bug was noticed")
	}
	return nil
}

// verdict is the result of one mutant.
type verdict struct {
	killed  bool
	by      string // the first test that failed
	leftOut bool   // its tests are about an optimisation that is switched off
	err     error  // the mutant could not be tried
}

func (v verdict) word() string {
	switch {
	case v.err != nil:
		return "ERROR"
	case v.killed:
		return "noticed"
	case v.leftOut:
		return "left out"
	}
	return "SURVIVED"
}

// apply returns the file with the bug.
func (m *mutant) apply() ([]byte, error) {
	text, err := os.ReadFile(filepath.FromSlash(m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 || m.old == "" {
		return nil, fmt.Errorf("it does not apply: what is to be replaced is there %d times", n)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// tests returns the package whose tests must notice.
func (m *mutant) tests() string {
	if m.pkg != "" {
		return m.pkg
	}
	return path.Dir(m.file)
}

func (m *mutant) judge(dir string, most time.Duration) verdict {
	text, err := m.apply()
	if err != nil {
		return verdict{err: err}
	}
	overlay, err := m.overlay(dir, text)
	if err != nil {
		return verdict{err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), most+time.Minute) // the time includes the build
	defer cancel()
	if os.Getenv(speed.Variable) != "" {
		if _, err := m.test(ctx, most); err != nil {
			return verdict{leftOut: true}
		}
	}
	out, err := m.test(ctx, most, "-overlay="+overlay)
	switch {
	case err == nil && bytes.Contains(out, []byte("no tests to run")):
		return verdict{err: fmt.Errorf("there is no test %s in %s", m.run, m.tests())}
	case err == nil:
		return verdict{}
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return verdict{err: fmt.Errorf("it does not compile:\n%s", out)}
	}
	return verdict{killed: true, by: firstFailed(out)}
}

// test runs the tests that must notice.
func (m *mutant) test(ctx context.Context, most time.Duration, flags ...string) (out []byte, err error) {
	args := append([]string{"test", "-vet=off", "-count=1", "-failfast", "-timeout=" + most.String()}, flags...)
	if m.run != "" {
		args = append(args, "-run="+m.run)
	}
	args = append(args, "./"+m.tests())
	if m.tests() == "." {
		args = append(args, "-rapid.nofailfile") // otherwise later tests would begin with the failures of this mutant
	}
	return exec.CommandContext(ctx, "go", args...).CombinedOutput()
}

// overlay writes the file that the compiler reads in place of the original.
func (m *mutant) overlay(dir string, text []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	original, err := filepath.Abs(filepath.FromSlash(m.file))
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func firstFailed(out []byte) string {
	if m := failed.FindSubmatch(out); m != nil {
		name, _, _ := strings.Cut(string(m[1]), "/")
		return name
	}
	if bytes.Contains(out, []byte("test timed out")) {
		return "(time)"
	}
	return "(panic)"
}
