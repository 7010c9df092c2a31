package postgres_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
)

func fence(t *testing.T, s *postgres.Store) (fence int64) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kernel.Tx) (err error) {
		fence, err = tx.Fence()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return fence
}

func setbacks(t *testing.T, s *postgres.Store) (messages []string) {
	t.Helper()
	alerts, err := s.Alerts(t.Context(), kernel.AlertFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts {
		if a.Kind == perdure.AlertSetback {
			messages = append(messages, a.Message)
		}
	}
	return messages
}

// F016, F112: if the database changes to another timeline or cluster, the nodes raise the fence once, with one alert,
// and nodes that are started later do not raise it again.
func TestAnotherDatabaseRaisesTheFence(t *testing.T) {
	url := fresh(t)
	a, b := open(t, url), open(t, url)
	write(t, a, 1)
	if fence(t, a) != 0 || fence(t, b) != 0 || len(setbacks(t, a)) != 0 {
		t.Fatal("the fence was raised without a cause")
	}
	// The stored origin is that of another server now.
	exec(t, url, "update perdure.clock set origin = '4711/00000001'")
	before := time.Now()
	c := open(t, url) // it has not read an origin before
	raised := fence(t, c)
	if at := time.UnixMilli(raised); at.Sub(before).Abs() > time.Minute {
		t.Errorf("fence %d", raised)
	}
	if got := setbacks(t, c); len(got) != 1 || !strings.Contains(got[0], "it was 4711/00000001, and is ") {
		t.Errorf("alerts: %q", got)
	}
	for _, s := range []*postgres.Store{a, b, c, open(t, url)} {
		if again := fence(t, s); again != raised {
			t.Errorf("fence %d, was raised to %d", again, raised)
		}
	}
	if got := setbacks(t, c); len(got) != 1 {
		t.Errorf("%d alerts, want one", len(got))
	}
	exec(t, url, "update perdure.clock set origin = '4711/00000002'")
	time.Sleep(2 * time.Millisecond)
	if again := fence(t, open(t, url)); again <= raised {
		t.Errorf("fence %d after a second change, was %d", again, raised)
	}
}

// F112: a backup is restored while nodes run. They detect that the database has lost commits.
func TestOlderContentsRaiseTheFence(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	time.Sleep(300 * time.Millisecond) // until the mark is old enough to be written again
	write(t, s, 1)
	write(t, s, 2) // this transaction reads the mark
	exec(t, url, "update perdure.clock set mark = mark - interval '1 hour'")
	at := write(t, s, 3)
	raised := fence(t, s)
	if raised < at.Add(-time.Minute).UnixMilli() {
		t.Errorf("fence %d at %v", raised, at)
	}
	if got := setbacks(t, s); len(got) != 1 || !strings.Contains(got[0], "its clock was at ") {
		t.Errorf("alerts: %q", got)
	}
	write(t, s, 4)
	if again := fence(t, s); again != raised || len(setbacks(t, s)) != 1 {
		t.Errorf("the fence is %d, was raised to %d", again, raised)
	}
}

// A server that is stopped, or killed, and started again is the same database.
func TestSameDatabaseKeepsTheFence(t *testing.T) {
	server := pgtest.NewServer(t, true)
	if _, _, err := postgres.Migrate(t.Context(), server.URL); err != nil {
		t.Fatal(err)
	}
	s := open(t, server.URL)
	for i, kill := range []bool{false, true} {
		write(t, s, 10+i)
		server.Stop(kill)
		server.Start()
		write(t, s, 20+i)
	}
	if fence(t, s) != 0 || fence(t, open(t, server.URL)) != 0 || len(setbacks(t, s)) != 0 {
		t.Errorf("fence %d, alerts %q", fence(t, s), setbacks(t, s))
	}
}

// F016: a standby is promoted that lacks the last commits. Nodes detect the new timeline, and raise the fence.
func TestFailoverThatLosesCommitsRaisesTheFence(t *testing.T) {
	primary := pgtest.NewServer(t, true)
	if _, _, err := postgres.Migrate(t.Context(), primary.URL); err != nil {
		t.Fatal(err)
	}
	s := open(t, primary.URL)
	write(t, s, 1)
	standby := primary.Copy() // it lacks all later commits
	write(t, s, 2)            // acknowledged, but lost
	primary.Stop(true)
	early := open(t, standby.URL)
	if fence(t, early) != 0 {
		t.Error("the fence was raised by reading a standby")
	}
	standby.Promote()
	if fence(t, early) == 0 {
		t.Error("a store that was open before the promotion did not raise the fence")
	}
	other := open(t, standby.URL)
	if raised := fence(t, other); raised == 0 {
		t.Error("a new store did not raise the fence")
	}
	if got := setbacks(t, other); len(got) != 1 || !strings.Contains(got[0], "/00000001, and is ") || !strings.Contains(got[0], "/00000002)") {
		t.Errorf("alerts: %q", got)
	}
	if j, _, err := other.Job(t.Context(), job(2, "").Job.ID, 0); err != nil || j != nil {
		t.Errorf("the lost job is stored: %v, %v", j, err)
	}
}

// rollCall calls ReportNode for a node.
func rollCall(t *testing.T, s *postgres.Store, id string) {
	t.Helper()
	if _, err := s.ReportNode(t.Context(), kernel.NodeReport{Node: kernel.Node{ID: id, Since: time.Now()}, TTL: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
}

// F016, F150: after a failover each node compares the commits that were acknowledged to it with those of the new
// primary. The alert is closed when all nodes have found that none is missing, and not before.
func TestFailoverWithoutLossClosesItsAlert(t *testing.T) {
	for name, c := range map[string]struct {
		lost, dies, only bool // only: the other node has no row
		open             int
	}{
		"nothing is lost":                    {},
		"a commit of another node is lost":   {lost: true, open: 1},
		"another node dies with the primary": {dies: true, open: 1},
		"what was only read is lost":         {lost: true, dies: true, only: true, open: 1},
	} {
		t.Run(name, func(t *testing.T) {
			primary := pgtest.NewServer(t, false, "synchronous_commit=on")
			if _, _, err := postgres.Migrate(t.Context(), primary.URL); err != nil {
				t.Fatal(err)
			}
			standby := primary.Standby("one", primary.Addr())
			url := hosts(t, primary.URL, standby.URL)
			a, b := open(t, url), open(t, url)
			if !c.lost {
				requireStandby(t, primary.URL, "one")
			}
			rollCall(t, a, "a")
			if !c.only {
				rollCall(t, b, "b")
			}
			write(t, a, 1)
			write(t, b, 2)
			await(t, standby.URL, "select count(*) >= 2 from perdure.step")
			if c.lost {
				standby.Stop(false)
				write(t, b, 3)
				if c.only { // the node that reads the job may acknowledge it
					if err := a.Update(t.Context(), func(tx kernel.Tx) error {
						_, err := tx.Steps([]kernel.StepRef{{Job: job(3, "").Job.ID}})
						return err
					}); err != nil {
						t.Fatal(err)
					}
				}
				primary.Stop(true)
				standby.Start()
			} else {
				primary.Stop(true)
			}
			standby.Promote()
			write(t, a, 4)
			write(t, a, 5)
			rollCall(t, a, "a")
			if got := setbacks(t, a); len(got) != 1 {
				t.Errorf("the alert was closed before the other node compared its commits: %q", got)
			}
			if !c.dies {
				write(t, b, 6)
				rollCall(t, b, "b")
				rollCall(t, a, "a")
			}
			if got := setbacks(t, a); len(got) != c.open {
				t.Errorf("open alerts: %q", got)
			}
			all, err := a.Alerts(t.Context(), kernel.AlertFilter{Closed: true})
			if err != nil || len(all) != 1 {
				t.Errorf("alerts: %+v, %v", all, err)
			}
		})
	}
}

// hosts returns a URL with the hosts of several servers; the one that accepts writes is used.
func hosts(t *testing.T, urls ...string) string {
	t.Helper()
	all, err := url.Parse(urls[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range urls[1:] {
		u, err := url.Parse(other)
		if err != nil {
			t.Fatal(err)
		}
		all.Host += "," + u.Host
	}
	all.RawQuery += "&target_session_attrs=read-write&connect_timeout=2"
	return all.String()
}

// F153: the former primary is started again as a primary, beside the new one. A node that has worked with the new one
// refuses the former primary, names both, and continues with the new one.
func TestFormerPrimaryIsRefused(t *testing.T) {
	primary := pgtest.NewServer(t, false)
	if _, _, err := postgres.Migrate(t.Context(), primary.URL); err != nil {
		t.Fatal(err)
	}
	standby := primary.Standby("one", primary.Addr())
	s := open(t, hosts(t, primary.URL, standby.URL))
	write(t, s, 1)
	await(t, standby.URL, "select count(*) = 1 from perdure.step")
	primary.Stop(true)
	standby.Promote()
	write(t, s, 2)
	primary.Start()
	killOthers(t, standby.URL) // new connections try the former primary first
	write(t, s, 3)
	if j, _, err := open(t, standby.URL).Job(t.Context(), job(3, "").Job.ID, 0); err != nil || j == nil {
		t.Errorf("the job is not in the new primary: %v, %v", j, err)
	}
	if err := s.Refused(); err == nil || !strings.Contains(err.Error(), "/00000001, and this node has worked with ") || !strings.Contains(err.Error(), "/00000002 ") {
		t.Errorf("Refused returns %v", err)
	}
	standby.Stop(true)
	if err := submit(t.Context(), s, job(4, "")); perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "former primary") {
		t.Errorf("with the former primary alone: %v", err)
	}
}
