package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/descriptors"
	"github.com/perdure/perdure/protocol"
)

// F159: a run that gets no file descriptor is returned. No failure is counted, neither for its service nor for the step.
func TestNoDescriptorForAConnectionReturnsTheRun(t *testing.T) {
	url, a := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	all := takeAll(t)
	for range 2 * breakerCalls { // the circuit stays closed
		_, err := execute(t, a, aRun(m{"url": url}))
		if r := protocol.ReportOf(aRun(nil), nil, err); r.Outcome != perdure.OutcomeReturned || r.Effect != "" || r.Check() != nil || r.Error.Message == "" {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	release(all)
	if _, err := execute(t, a, aRun(m{"url": url})); err != nil {
		t.Errorf("once there are descriptors: %v", err)
	}
}

// F159: if no descriptor is left, an idle connection is closed for a run that needs one, of this agent or of another
// (the agent shell takes its descriptors in this way). Each connection gives its descriptor back.
func TestIdleConnectionIsClosedForARun(t *testing.T) {
	for name, need := range map[string]func(*testing.T, *perdure.Agent) error{
		"connection to another host": func(t *testing.T, a *perdure.Agent) error {
			other, _ := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
			_, err := execute(t, a, aRun(m{"url": other}))
			return err
		},
		"run of another agent": func(*testing.T, *perdure.Agent) error {
			release, err := descriptors.Take(1)
			if err == nil {
				release()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, a := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
			all := takeAll(t)
			all[0]()
			defer release(all)
			if _, err := execute(t, a, aRun(m{"url": url})); err != nil {
				t.Fatal(err)
			}
			if err := need(t, a); err != nil {
				t.Errorf("while a connection is idle: %v", err)
			}
		})
	}
}

// takeAll takes all remaining descriptors of the agents' share.
func takeAll(t *testing.T) (taken []func()) {
	t.Helper()
	for {
		r, err := descriptors.Take(1)
		if err != nil {
			return taken
		}
		taken = append(taken, r)
	}
}

func release(taken []func()) {
	for _, r := range taken {
		r()
	}
}

func TestMissingDescriptorIsRecognized(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{dial(os.NewSyscallError("socket", syscall.EMFILE)), true},
		{dial(os.NewSyscallError("socket", syscall.ENFILE)), true},
		{dial(&net.DNSError{Err: dial(os.NewSyscallError("socket", syscall.EMFILE)).Error(), Name: "shop"}), true},
		{dial(&net.DNSError{Err: dial(os.NewSyscallError("socket", syscall.ENFILE)).Error(), Name: "shop"}), true},
		{dial(&net.DNSError{Err: "no such host", Name: "shop"}), false},
		{dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), false},
		{context.DeadlineExceeded, false},
		{fmt.Errorf("the service said: %w", errors.New("too many open files")), false},
	} {
		if got := lacksDescriptor(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
