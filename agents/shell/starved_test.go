package shell

import (
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/protocol"
)

// F159: a program that gets no file descriptors for its pipes is not started, and its run is returned.
func TestNoDescriptorForAProgramReturnsTheRun(t *testing.T) {
	var taken []func()
	for {
		r, err := descriptors.Take(1)
		if err != nil {
			break
		}
		taken = append(taken, r)
	}
	a := New(Config{})
	run := aRun(`{"command": ["true"]}`)
	_, err := a.Execute(t.Context(), run)
	if r := protocol.ReportOf(run, nil, err); r.Outcome != perdure.OutcomeReturned || r.Effect != "" || r.Check() != nil {
		t.Errorf("%v: %+v", err, r)
	}
	for _, release := range taken {
		release()
	}
	for range 3 { // each returns the descriptors that it took
		if _, err := a.Execute(t.Context(), run); err != nil {
			t.Error(err)
		}
	}
}
