package http

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/protocol"
)

func TestCircuitOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers()
		call := func(h health) error {
			verdict, err := b.enter("shop.example")
			if err == nil {
				verdict(h)
			}
			return err
		}
		for range 200 { // half of the calls failing is not enough
			if call(healthy) != nil || call(unhealthy) != nil {
				t.Fatal("opened")
			}
		}
		time.Sleep(2 * breakerPeriod)
		for range breakerCalls {
			if err := call(unhealthy); err != nil {
				t.Fatal("opened too early")
			}
		}
		err := call(healthy)
		if verdict(err) != "failed circuitOpen none" {
			t.Fatalf("%s: %v", verdict(err), err)
		}
		if r := protocol.ReportOf(aRun(nil), nil, err); time.Duration(r.Error.RetryAfter) != breakerDelay {
			t.Errorf("retryAfter %s", r.Error.RetryAfter)
		}
		if err := b.probe("other.example"); err != nil {
			t.Error("another host's circuit is open")
		}
		time.Sleep(breakerDelay)
		try, err := b.enter("shop.example")
		if err != nil {
			t.Fatal("no request may be tried")
		}
		if call(healthy) == nil {
			t.Error("two may try at once")
		}
		try(unknownHealth)
		if call(healthy) == nil {
			t.Error("a try that showed nothing has closed it")
		}
		time.Sleep(breakerDelay)
		if err := errors.Join(call(healthy), call(healthy)); err != nil {
			t.Error("a try that went well has not closed it")
		}
	})
}

func (b *breakers) probe(host string) error {
	_, err := b.enter(host)
	return err
}

func TestBreakersAreBounded(t *testing.T) {
	b := newBreakers()
	for i := range 3 * maxBreakerHosts {
		b.of(fmt.Sprint("host-", i))
	}
	if n := len(b.byHost); n != maxBreakerHosts {
		t.Errorf("%d hosts", n)
	}
}

// A server that fails gets no more calls for a while. Answers such as 429, 404 and 200 do not open the circuit.
func TestOnlyAFailingServerOpensTheCircuit(t *testing.T) {
	var requests, status atomic.Int32
	url, a := serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(int(status.Load()))
	})
	for _, c := range []struct{ status, asked int32 }{{429, 60}, {404, 60}, {200, 60}} {
		requests.Store(0)
		status.Store(c.status)
		for range 60 {
			_, _ = execute(t, a, aRun(m{"url": url}))
		}
		if requests.Load() != c.asked {
			t.Errorf("%d: asked %d times", c.status, requests.Load())
		}
	}
	url, a = serve(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { requests.Add(1); w.WriteHeader(503) })
	requests.Store(0)
	for range 60 {
		_, _ = execute(t, a, aRun(m{"url": url}))
	}
	if requests.Load() != breakerCalls {
		t.Errorf("503: asked %d times", requests.Load())
	}
}
