package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
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

// away is a server that cannot be reached until an instant.
type away struct {
	service
	until time.Time
}

func (s *away) answer() error {
	if time.Now().Before(s.until) {
		return perdure.Refuse(perdure.CodeUnavailable, "cannot be reached")
	}
	return nil
}

func (s *away) GetHost(context.Context, string) (*operate.HostView, error) {
	return &operate.HostView{Drain: &operate.HostDrainView{}}, s.answer()
}

func (s *away) GetBulk(context.Context, string) (*operate.BulkView, error) {
	return &operate.BulkView{State: operate.BulkDone}, s.answer()
}

// F220: a command that waits goes on while the server is away, for a minute. Then it fails.
func TestCommandsWaitWhileTheServerIsAway(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *app, *target) error{
		"drain": func(ctx context.Context, a *app, on *target) error {
			_, err := a.awaitDrained(ctx, on, &operate.HostView{Name: "h", Runs: 1})
			return err
		},
		"bulk act": func(ctx context.Context, a *app, on *target) error {
			return a.followBulk(ctx, on, &operate.BulkView{State: operate.BulkRunning})
		},
	} {
		for _, lasts := range []time.Duration{lostFor - 5*time.Second, lostFor + 5*time.Second} {
			synctest.Test(t, func(t *testing.T) {
				var talk strings.Builder
				a := &app{out: &printer{w: io.Discard}, err: &talk}
				err := wait(t.Context(), a, &target{service: &away{until: time.Now().Add(lasts)}})
				if fails := lasts > lostFor; fails != (perdure.CodeOf(err) == perdure.CodeUnavailable) || !fails && err != nil || strings.Count(talk.String(), "trying again") != 1 {
					t.Errorf("%s, away for %s: %v; %s", name, lasts, err, talk.String())
				}
			})
		}
	}
}
