package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// F184, F185, F186: a complete heartbeat ends the runs that its holder must have received when it sent the heartbeat, and no
// others.
func TestUnlistedRunsAreThoseThatTheHolderMustKnow(t *testing.T) {
	step := func(name, request string, second int64, edit ...func(*Step)) *Step {
		s := &Step{Name: name, Run: 3, Phase: perdure.Running, LockedBy: "h", Request: request, StartedAt: time.Unix(second, 0)}
		for _, e := range edit {
			e(s)
		}
		return s
	}
	of := func(holder string) func(*Step) { return func(s *Step) { s.LockedBy = holder } }
	phase := func(p perdure.Phase) func(*Step) { return func(s *Step) { s.Phase = p } }
	both := []*Step{step("a", "r1", 1), step("b", "r2", 2)}
	for name, test := range map[string]struct {
		steps  []*Step
		listed []string // "name" or "name*": with an earlier run number
		open   []string
		asOf   int64 // in seconds; 0: none
		want   []string
	}{
		"all are listed":                     {both, []string{"a", "b"}, nil, 3, nil},
		"one is listed":                      {both, []string{"a"}, nil, 3, []string{"b"}},
		"none is listed":                     {both, nil, nil, 3, []string{"a", "b"}},
		"of an open claim":                   {both, nil, []string{"r0", "r2"}, 3, []string{"a"}},
		"of an open claim, and later":        {both, nil, []string{"r1"}, 2, nil},
		"later":                              {both, nil, nil, 2, []string{"a"}},
		"at the same time":                   {both, nil, nil, 1, nil},
		"the first of a process":             {both, nil, nil, 0, nil},
		"another run of the step is listed":  {both, []string{"a*", "b"}, nil, 3, []string{"a"}},
		"other holders":                      {[]*Step{step("a", "r1", 1, of("g")), step("b", "r2", 2)}, []string{"b"}, nil, 3, nil},
		"not running":                        {[]*Step{step("a", "r1", 1, phase(perdure.Ready)), step("b", "r2", 2)}, []string{"b"}, nil, 3, nil},
		"a listed run proves nothing later":  {both, []string{"b"}, nil, 1, nil},
		"of a claim without a requestId":     {[]*Step{step("a", "", 1)}, nil, []string{"r1"}, 3, []string{"a"}},
		"what is listed is not in the store": {both[:1], []string{"a", "c"}, nil, 3, nil},
	} {
		c := &protocol.CompleteHeartbeat{Holder: "h", OpenClaims: test.open}
		if test.asOf > 0 {
			c.AsOf = time.Unix(test.asOf, 0)
		}
		for _, name := range test.listed {
			b := protocol.Heartbeat{Step: name, Run: 3}
			if name == "a*" {
				b = protocol.Heartbeat{Step: "a", Run: 2}
			}
			c.Runs = append(c.Runs, b)
		}
		var got []string
		for _, s := range Unlisted(test.steps, c) {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}
