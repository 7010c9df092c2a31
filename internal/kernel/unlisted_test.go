package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// F184, F185: a complete heartbeat ends the runs that its holder must have known when it sent the heartbeat, and no others.
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
	for name, test := range map[string]struct {
		steps   []*Step
		listed  []string // "name" or "name*": with an earlier run number
		request string
		want    []string
	}{
		"all are listed":                         {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, []string{"a", "b"}, "r2", nil},
		"of the latest claim":                    {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, []string{"a"}, "r2", []string{"b"}},
		"before the latest claim":                {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, []string{"b"}, "r2", []string{"a"}},
		"before a listed run":                    {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, []string{"b"}, "", []string{"a"}},
		"after the latest claim":                 {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, []string{"a"}, "r1", nil},
		"at the time of the latest claim":        {[]*Step{step("a", "r1", 1), step("b", "r2", 1)}, []string{"a"}, "r1", nil},
		"none is listed":                         {[]*Step{step("a", "r1", 1), step("b", "r2", 2)}, nil, "r2", []string{"a", "b"}},
		"nothing is known":                       {[]*Step{step("a", "r1", 1), step("b", "", 2)}, nil, "", nil},
		"the latest claim has no runs left":      {[]*Step{step("a", "r1", 1)}, nil, "r2", nil},
		"another run of the step is listed":      {[]*Step{step("a", "r2", 2), step("b", "r0", 1)}, []string{"a*"}, "r1", nil},
		"other holders":                          {[]*Step{step("a", "r1", 1, of("g")), step("b", "r2", 2)}, []string{"b"}, "r1", nil},
		"a run of another holder proves nothing": {[]*Step{step("a", "r1", 1), step("b", "r2", 2, of("g"))}, []string{"b"}, "r2", nil},
		"not running":                            {[]*Step{step("a", "r1", 1, phase(perdure.Ready)), step("b", "r2", 2)}, []string{"b"}, "r1", nil},
	} {
		var listed []protocol.Heartbeat
		for _, name := range test.listed {
			b := protocol.Heartbeat{Step: name, Run: 3}
			if name == "a*" {
				b = protocol.Heartbeat{Step: "a", Run: 2}
			}
			listed = append(listed, b)
		}
		var got []string
		for _, s := range Unlisted(test.steps, "h", listed, test.request) {
			got = append(got, s.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, not %v", name, got, test.want)
		}
	}
}
