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

	"perdure"
	"perdure/internal/descriptors"
)

// F159: a run that finds no file descriptor is returned: no failure is counted, neither for its service nor for the
// step.
func TestNoDescriptorForAConnectionReturnsTheRun(t *testing.T) {
	url, a := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	all := takeAll(t)
	for range 2 * breakerCalls { // the circuit stays closed
		_, err := execute(t, a, aRun(m{"url": url}))
		if r := perdure.ReportOf(aRun(nil), nil, err); r.Outcome != perdure.OutcomeReturned || r.Effect != "" || r.Check() != nil || r.Error.Message == "" {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	all()
	if _, err := execute(t, a, aRun(m{"url": url})); err != nil {
		t.Errorf("once there are descriptors: %v", err)
	}
}

// An idle connection is closed for one that is needed now, and each connection gives its descriptor back.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	first, a := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	if _, err := execute(t, a, aRun(m{"url": first})); err != nil {
		t.Fatal(err)
	}
	all := takeAll(t)
	defer all()
	second, _ := serve(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	if _, err := execute(t, a, aRun(m{"url": second})); err != nil {
		t.Errorf("a connection to the first is kept, and the second is not reached: %v", err)
	}
}

// takeAll takes what is left of the agents' share.
func takeAll(t *testing.T) (release func()) {
	t.Helper()
	var taken []func()
	for {
		r, err := descriptors.Take(1)
		if err != nil {
			return func() {
				for _, r := range taken {
					r()
				}
			}
		}
		taken = append(taken, r)
	}
}

func TestStarved(t *testing.T) {
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
		if got := starved(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
