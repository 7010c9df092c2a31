package speed

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParseRefusesUnknownNames(t *testing.T) {
	for list, want := range map[string][]Optimisation{"": nil, "pass": {Pass}, " marks, pass ,": {Marks, Pass}, "all": Optimisations, "pass,all": Optimisations} {
		if got, err := Parse(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	if _, err := Parse("pass,haste"); err == nil || !strings.Contains(err.Error(), `unknown optimisation "haste"`) || !strings.Contains(err.Error(), "implicit-rows") {
		t.Error(err)
	}
}

// The variable switches optimisations off when the program starts. An unknown name ends the program.
func TestVariableSwitchesOptimisationsOff(t *testing.T) {
	if os.Getenv("SPEED_TEST") != "" {
		for _, d := range Optimisations {
			if d.On() == (d == Pass || d == Marks) {
				t.Errorf("%s: %v", d, d.On())
			}
		}
		return
	}
	run := func(without string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run", "TestVariableSwitchesOptimisationsOff$")
		cmd.Env = append(os.Environ(), "SPEED_TEST=1", Variable+"="+without)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("pass,marks"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("haste"); err == nil || !strings.Contains(out, Variable+`: unknown optimisation "haste"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// The target "without" of the Makefile lists each optimisation.
func TestMakefileHasAllOptimisations(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "ONLY  ?= " + strings.ReplaceAll(Names(), ", ", " ") + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("it has no line %q", want)
	}
}
