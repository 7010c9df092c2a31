package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// flaky is a server whose streams a test plays.
type flaky struct {
	perdure.Jobs
	follow func(see func(*perdure.JobView) error) error
}

func (f flaky) Follow(_ context.Context, _ string, see func(*perdure.JobView) error) error {
	return f.follow(see)
}

// A command that follows a job through a long quiet time is as patient with a server that goes away then, and reports
// the outage once.
func TestFollowAfterALongQuiet(t *testing.T) {
	for name, test := range map[string]struct {
		away time.Duration
		back bool
	}{"back": {50 * time.Second, true}, "gone": {2 * time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const quiet = 10 * time.Minute
				gone := perdure.Refuse(perdure.CodeUnavailable, "gone")
				begin := time.Now()
				svc := flaky{follow: func(see func(*perdure.JobView) error) error {
					v := sample()
					switch since := time.Since(begin); {
					case since < quiet:
						if err := see(v); err != nil {
							return err
						}
						time.Sleep(quiet)
						return gone
					case since < quiet+test.away:
						return gone
					}
					v.Phase = perdure.Parked
					return see(v)
				}}
				in := make(chan news)
				go followOne(t.Context(), svc, newTracker(sample(), perdure.Done), in)
				told := 0
				for n := range in {
					if n.lost != nil {
						told++
					}
					if n.ended {
						if (n.err == nil) != test.back || told != 1 {
							t.Errorf("%v after %s, and told %d times", n.err, time.Since(begin)-quiet, told)
						}
						return
					}
				}
			})
		})
	}
}
