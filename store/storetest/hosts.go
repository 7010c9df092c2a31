package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

var hostChecks = []check{
	{"Hosts/PutIsRead", putHosts},
	{"Hosts/ChangedIsStale", staleHosts},
	{"Hosts/RunsOfAHolder", hostRuns},
	{"Hosts/ReadyByDemand", readyByDemand},
	{"Hosts/ReadyByDemandUnderAFullLimit", readyByDemandOfFull},
}

// someHost is a host with a value in each field.
func someHost(name string) kernel.Host {
	return kernel.Host{Name: name, Incarnation: "i1", Boot: "b", Grid: "local", Version: "v", Labels: map[string]string{"zone": "a"},
		Capacity: perdure.Amounts{"cpu": 2500, "memory": 1 << 40}, Heartbeat: 90 * time.Second, Draining: true, DrainBy: at(time.Hour), DrainAuthor: "anna", DrainReason: "why",
		RegisteredAt: at(0), SeenAt: at(time.Second), Reservation: kernel.Reservation{StepRef: ref(3, 7), Step: "s7", ReadyAt: at(2 * time.Second), Since: at(time.Minute), Until: at(time.Hour)}}
}

func (s *suite) hosts(want ...kernel.Host) {
	s.Helper()
	got, err := s.store.ListHosts(ctx, "", 100)
	s.must(err)
	s.equal("hosts", got, want)
}

func putHosts(s *suite) {
	s.hosts()
	one, two := someHost("b"), kernel.Host{Name: "a", Incarnation: "i", Heartbeat: time.Second, RegisteredAt: at(0), SeenAt: at(0)}
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutHost(&one, nil))
		s.must(tx.PutHost(&two, nil))
		n, err := tx.CountHosts()
		s.must(err)
		s.equal("number", n, 2)
		found, err := tx.Hosts([]string{"b", "none", "a", "b"})
		s.must(err)
		s.equal("Hosts", found, []kernel.Host{two, one})
	})
	s.hosts(two, one)
	s.update(func(tx kernel.Tx) {
		for _, c := range []struct {
			refs []kernel.StepRef
			want []kernel.Host
		}{{[]kernel.StepRef{ref(3, 7), ref(1, 1)}, []kernel.Host{one}}, {[]kernel.StepRef{ref(3, 6), ref(4, 7)}, nil}, {nil, nil}} {
			found, err := tx.ReservedFor(c.refs)
			s.must(err)
			if len(found)+len(c.want) > 0 {
				s.equal("reserved", found, c.want)
			}
		}
		for since, want := range map[time.Duration][]string{0: nil, time.Millisecond: {"a"}, time.Minute: {"a", "b"}} {
			names, err := tx.SilentHosts(at(since), 9)
			s.must(err)
			if len(names)+len(want) > 0 {
				s.equal("silent", names, want)
			}
		}
		names, err := tx.SilentHosts(at(time.Minute), 1)
		s.must(err)
		s.equal("one", names, []string{"a"})
	})
	page, err := s.store.ListHosts(ctx, "a", 1)
	s.must(err)
	s.equal("after a", page, []kernel.Host{one})
	got, err := s.store.Host(ctx, "b")
	s.must(err)
	s.equal("b", got, &one)
	none, err := s.store.Host(ctx, "c")
	s.must(err)
	s.equal("c", none, (*kernel.Host)(nil))
	s.update(func(tx kernel.Tx) {
		was, err := tx.LockHost("b")
		s.must(err)
		s.equal("locked", was, &one)
		now := *was
		now.Incarnation, now.Boot, now.Grid, now.Version, now.Labels, now.Capacity, now.Heartbeat = "i2", "", "", "", nil, perdure.Amounts{"slots": 1}, time.Minute
		now.Reservation = kernel.Reservation{}
		now.Draining, now.DrainBy, now.DrainAuthor, now.DrainReason, now.RegisteredAt, now.SeenAt = false, time.Time{}, "", "", at(5), at(6)
		s.must(tx.PutHost(&now, was))
		one = now
		shared, err := tx.ShareHosts([]string{"b"})
		s.must(err)
		one.RegisteredAt, one.SeenAt = shared[0].RegisteredAt, shared[0].SeenAt
		s.equal("shared", shared, []kernel.Host{one})
		s.must(tx.DeleteHost(&two))
	})
	s.hosts(one)
}

func staleHosts(s *suite) {
	h := someHost("a")
	s.update(func(tx kernel.Tx) { s.must(tx.PutHost(&h, nil)) })
	for what, change := range map[string]func(h *kernel.Host){
		"incarnation": func(h *kernel.Host) { h.Incarnation = "other" },
		"draining":    func(h *kernel.Host) { h.Draining = false },
		"seen":        func(h *kernel.Host) { h.SeenAt = at(2 * time.Second) },
		"name":        func(h *kernel.Host) { h.Name = "none" },
	} {
		was := h
		change(&was)
		for _, write := range []func(tx kernel.Tx) error{
			func(tx kernel.Tx) error {
				return tx.PutHost(&kernel.Host{Name: was.Name, Incarnation: "new", RegisteredAt: at(0), SeenAt: at(0)}, &was)
			},
			func(tx kernel.Tx) error { return tx.DeleteHost(&was) },
		} {
			if err := s.store.Update(ctx, write); !errors.Is(err, kernel.ErrStale) {
				s.Errorf("%s has changed: %v", what, err)
			}
		}
	}
	if err := s.store.Update(ctx, func(tx kernel.Tx) error { return tx.PutHost(&h, nil) }); !errors.Is(err, kernel.ErrStale) {
		s.Errorf("there is such a host: %v", err)
	}
	s.hosts(h)
}

func demand(d string) kernel.Needs { return kernel.Needs(`[{"name":"host:` + d + `"}]`) }

func hostRuns(s *suite) {
	s.submit(withNeeds(demand("cpu=1000;;"), newJob(2, 2)), newJob(1, 1), newJob(3, 1))
	for _, r := range []kernel.StepRef{ref(2, 0), ref(2, 1), ref(1, 0)} {
		s.changeStep(r, func(st *kernel.Step) {
			st.Phase, st.LockedBy, st.Run, st.StartedAt, st.LockedUntil = perdure.Running, "host/h/i", 7, at(time.Second), at(time.Minute)
		})
	}
	s.changeStep(ref(3, 0), func(st *kernel.Step) {
		st.Phase, st.LockedBy, st.Run, st.LockedUntil = perdure.Running, "host/h/j", 1, at(time.Minute)
	})
	run := func(r kernel.StepRef, needs kernel.Needs) kernel.HostRun {
		return kernel.HostRun{StepRef: r, Name: fmt.Sprintf("s%d", r.Index), Run: 7, Agent: "http", Needs: needs, StartedAt: at(time.Second)}
	}
	for max, want := range map[int][]kernel.HostRun{9: {run(ref(1, 0), ""), run(ref(2, 0), demand("cpu=1000;;")), run(ref(2, 1), demand("cpu=1000;;"))}, 1: {run(ref(1, 0), "")}, 0: nil} {
		got, err := s.store.HostRuns(ctx, "host/h/i", max)
		s.must(err)
		s.equal("runs", got, want)
	}
	got, err := s.store.HostRuns(ctx, "host/x/i", 9)
	s.must(err)
	s.equal("runs of another host", got, []kernel.HostRun(nil))
	i, j := []kernel.HostUse{{Holder: "host/h/i", Needs: "", Runs: 1}, {Holder: "host/h/i", Needs: demand("cpu=1000;;"), Runs: 2}}, []kernel.HostUse{{Holder: "host/h/j", Needs: "", Runs: 1}}
	for _, c := range []struct {
		holders []string
		want    []kernel.HostUse
	}{{nil, nil}, {[]string{"host/x/i"}, nil}, {[]string{"host/h/i"}, i}, {[]string{"host/h/j", "host/x/i", "host/h/i", "host/h/j"}, append(i, j...)}} {
		uses, err := hostUses(s.store, c.holders)
		s.must(err)
		s.equal("uses", uses, c.want)
	}
}

// hostUses returns the uses of hosts in order.
func hostUses(store kernel.Store, holders []string) ([]kernel.HostUse, error) {
	uses, err := store.HostUses(ctx, holders)
	slices.SortFunc(uses, func(a, b kernel.HostUse) int {
		return cmp.Or(cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Needs, b.Needs))
	})
	return uses, err
}

func (s *suite) readyFor(what string, max int, full []string, serves string, want ...kernel.StepRef) {
	s.Helper()
	f := func(d kernel.Demand) bool {
		return d == "" && strings.Contains(serves, "none") || d != "" && strings.Contains(serves, string(d))
	}
	checkTx(s, what, want, func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Ready("http", max, full, f) })
}

// A search finds the steps whose demand it serves, in order, and is not held up by others.
func readyByDemand(s *suite) {
	const big, small = "cpu=9000;;", "cpu=1000;gpu=*;"
	s.submit(newJob(1, 1), withNeeds(demand(big), newJob(2, 1)), withNeeds(demand(small), newJob(3, 2)), withNeeds(adsNeed("a"), newJob(4, 1)),
		withNeeds(`[{"name":"ads","key":"b"},{"name":"host:`+small+`"}]`, newJob(5, 1)), withNeeds(demand(small), newJob(6, 1, typed("import"))), newJob(7, 1))
	s.readyFor("all", 9, nil, "none"+big+small, ref(1, 0), ref(2, 0), ref(3, 0), ref(3, 1), ref(4, 0), ref(5, 0), ref(6, 0), ref(7, 0))
	s.readyFor("small", 9, nil, small, ref(3, 0), ref(3, 1), ref(5, 0), ref(6, 0))
	s.readyFor("two small", 2, nil, small, ref(3, 0), ref(3, 1))
	s.readyFor("big", 1, nil, big, ref(2, 0))
	s.readyFor("nothing", 9, nil, "")
	s.readyFor("without a demand", 9, nil, "none", ref(1, 0), ref(4, 0), ref(7, 0))
	s.ready("by default", "http", 9, nil, []kernel.StepRef{ref(1, 0), ref(4, 0), ref(7, 0)})
	s.ready("by default, one", "http", 1, nil, []kernel.StepRef{ref(1, 0)})
}

func readyByDemandOfFull(s *suite) {
	const small = "cpu=1000;;"
	s.update(func(tx kernel.Tx) {
		s.must(tx.PutLimit(atMost("job:order", 1)))
		s.must(tx.PutLimit(atMost("mail", 1)))
	})
	permitted := func(j *kernel.Job) { j.HasPermit = true }
	s.submit(newJob(1, 1, permitted), withNeeds(demand(small), newJob(2, 1, permitted)), withNeeds(demand(small), newJob(3, 1)),
		withNeeds(`[{"name":"mail"},{"name":"host:`+small+`"}]`, newJob(4, 1, typed("import"))))
	s.readyFor("of permitted jobs", 9, []string{"job:order"}, small, ref(2, 0), ref(4, 0))
	s.readyFor("of permitted jobs, without a demand", 9, []string{"job:order"}, "none", ref(1, 0))
	s.readyFor("a full limit", 9, []string{"mail"}, small, ref(2, 0), ref(3, 0))
}

func (d *differential) hostName() string { return d.pick("h1", "h2", "h3") }

func (d *differential) host() kernel.Host {
	h := kernel.Host{Name: d.hostName(), Incarnation: d.pick("i1", "i2"), Grid: d.pick("", "local"), Heartbeat: time.Minute, RegisteredAt: d.time(), SeenAt: at(time.Duration(d.rnd.IntN(2)) * time.Second)}
	if d.chance(50) {
		h.Labels, h.Capacity = map[string]string{"zone": d.pick("a", "b")}, perdure.Amounts{"cpu": int64(d.rnd.IntN(9))}
	}
	if d.chance(30) {
		h.Draining, h.DrainBy, h.DrainAuthor, h.DrainReason = true, d.time(), "anna", d.pick("", "x")
	}
	return h
}
