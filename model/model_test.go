// Package model checks the models of the rules, perdure.pml and host.pml, and that each rule taken away is missed.
package model

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	envRequire = "PERDURE_TEST_REQUIRE_SPIN"
	depth      = "-m1000000"
)

// check tries all states of a model and returns what spin's verifier says. Options of the compiler and of the
// verifier choose what is looked for.
func check(t *testing.T, model string, defines, build, verify []string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs(model)
	if err != nil {
		t.Fatal(err)
	}
	command := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out)
	}
	made := command("spin", append(append([]string{"-a"}, defines...), file)...)
	made += command("cc", slices.Concat(build, []string{"-o", "pan", "pan.c"})...)
	if _, err := os.Stat(filepath.Join(dir, "pan")); err != nil {
		t.Fatalf("the model cannot be built:\n%s", made)
	}
	out := command("./pan", append(verify, depth, "-w22")...)
	if strings.Contains(out, "max search depth too small") || strings.Contains(out, "out of memory") {
		t.Fatalf("not all was tried:\n%s", out)
	}
	return out
}

func tools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv(envRequire) == "1" {
				t.Fatalf("%s=1, and %v", envRequire, err)
			}
			t.Skipf("%v (scripts/setup installs it)", err)
		}
	}
}

var (
	safety   = []string{"-DSAFETY"} // not optimized: the compiler would take longer than the check
	cycles   = []string{"-DNP"}
	errorsIn = regexp.MustCompile(`errors: (\d+)`)
	states   = regexp.MustCompile(`(\d+) states, stored`)
)

// The rules hold in every order of events: I5, I6, I7, I9, I10, I12, and L1: every sequence of events ends, and at its
// end the job is settled or parked. (F025, F038, F057, F059, F088, F090, F091)
func TestModelHolds(t *testing.T) {
	tools(t)
	for name, c := range map[string]struct{ build, verify []string }{
		"safety and ends": {safety, nil},
		"no cycles":       {cycles, []string{"-l"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := check(t, "perdure.pml", nil, c.build, c.verify)
			if m := errorsIn.FindStringSubmatch(out); m == nil || m[1] != "0" {
				t.Fatalf("%s", out)
			}
			t.Log(states.FindString(out))
		})
	}
}

// Each rule that is taken away is missed, by the assertion that stands for it.
func TestModelFindsBugs(t *testing.T) {
	tools(t)
	for bug, assertion := range map[string]string{
		"NORUN":    "(num==step[at].ghostValid)", // a report of any run counts
		"LATE":     "(num==step[at].ghostValid)", // a report after its lock has passed counts
		"EARLY":    "ghostValid==0",              // runs expire before their locks
		"DONEONLY": "service[0].effect>0",        // only what is known to be done is undone
		"COUNTER":  "(ghostOut<=1)",              // permits are counted up and down, with each report
		"KEEP":     "(counter<1)",                // a run that expires keeps its permit
		"NOORDER":  "!(service[1].effect)",       // it is undone in any order
		"NOFENCE":  "service[",                   // the services take what comes: not ours to promise
		"NOSWEEP":  "(ghostOut==0)",              // no due scan
		"FORGET":   "(service[at].effect==key)",  // done is desired again, and a begun undo is forgotten
	} {
		t.Run(bug, func(t *testing.T) { violated(t, check(t, "perdure.pml", []string{"-D" + bug}, safety, nil), assertion) })
	}
}

func violated(t *testing.T, out, assertion string) {
	t.Helper()
	m := errorsIn.FindStringSubmatch(out)
	if m == nil || m[1] == "0" || !strings.Contains(out, "assertion violated") || !strings.Contains(out, assertion) {
		t.Fatalf("wanted %s:\n%s", assertion, out)
	}
}

// A command of a host lives only while its run is valid (I22, I24), and a run that is done has an exit record (I23), in every
// order of claims, heartbeats, reports, crashes of host agent and keeper, and lost answers. (F184, F186, F230, F232)
func TestModelOfHostsHolds(t *testing.T) {
	tools(t)
	out := check(t, "host.pml", nil, safety, nil)
	if m := errorsIn.FindStringSubmatch(out); m == nil || m[1] != "0" {
		t.Fatalf("%s", out)
	}
	t.Log(states.FindString(out))
}

// As TestModelFindsBugs.
func TestModelOfHostsFindsBugs(t *testing.T) {
	tools(t)
	const living, record = "host.command>0", "(host.exit==a)"
	for bug, assertion := range map[string]string{
		"NOKILL":    living, // the keeper does not end the command at the lock
		"RECEIVED":  living, // a lock counts from the arrival of the answer
		"NOOPEN":    living, // a run of an open claim is lost if it is not listed
		"NOASOF":    living, // a run is lost if it is not listed, whenever it was dispatched
		"UNADOPTED": living, // complete heartbeats begin before the adoption
		"ORPHAN":    living, // the command outlives its keeper
		"NOEXIT":    record, // done is reported without an exit record
	} {
		t.Run(bug, func(t *testing.T) { violated(t, check(t, "host.pml", []string{"-D" + bug}, safety, nil), assertion) })
	}
}
