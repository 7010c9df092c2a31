package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// operation is a kind of operation of Differential. make draws its random values, once for all stores.
type operation struct {
	name string
	make func(*differential) act
}

var operations = []operation{
	{"submit", func(d *differential) act {
		var jobs []kernel.NewJob
		for range 1 + d.rnd.IntN(3) {
			jobs = append(jobs, d.newJob())
		}
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			_, err := tx.Now()
			return &kernel.Changes{NewJobs: jobs}, err
		})
	}},
	{"submit a key that is taken", func(d *differential) act {
		n := d.someJob()
		nj := newJob(10_000+n, 1)
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			jobs, err := tx.LockJobs(ids(n))
			if err != nil || len(jobs) == 0 || jobs[0].Key == "" {
				return &kernel.Changes{}, err
			}
			nj.Job.Key = jobs[0].Key
			return &kernel.Changes{NewJobs: []kernel.NewJob{nj}}, nil
		})
	}},
	{"change", func(d *differential) act {
		var all, wanted = d.someIDs(), d.someRefs()
		var job kernel.Job
		var step kernel.Step
		d.scrambleJob(&job)
		d.scrambleStep(&step)
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			jobs, err := tx.LockJobs(all)
			if err != nil {
				return nil, err
			}
			steps, err := tx.Steps(wanted)
			var c kernel.Changes
			for _, j := range jobs {
				c.Jobs = append(c.Jobs, editJob(j, jobEdit(&job)))
			}
			for _, st := range steps {
				c.Steps = append(c.Steps, editStep(st, stepEdit(&step)))
			}
			return &c, err
		})
	}},
	{"change a stale step", func(d *differential) act {
		r := ref(d.someJob(), 0)
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			steps, err := tx.Steps([]kernel.StepRef{r})
			c := &kernel.Changes{Alerts: []kernel.Alert{{Job: r.Job, Kind: perdure.AlertNamed, RaisedAt: at(0)}}}
			for _, st := range steps {
				st.Run++
				c.Steps = append(c.Steps, editStep(st, settle))
			}
			return c, err
		})
	}},
	{"roll back", func(d *differential) act {
		nj, r := d.newJob(), ref(d.someJob(), 0)
		d.jobs--
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			c := &kernel.Changes{NewJobs: []kernel.NewJob{nj}, History: []kernel.Entry{{Job: r.Job, At: at(0), Event: "x"}}}
			steps, err := tx.Steps([]kernel.StepRef{r})
			for _, st := range steps {
				c.Steps = append(c.Steps, editStep(st, settle))
			}
			if err == nil {
				err = tx.Save(c)
			}
			if err == nil {
				err = errOops
			}
			return nil, err
		})
	}},
	{"write payloads", func(d *differential) act {
		var c kernel.Changes
		for _, r := range d.someRefs() {
			ch := kernel.PayloadChange{StepRef: r, SetInput: d.chance(60), SetOutput: d.chance(60)}
			if d.chance(70) {
				ch.Input = fmt.Appendf(nil, `{ "n":%d.0 }`, d.rnd.IntN(1000))
			}
			if d.chance(70) {
				ch.Output = []byte(d.pick("null", `"ä"`, "1e3"))
			}
			c.Payloads = append(c.Payloads, ch)
		}
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			var exists kernel.Changes
			for _, ch := range c.Payloads {
				steps, err := tx.Steps([]kernel.StepRef{ch.StepRef})
				if err != nil {
					return nil, err
				}
				if len(steps) > 0 {
					exists.Payloads = append(exists.Payloads, ch)
				}
			}
			return &exists, nil
		})
	}},
	{"raise alerts", func(d *differential) act {
		var c kernel.Changes
		for _, k := range d.alertKinds() {
			c.Alerts = append(c.Alerts, kernel.Alert{Job: id(d.someJob()), Step: d.pick("", "s0", "s1"), Kind: k, Name: d.pick("", "duty"), Message: "m", RaisedAt: d.time(),
				Type: d.pick("", "order"), JobKey: d.pick("", "k"), Code: d.pick("", "503"), Attempts: len(c.Alerts)})
		}
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &c, nil })
	}},
	{"close alerts", func(d *differential) act {
		var c kernel.Changes
		for range 1 + d.rnd.IntN(3) {
			c.CloseAlerts = append(c.CloseAlerts, kernel.CloseAlerts{Job: id(d.someJob()), Step: d.pick("", "s0", "s1"), Kinds: d.alertKinds(), By: d.pick("", "anna")})
		}
		return inTx(func(tx kernel.Tx) ([]kernel.Alert, error) {
			open, err := tx.LockAlerts(c.CloseAlerts)
			if err != nil {
				return nil, err
			}
			return open, tx.Save(&c)
		})
	}},
	{"close an alert", func(d *differential) act {
		n, when := d.rnd.IntN(20), d.time()
		return func(store kernel.Store) (any, error) {
			id, err := alertAt(store, n)
			if err != nil {
				return nil, err
			}
			return inTx(func(tx kernel.Tx) ([]kernel.Alert, error) {
				if _, err := tx.CloseAlert(id, "bert", when); err != nil {
					return nil, err
				}
				a, err := tx.Alert(id)
				if a == nil {
					return nil, err
				}
				return []kernel.Alert{*a}, err
			})(store)
		}
	}},
	{"write history", func(d *differential) act {
		var c kernel.Changes
		for range 1 + d.rnd.IntN(3) {
			e := kernel.Entry{Job: id(d.someJob()), Step: d.pick("", "s0"), Run: int64(d.rnd.IntN(3)), At: d.time(), Event: d.pick("failed", "undo", "done"), Author: "anna", Detail: d.pick("", "x")}
			if d.chance(70) { // otherwise as an older program wrote it
				e.Turn, e.Direction, e.ReadyAt, e.StartedAt = 1+d.rnd.IntN(2), perdure.Direction(d.rnd.IntN(2)), d.maybeTime(d.time()), d.time()
			}
			c.History = append(c.History, e)
		}
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &c, nil })
	}},
	{"put a limit", func(d *differential) act {
		l := kernel.Limit{Name: d.limit(), Max: d.rnd.IntN(6) - 1, PerKey: d.rnd.IntN(4) - 1}
		if d.chance(30) {
			l.Rate = kernel.Rate{Count: 5, Per: time.Second, Burst: 1 + d.rnd.IntN(9)}
		}
		if kind, _, _ := kernel.SplitLimit(l.Name); kind == kernel.LimitNamed && d.chance(30) {
			l.KeyRate = kernel.Rate{Count: 7, Per: time.Minute, Burst: 1}
			l.Keys = map[string]kernel.KeyBound{"a": {Max: d.rnd.IntN(3) - 1, Rate: kernel.Rate{Count: 1, Per: 24 * time.Hour, Burst: 2}}}
		}
		if l.Max == kernel.Unbounded && !l.Rate.Bounds() && !l.BoundsKeys() { // refused before it is stored
			l.Max = 0
		}
		return inTx(func(tx kernel.Tx) (any, error) { return nil, tx.PutLimit(l) })
	}},
	{"put an agent", func(d *differential) act {
		return putAgent(agentWithSettings, time.Duration(1+d.rnd.IntN(3))*time.Second, 1+d.rnd.IntN(4))
	}},
	{"put and delete an agent", func(d *differential) act {
		name := d.pick("a1", "a2")
		put := d.chance(50)
		return inTx(func(tx kernel.Tx) (bool, error) {
			if put {
				return true, tx.PutAgent(name, perdure.AgentSettings{Ageing: perdure.Duration(time.Second)})
			}
			return tx.DeleteAgent(name)
		})
	}},
	{"charge shares", func(d *differential) act {
		all := d.charges()
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &kernel.Changes{Served: all}, nil })
	}},
	{"DeleteShares", func(d *differential) act {
		return inTx(func(tx kernel.Tx) (bool, error) { return tx.DeleteShares(agentWithSettings, 1000) })
	}},
	{"Shares", func(d *differential) act {
		most, count := d.max(), d.chance(50)
		return func(store kernel.Store) (any, error) {
			shares, floor, err := store.Shares(ctx, agentWithSettings, most, count)
			return []any{shares, floor}, err
		}
	}},
	{"read the agents", func(d *differential) act {
		return inTx(func(tx kernel.Tx) (map[string]perdure.AgentSettings, error) { return tx.Agents() })
	}},
	{"delete a limit", func(d *differential) act {
		name := d.limit()
		return inTx(func(tx kernel.Tx) (bool, error) { return tx.DeleteLimit(name) })
	}},
	{"LockJobs", func(d *differential) act {
		all := d.someIDs()
		return inTx(func(tx kernel.Tx) ([]*kernel.Job, error) { return tx.LockJobs(all) })
	}},
	{"TryLockJobs", func(d *differential) act {
		all := d.someIDs()
		return inTx(func(tx kernel.Tx) ([]*kernel.Job, error) { return tx.TryLockJobs(all) })
	}},
	{"close lanes", func(d *differential) act {
		c := kernel.Changes{CloseLanes: make([]kernel.ClosedLane, 1+d.rnd.IntN(10))}
		for i := range c.CloseLanes {
			c.CloseLanes[i] = kernel.ClosedLane{LaneRef: kernel.LaneRef{Agent: d.agent(), Lane: kernel.LaneOf(d.typ(), `[{"name":"ads-api","key":"a"}]`)}, For: d.limitKey()}
			if d.chance(50) {
				c.CloseLanes[i].Lane = kernel.LaneOf(d.typ(), d.needs())
			}
		}
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &c, nil })
	}},
	{"OpenLanes", func(d *differential) act {
		keys, most := []kernel.LimitKey{d.limitKey()}, d.max()
		if other := d.limitKey(); other != keys[0] {
			keys = append(keys, other)
		}
		return inTx(func(tx kernel.Tx) ([]string, error) { return tx.OpenLanes(keys, most) })
	}},
	{"ClosedFor", func(d *differential) act {
		after, most := d.limitKey(), d.max()
		if d.chance(70) {
			after = kernel.LimitKey{}
		}
		return inTx(func(tx kernel.Tx) ([]kernel.LimitKey, error) { return tx.ClosedFor(after, most) })
	}},
	{"KeyUse", func(d *differential) act {
		keys := []kernel.LimitKey{d.limitKey(), d.limitKey()}
		return inTx(func(tx kernel.Tx) ([]kernel.Taken, error) {
			found, err := tx.KeyUse(keys)
			return []kernel.Taken{found[keys[0]], found[keys[1]]}, err
		})
	}},
	{"buckets", func(d *differential) act {
		var c kernel.Changes
		for _, k := range []kernel.LimitKey{{Name: d.limit()}, d.limitKey(), d.limitKey()} {
			b := kernel.KeyBucket{LimitKey: k, Bucket: kernel.Bucket{FullAt: d.time().Add(time.Duration(d.rnd.IntN(1000))), Permit: time.Duration(1 + d.rnd.IntN(9))}}
			if !slices.ContainsFunc(c.Buckets, func(o kernel.KeyBucket) bool { return o.LimitKey == b.LimitKey }) {
				c.Buckets = append(c.Buckets, b)
			}
		}
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &c, nil })
	}},
	{"put a definition", func(d *differential) act {
		name, hash, now, promote := d.pick("order", "import"), byte(d.rnd.IntN(4)), d.time(), d.chance(30)
		return inTx(func(tx kernel.Tx) (int, error) {
			was, err := tx.LockDefinition(name)
			if err != nil {
				return 0, err
			}
			versions, err := tx.VersionsOf(name)
			if err != nil {
				return 0, err
			}
			next, added, version, err := kernel.AddVersion(was, versions, kernel.StoredDefinition{Name: name, Hash: [32]byte{hash}, Text: []byte{'{', '}'}, Author: "anna", CreatedAt: now})
			if err != nil {
				return 0, err
			}
			if promote {
				next.Current = version
			}
			return version, tx.PutDefinition(next, was, added)
		})
	}},
	{"delete a definition", func(d *differential) act {
		name, version := d.pick("order", "import"), d.rnd.IntN(12)
		return inTx(func(tx kernel.Tx) (any, error) {
			head, err := tx.LockDefinition(name)
			if err != nil || head == nil || head.Current == version {
				return head, err
			}
			return nil, tx.DeleteDefinition(name, version)
		})
	}},
	{"CountDefinitions", func(d *differential) act {
		return inTx(func(tx kernel.Tx) (int, error) { return tx.CountDefinitions() })
	}},
	{"StoredDefinition", func(d *differential) act {
		name, version := d.pick("order", "import", "none"), d.rnd.IntN(5)
		return reads(func(s kernel.Store) ([]any, error) {
			v, head, err := s.StoredDefinition(ctx, name, version)
			return []any{v, head}, err
		})
	}},
	{"DefinitionVersions", func(d *differential) act {
		name := d.pick("order", "import")
		return reads(func(s kernel.Store) ([]kernel.StoredDefinition, error) { return s.DefinitionVersions(ctx, name) })
	}},
	{"DefinitionHeads", func(d *differential) act {
		after, most := d.pick("", "import", "order"), d.max()
		return reads(func(s kernel.Store) ([]kernel.DefinitionHead, error) { return s.DefinitionHeads(ctx, after, most) })
	}},
	{"unique jobs", func(d *differential) act {
		var c kernel.Changes
		for _, n := range d.rnd.Perm(4)[:1+d.rnd.IntN(2)] {
			u := kernel.UniqueChange{UniqueJob: kernel.UniqueJob{UniqueKey: kernel.UniqueKey{Type: d.pick("order", "t"), Key: "u" + string(rune('0'+n))}, Job: id(d.someJob()), Until: d.maybeTime(d.time())}}
			if d.chance(60) {
				u.Replaces = id(d.someJob())
			}
			if !slices.ContainsFunc(c.Unique, func(o kernel.UniqueChange) bool { return o.UniqueKey == u.UniqueKey }) {
				c.Unique = append(c.Unique, u)
			}
		}
		if d.chance(40) {
			c.ReleaseUnique = d.someIDs()
		}
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			for i := range c.Unique { // mostly as the rules do it
				if there, err := tx.UniqueJobs([]kernel.UniqueKey{c.Unique[i].UniqueKey}); err != nil {
					return nil, err
				} else if u, ok := there[c.Unique[i].UniqueKey]; ok && c.Unique[i].Replaces.IsZero() && !slices.Contains(c.ReleaseUnique, u.Job) {
					c.Unique[i].Replaces = u.Job
				}
			}
			return &c, nil
		})
	}},
	{"child news", func(d *differential) act {
		var c kernel.Changes
		for range 1 + d.rnd.IntN(3) {
			n := kernel.ChildNews{Owner: kernel.StepRef{Job: id(d.someJob()), Index: d.rnd.IntN(2)}, Child: id(d.someJob()), At: d.time(),
				From: kernel.ChildState(d.rnd.IntN(5)), To: kernel.ChildState(d.rnd.IntN(5))}
			c.News = append(c.News, n)
		}
		return saves(func(kernel.Tx) (*kernel.Changes, error) { return &c, nil })
	}},
	{"taken child news", func(d *differential) act {
		owner, most := kernel.StepRef{Job: id(d.someJob()), Index: d.rnd.IntN(2)}, d.max()
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			taken, err := tx.ChildNews(owner, most)
			return &kernel.Changes{TakenNews: taken}, err
		})
	}},
	{"ChildNews", func(d *differential) act {
		owner, most := kernel.StepRef{Job: id(d.someJob()), Index: d.rnd.IntN(2)}, d.max()
		return inTx(func(tx kernel.Tx) ([]kernel.ChildNews, error) { return withoutNumbers(tx.ChildNews(owner, most)) })
	}},
	{"FindDefinition", func(d *differential) act {
		name, version := d.pick("order", "import"), d.rnd.IntN(3)
		return inTx(func(tx kernel.Tx) (*kernel.StoredDefinition, error) { return tx.FindDefinition(name, version) })
	}},
	{"UniqueJobs", func(d *differential) act {
		return inTx(func(tx kernel.Tx) ([]kernel.UniqueJob, error) {
			var keys []kernel.UniqueKey
			for _, typ := range []string{"order", "t"} {
				for n := range 4 {
					keys = append(keys, kernel.UniqueKey{Type: typ, Key: "u" + string(rune('0'+n))})
				}
			}
			found, err := tx.UniqueJobs(keys)
			var list []kernel.UniqueJob
			for _, k := range keys {
				if u, ok := found[k]; ok {
					list = append(list, u)
				}
			}
			return list, err
		})
	}},
	{"DeleteUnique", func(d *differential) act {
		now, most := d.time(), d.max()
		return inTx(func(tx kernel.Tx) (int, error) { return tx.DeleteUnique(now, most) })
	}},
	{"DeleteBuckets", func(d *differential) act {
		after, most, now := d.limitKey(), 1+d.max(), d.time()
		if d.chance(70) {
			after = kernel.LimitKey{}
		}
		return inTx(func(tx kernel.Tx) (kernel.LimitKey, error) { return tx.DeleteBuckets(after, most, now) })
	}},
	{"signal", func(d *differential) act { // sends one, takes it, or replaces it
		t, name, job := d.topic(), d.pick("e1", "e2", "e3"), perdure.JobID{}
		if d.chance(30) {
			job = id(d.someJob())
		}
		sig := &kernel.Signal{Topic: t, Job: job, ID: name, Data: json.RawMessage(`{"a": 1}`), At: d.time(), Until: d.time()}
		taken := []string{"job_x/s", "job_y/s"}[:d.rnd.IntN(3)]
		atOnce := d.chance(30)
		return saves(func(tx kernel.Tx) (*kernel.Changes, error) {
			if err := tx.LockTopics([]kernel.Topic{t}); err != nil {
				return nil, err
			}
			found, err := tx.FindSignal(t, job, name)
			now := *sig
			if atOnce || found != nil && found.Kept() {
				now.Taken, now.Data = slices.Concat([]string{}, taken), nil
				if now.Taken == nil {
					now.Taken = []string{}
				}
			}
			c := kernel.SignalChange{Signal: &now}
			switch {
			case found == nil:
			case found.Kept():
				now.Number = found.Number
			default:
				c.Replaces = found.Number
			}
			return &kernel.Changes{Signals: []kernel.SignalChange{c}}, err
		})
	}},
	{"KeptSignal", func(d *differential) act {
		t, job, now := d.topic(), id(d.someJob()), d.time()
		return inTx(func(tx kernel.Tx) ([]*kernel.Signal, error) {
			first, err := tx.KeptSignal(t, job, now, nil)
			if err != nil || first == nil {
				return nil, err
			}
			second, err := tx.KeptSignal(t, job, now, []int64{first.Number})
			return []*kernel.Signal{unnumbered(first), unnumbered(second)}, err
		})
	}},
	{"Waiters", func(d *differential) act {
		t, most, job := d.topic(), d.max(), perdure.JobID{}
		if d.chance(30) {
			job = id(d.someJob())
		}
		return inTx(func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Waiters(t, job, most) })
	}},
	{"CountSignals", func(d *differential) act {
		return inTx(func(tx kernel.Tx) ([]int, error) {
			kept, all, err := tx.CountSignals(3, 5)
			return []int{kept, all}, err
		})
	}},
	{"DeleteSignals", func(d *differential) act {
		now := at(time.Duration(d.rnd.IntN(30)) * time.Second)
		return inTx(func(tx kernel.Tx) (int, error) { return tx.DeleteSignals(now, 1000) })
	}},
	{"LockLimits", func(d *differential) act {
		names := []string{d.limit(), d.limit(), d.limit()}
		return inTx(func(tx kernel.Tx) ([]kernel.Limit, error) { return tx.LockLimits(names) })
	}},
	{"Steps", func(d *differential) act {
		wanted := d.someRefs()
		return inTx(func(tx kernel.Tx) ([]*kernel.Step, error) { return tx.Steps(wanted) })
	}},
	{"StepsOf", func(d *differential) act {
		n := d.someJob()
		return inTx(func(tx kernel.Tx) ([]*kernel.Step, error) { return tx.StepsOf(id(n)) })
	}},
	{"Payloads", func(d *differential) act {
		wanted, most := d.someRefs(), d.rnd.IntN(50)
		return inTx(func(tx kernel.Tx) ([]kernel.Payload, error) { return tx.Payloads(wanted, most) })
	}},
	{"Shapes", func(d *differential) act {
		all := []kernel.ShapeID{{byte(d.rnd.IntN(6))}, {byte(d.rnd.IntN(6))}}
		return inTx(func(tx kernel.Tx) (map[kernel.ShapeID][]byte, error) { return tx.Shapes(all) })
	}},
	{"Inputs", func(d *differential) act {
		all := d.someIDs()
		return inTx(func(tx kernel.Tx) (map[perdure.JobID]json.RawMessage, error) {
			jobs, err := tx.LockJobs(all)
			if err != nil {
				return nil, err
			}
			var apart []perdure.JobID
			for _, j := range jobs {
				if j.InputStoredApart {
					apart = append(apart, j.ID)
				}
			}
			return tx.Inputs(apart)
		})
	}},
	{"JobsByKey", func(d *differential) act {
		wanted := []string{fmt.Sprintf("key-%d", d.someJob()), fmt.Sprintf("key-%d", d.someJob()), "none"}
		return inTx(func(tx kernel.Tx) (map[string]kernel.Keyed, error) { return tx.JobsByKey(wanted) })
	}},
	{"JobByHash", func(d *differential) act {
		typ, hash := d.typ(), [32]byte{byte(d.rnd.IntN(5))}
		return inTx(func(tx kernel.Tx) (perdure.JobID, error) {
			id, _, err := tx.JobByHash(typ, hash)
			return id, err
		})
	}},
	{"Limits", func(*differential) act { return inTx(kernel.Tx.Limits) }},
	{"Ready", func(d *differential) act {
		serves := d.serves()
		agent, most := d.agent(), d.max()
		var full []string
		for _, typ := range []string{"order", "import", "a"} {
			if d.chance(40) {
				full = append(full, kernel.JobLimit(typ))
			}
		}
		for _, name := range []string{"ads-api", "mail"} {
			if d.chance(20) {
				full = append(full, name)
			}
		}
		return inTx(func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Ready(agent, most, full, serves) })
	}},
	{"Due", func(d *differential) act {
		now, most := d.time(), d.max()
		return inTx(func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Due(now, most) })
	}},
	{"Expired", func(d *differential) act {
		now, most := d.time(), d.max()
		return inTx(func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.Expired(now, most) })
	}},
	{"Overdue", func(d *differential) act {
		now, most := d.time(), d.max()
		return inTx(func(tx kernel.Tx) ([]perdure.JobID, error) { return tx.Overdue(now, most) })
	}},
	{"HeldBy", func(d *differential) act {
		holder, agent, request, most := d.holder(), d.pick("", "", d.agent()), d.pick("", d.request()), d.max()
		return inTx(func(tx kernel.Tx) ([]kernel.StepRef, error) { return tx.HeldBy(holder, agent, request, most) })
	}},
	{"EmbeddedHolders", func(*differential) act { return inTx(kernel.Tx.EmbeddedHolders) }},
	{"Shape", func(d *differential) act {
		shape := kernel.ShapeID{byte(d.rnd.IntN(6))}
		return reads(func(s kernel.Store) ([]byte, error) { return s.Shape(ctx, shape) })
	}},
	{"Input", func(d *differential) act {
		n := d.someJob()
		most := 10 * n
		return reads(func(s kernel.Store) ([]any, error) {
			in, size, err := s.Input(ctx, id(n), most)
			return []any{in, size}, err
		})
	}},
	{"FindJobs", func(d *differential) act {
		n, most := d.someJob(), d.max()
		name := d.pick(fmt.Sprintf("key-%d", n), id(n).String(), id(n).String()[:15], id(n).String()[4:16], "none")
		return reads(func(s kernel.Store) ([]perdure.JobID, error) { return s.FindJobs(ctx, name, most) })
	}},
	{"ListJobs", func(d *differential) act {
		f := d.filter()
		return reads(func(s kernel.Store) ([]*kernel.Job, error) {
			jobs, _, err := s.ListJobs(ctx, f)
			return jobs, err
		})
	}},
	{"CountJobs", func(d *differential) act {
		f := d.filter()
		return reads(func(s kernel.Store) ([]any, error) { // with the filter, for the message of a difference
			n, _, err := s.CountJobs(ctx, f)
			return []any{f, n}, err
		})
	}},
	{"a list that is read in parts", func(d *differential) act {
		f := d.filter()
		f.Limit, f.MaxRead = 1+d.rnd.IntN(3), 1+d.rnd.IntN(4)
		return reads(func(s kernel.Store) ([]perdure.JobID, error) { return walk(s, f) })
	}},
	{"SearchJobs", func(d *differential) act {
		text, most := d.pick("key-", "eu", fmt.Sprintf("key-%d", d.someJob()), "1", "none"), 1+d.max()
		if text == "key-" {
			most = 1000 // else the stores may choose others
		}
		return reads(func(s kernel.Store) ([]perdure.JobID, error) { return s.SearchJobs(ctx, text, most) })
	}},
	{"Job", func(d *differential) act {
		n, most := d.someJob(), d.max()
		return reads(func(s kernel.Store) ([]any, error) {
			j, steps, err := s.Job(ctx, id(n), most)
			return []any{j, steps}, err
		})
	}},
	{"StepsOfJobs", func(d *differential) act {
		most := 1 + d.max()
		jobs := make([]perdure.JobID, 1+d.rnd.IntN(5))
		for i := range jobs {
			jobs[i] = id(d.someJob())
		}
		return reads(func(s kernel.Store) (map[perdure.JobID][]*kernel.Step, error) { return s.StepsOfJobs(ctx, jobs, most) })
	}},
	{"steps since", func(d *differential) act {
		n, since := d.someJob(), d.maybeTime(d.time())
		return reads(func(s kernel.Store) ([]*kernel.Step, error) { return s.StepsOf(ctx, id(n), since) })
	}},
	{"payloads of a job", func(d *differential) act {
		n, total := d.someJob(), d.rnd.IntN(50)
		most := total / 2
		return reads(func(s kernel.Store) ([]any, error) {
			all, err := s.Payloads(ctx, id(n), most, total)
			if err != nil {
				return nil, err
			}
			one, err := s.Payload(ctx, ref(n, most%4))
			return []any{all, one}, err
		})
	}},
	{"Alerts", func(d *differential) act {
		f := kernel.AlertFilter{Closed: d.chance(50), Limit: d.rnd.IntN(5)}
		if d.chance(50) {
			f.Job = id(d.someJob())
		}
		before, n := d.chance(30), d.rnd.IntN(20)
		return reads(func(s kernel.Store) (_ []kernel.Alert, err error) {
			f := f
			if before {
				if f.Before, err = alertAt(s, n); err != nil {
					return nil, err
				}
			}
			return s.Alerts(ctx, f)
		})
	}},
	{"History", func(d *differential) act {
		n, before, most := d.someJob(), d.rnd.IntN(3), d.max()
		return reads(func(s kernel.Store) ([]kernel.Entry, error) {
			var after int64
			if earlier, err := s.History(ctx, id(n), 0, before); err != nil {
				return nil, err
			} else if len(earlier) > 0 {
				after = earlier[len(earlier)-1].ID
			}
			entries, err := s.History(ctx, id(n), after, most)
			for i := range entries {
				entries[i].ID = 0 // assigned by each store
			}
			return entries, err
		})
	}},
	{"Runs", func(d *differential) act {
		n, most := d.someJob(), d.max()
		after := kernel.RunPlace{StartedAt: d.maybeTime(d.time()), Step: d.pick("", "s0"), Run: int64(d.rnd.IntN(3))}
		return reads(func(s kernel.Store) ([]kernel.Entry, error) {
			entries, err := s.Runs(ctx, id(n), after, most)
			for i := range entries {
				entries[i].ID = 0 // assigned by each store
			}
			return entries, err
		})
	}},
	{"LimitUse", func(d *differential) act {
		name, most := d.limit(), d.max()
		return reads(func(s kernel.Store) (string, error) {
			used, holders, err := s.LimitUse(ctx, kernel.LimitKey{Name: name}, most)
			return fmt.Sprint(used, holders), err
		})
	}},
	{"ClosedKeys", func(d *differential) act {
		name, most := d.limit(), d.max()
		return reads(func(s kernel.Store) ([]kernel.ClosedKey, error) { return s.ClosedKeys(ctx, name, most) })
	}},
	{"Buckets", func(d *differential) act {
		keys := []kernel.LimitKey{{Name: d.limit()}, d.limitKey(), d.limitKey()}
		return reads(func(s kernel.Store) (string, error) {
			found, err := s.Buckets(ctx, keys)
			return fmt.Sprint(found), err
		})
	}},
	{"OpenFirst", func(d *differential) act {
		lanes := make([]kernel.ClosedLane, 20)
		for i := range lanes {
			needs := d.needs()
			if d.chance(50) {
				needs = `[{"name":"ads-api","key":"a"}]`
			}
			lanes[i] = kernel.ClosedLane{LaneRef: kernel.LaneRef{Agent: d.agent(), Lane: kernel.LaneOf(d.typ(), needs)}, For: d.limitKey()}
		}
		return inTx(func(tx kernel.Tx) ([]string, error) { return tx.OpenFirst(lanes) })
	}},
	{"FirstInLine", func(d *differential) act {
		keys := []kernel.LimitKey{d.limitKey(), {Name: "ads-api", Key: "a"}}
		return reads(func(s kernel.Store) (string, error) {
			found, err := s.FirstInLine(ctx, keys)
			return fmt.Sprint(found), err
		})
	}},
	{"ListLimits", func(*differential) act {
		return reads(func(s kernel.Store) ([]kernel.Limit, error) { return s.ListLimits(ctx) })
	}},
	{"Poll", func(d *differential) act {
		agents := []string{d.agent(), d.agent()}
		return reads(func(s kernel.Store) (kernel.PollAnswer, error) {
			l, err := exactPoll(s, slices.Compact(agents))
			if err != nil {
				return l, err
			}
			l.Now, l.Ready = time.Time{}, append([]string{}, l.Ready...)
			if l.LanesClosed {
				l.Ready, err = withStepsToFind(s, l.Ready)
			}
			return l, err
		})
	}},
	{"post", func(d *differential) act {
		to := id(20_000 + len(d.posted))
		d.posted = append(d.posted, to)
		hash := d.rnd.IntN(4)
		size := 120*hash + d.rnd.IntN(120) // the same text always has the same hash
		plan := &kernel.Plan{Shape: &kernel.Shape{}, Hash: [32]byte{byte(hash)},
			Definition: &kernel.Definition{Type: d.typ(), Key: d.mailKey(), Input: fmt.Appendf(nil, `"%0*d"`, size, 0)}}
		return func(store kernel.Store) (any, error) {
			submission, err := store.(Poster).Post(ctx, to, plan)
			if perdure.CodeOf(err) != "" {
				return string(perdure.CodeOf(err)), nil
			}
			return submission, err
		}
	}},
	{"add a bulk act", func(d *differential) act {
		n := d.rnd.IntN(30) // some ids and keys are taken
		b := newBulk(n, func(b *kernel.BulkAct) {
			b.Key = d.pick("", fmt.Sprintf("bulk-%d", d.rnd.IntN(40)))
			b.State = d.bulkState()
		})
		listed := ids(n, n+1, n+2)
		return func(store kernel.Store) (any, error) {
			return true, store.Update(ctx, func(tx kernel.Tx) error { return tx.AddBulkAct(b, listed) })
		}
	}},
	{"move a bulk act on", func(d *differential) act {
		n, job, refused := d.rnd.IntN(30), id(d.someJob()), d.rnd.IntN(3)
		state, at := d.bulkState(), d.time()
		fails := d.chance(20)
		return inTx(func(tx kernel.Tx) (*kernel.BulkAct, error) {
			b, err := tx.LockBulkAct(bulkID(n))
			if err != nil || b == nil {
				return nil, err
			}
			var refusals []kernel.BulkRefusal
			for range refused {
				b.Refused++
				refusals = append(refusals, kernel.BulkRefusal{Number: b.Refused, Job: job, Code: perdure.CodeConflict, Message: "no"})
			}
			b.Cursor, b.Done, b.Unchanged, b.State, b.UpdatedAt = job, b.Done+1, b.Unchanged+2, state, at
			if err := tx.SaveBulkAct(b, refusals); err != nil {
				return nil, err
			}
			if fails {
				return nil, errOops
			}
			return b, nil
		})
	}},
	{"read bulk acts", func(d *differential) act {
		f := kernel.BulkFilter{Limit: d.rnd.IntN(6)}
		if d.chance(50) {
			f.State = d.bulkState()
		}
		if d.chance(50) {
			f.Before = bulkID(d.rnd.IntN(60))
		}
		one, key, max, after := bulkID(d.rnd.IntN(60)), fmt.Sprintf("bulk-%d", d.rnd.IntN(40)), d.max(), d.rnd.IntN(3)
		return func(store kernel.Store) (any, error) {
			var all bulkRead
			var err [6]error
			all.List, err[0] = store.BulkActs(ctx, f)
			all.One, err[1] = store.BulkAct(ctx, one)
			all.Listed, err[2] = store.ListedJobs(ctx, one, id(after), max)
			all.Refusals, err[3] = store.BulkRefusals(ctx, one, after, max)
			err[4] = store.Update(ctx, func(tx kernel.Tx) (err error) {
				if all.ByKey, err = tx.BulkActByKey(key); err == nil {
					all.Running, err = tx.RunningBulkActs()
				}
				return err
			})
			return all, errors.Join(err[:]...)
		}
	}},
	{"forget bulk acts", func(d *differential) act {
		before, max := d.time(), d.rnd.IntN(3)
		return reads(func(store kernel.Store) (int, error) { return store.ForgetBulkActs(ctx, before, max) })
	}},
	{"put a schedule", func(d *differential) act {
		row, fails := d.schedule(), d.chance(20)
		return inTx(func(tx kernel.Tx) (any, error) {
			before, err := tx.LockSchedules([]string{row.Name, "s1"})
			if err != nil {
				return nil, err
			}
			if err := tx.PutSchedule(row); err != nil {
				return nil, err
			}
			if fails {
				return nil, errOops
			}
			n, err := tx.CountSchedules()
			return []any{before, n}, err
		})
	}},
	{"put lines of schedules", func(d *differential) act {
		var lines []kernel.Firing
		for range 1 + d.rnd.IntN(4) {
			f := d.firing()
			if !slices.ContainsFunc(lines, func(o kernel.Firing) bool { return o.Key() == f.Key() }) {
				lines = append(lines, f)
			}
		}
		name, most := d.scheduleName(), d.rnd.IntN(5)
		return inTx(func(tx kernel.Tx) ([]kernel.Firing, error) {
			if err := tx.PutFirings(lines); err != nil {
				return nil, err
			}
			return tx.OpenFirings(name, most)
		})
	}},
	{"change lines of schedules", func(d *differential) act {
		var changes []kernel.FiringChange
		for range 1 + d.rnd.IntN(4) {
			f := d.firing()
			changes = append(changes, kernel.FiringChange{FiringKey: f.Key(), State: f.State})
		}
		return inTx(func(tx kernel.Tx) (any, error) { return nil, tx.Save(&kernel.Changes{Firings: changes}) })
	}},
	{"delete a schedule", func(d *differential) act {
		name, keep := d.scheduleName(), d.chance(70)
		return inTx(func(tx kernel.Tx) (bool, error) {
			if keep {
				return false, nil
			}
			return tx.DeleteSchedule(name)
		})
	}},
	{"read schedules", func(d *differential) act {
		name, after, now, most := d.scheduleName(), d.pick("", "s1", "s2"), d.time(), d.rnd.IntN(5)
		before := kernel.FiringKey{}
		if d.chance(50) {
			f := d.firing()
			before = f.Key()
		}
		return func(store kernel.Store) (any, error) {
			var all scheduleRead
			var err [5]error
			all.One, err[0] = store.Schedule(ctx, name)
			all.List, err[1] = store.Schedules(ctx, after, most)
			all.Due, all.Next, err[2] = store.DueSchedules(ctx, now, most)
			all.Open, err[3] = store.OpenFiringsOf(ctx, name, most)
			all.Lines, err[4] = store.Firings(ctx, name, before, most)
			return all, errors.Join(err[:]...)
		}
	}},
	{"forget lines of schedules", func(d *differential) act {
		before, most := d.time(), d.rnd.IntN(3)
		return reads(func(store kernel.Store) (int, error) { return store.ForgetFirings(ctx, before, most) })
	}},
	{"add a credential", func(d *differential) act {
		n, role := d.rnd.IntN(20), operate.UserRoles[d.rnd.IntN(len(operate.UserRoles))] // some ids are taken
		c := newCredential(n, func(c *kernel.Credential) {
			c.Rights.Role, c.ExpiresAt, c.UsedAt = role, d.time(), d.time()
			if d.chance(50) {
				isSession(d.pick("", credentialID(d.rnd.IntN(20))))(c)
			}
		})
		entry := newAudit(d.rnd.IntN(9), func(e *operate.AuditEntry) {
			e.At, e.Act, e.Job = d.time(), d.pick("undo", "createToken"), id(d.someJob())
		})
		return func(store kernel.Store) (any, error) {
			return true, store.Update(ctx, func(tx kernel.Tx) error {
				if err := tx.AddCredential(c); err != nil {
					return err
				}
				return tx.Save(&kernel.Changes{Audit: []operate.AuditEntry{entry}})
			})
		}
	}},
	{"change a credential", func(d *differential) act {
		name, when, fails, drop := credentialID(d.rnd.IntN(20)), d.time(), d.chance(20), d.chance(30)
		return inTx(func(tx kernel.Tx) (*kernel.Credential, error) {
			c, err := tx.LockCredential(name)
			if err != nil || c == nil {
				return nil, err
			}
			c.Hash, c.UsedAt = c.Previous, when
			if err := tx.SaveCredential(c); err != nil {
				return nil, err
			}
			if drop {
				err = tx.DeleteCredential(name)
			}
			if err == nil && fails {
				err = errOops
			}
			return c, err
		})
	}},
	{"add to logs", addToLogs},
	{"read logs", readSomeLogs},
	{"move a log", moveSomeLog},
	{"use a credential", func(d *differential) act {
		name, when := credentialID(d.rnd.IntN(20)), d.time()
		return func(store kernel.Store) (any, error) { return true, store.TouchCredential(ctx, name, when) }
	}},
	{"read credentials and the audit log", func(d *differential) act {
		kind := []kernel.CredentialKind{kernel.TokenCredential, kernel.SessionCredential}[d.rnd.IntN(2)]
		one, max := credentialID(d.rnd.IntN(20)), d.max()
		some := []string{one, credentialID(d.rnd.IntN(20)), "x"}[:1+d.rnd.IntN(3)]
		token := d.pick("", credentialID(d.rnd.IntN(20)))
		f := kernel.AuditFilter{Act: d.pick("", "undo"), Limit: d.rnd.IntN(6)}
		if d.chance(30) {
			f.Since = d.time()
		}
		if d.chance(30) {
			f.Job = id(d.someJob())
		}
		now := d.time()
		return func(store kernel.Store) (any, error) {
			var all accessRead
			var err [5]error
			all.Some, err[0] = store.FindCredentials(ctx, some)
			slices.SortFunc(all.Some, func(a, b *kernel.Credential) int { return cmp.Compare(a.ID, b.ID) })
			all.List, err[1] = store.Credentials(ctx, kind, one, max)
			all.HasAdmin, err[2] = store.HasAdminToken(ctx)
			all.Audit, err[3] = store.AuditLog(ctx, f)
			all.Audit = slices.Clone(all.Audit)
			for i := range all.Audit {
				all.Audit[i].ID = 0 // ids have gaps after a rollback
			}
			err[4] = store.Update(ctx, func(tx kernel.Tx) (err error) {
				if all.Count, err = tx.CountCredentials(kind); err == nil {
					all.OtherAdmin, err = tx.HasOtherAdmin(one, now)
				}
				if err == nil {
					all.Sessions, err = tx.SessionsOf(token, "ci ü <b>", max)
				}
				return err
			})
			return all, errors.Join(err[:]...)
		}
	}},
	{"forget sessions and audit entries", func(d *differential) act {
		expired, unused, audit, max := d.time(), d.time(), d.time(), d.rnd.IntN(3)
		return reads(func(store kernel.Store) (int, error) { return store.ForgetAccess(ctx, expired, unused, audit, max) })
	}},
	{"put a receiver", func(d *differential) act {
		r := newReceiver(d.receiver())
		r.Settings.On = []operate.EventKind{d.eventKind()}
		full, fails := []string{d.receiver()}, d.chance(20)
		if d.chance(50) {
			full = nil
		}
		return inTx(func(tx kernel.Tx) (all []*kernel.Receiver, err error) {
			if all, err = tx.LockReceivers(); err != nil {
				return nil, err
			}
			if err = errors.Join(tx.PutReceiver(r), tx.SetFull(full)); err == nil && fails {
				err = errOops
			}
			return all, err
		})
	}},
	{"set the position of a receiver", func(d *differential) act {
		name, position, fails := d.receiver(), int64(d.rnd.IntN(100)), d.chance(20)
		return inTx(func(tx kernel.Tx) (*kernel.Receiver, error) {
			r, err := tx.LockReceiver(name)
			if err = errors.Join(err, tx.SetPosition(name, position)); err == nil && fails {
				err = errOops
			}
			return r, err
		})
	}},
	{"change a receiver", func(d *differential) act {
		name, position, paused, fails := d.receiver(), int64(d.rnd.IntN(100)), d.pick("", "410"), d.chance(20)
		return inTx(func(tx kernel.Tx) (*kernel.Receiver, error) {
			r, err := tx.LockReceiver(name)
			if err != nil || r == nil {
				return nil, err
			}
			r.Position, r.PausedCause, r.Secret, r.OldSecret = position, paused, r.OldSecret, r.Secret
			if err = tx.PutReceiver(r); err == nil && fails {
				err = errOops
			}
			return r, err
		})
	}},
	{"delete a receiver", func(d *differential) act {
		name, fails := d.receiver(), d.chance(20)
		return inTx(func(tx kernel.Tx) (had bool, err error) {
			if _, err = tx.LockReceivers(); err != nil {
				return false, err
			}
			if had, err = tx.DeleteReceiver(name); err == nil && fails {
				err = errOops
			}
			return had, err
		})
	}},
	{"read the routing", func(*differential) act {
		return inTx(func(tx kernel.Tx) (*kernel.Routing, error) { return tx.Routing() })
	}},
	{"store notifications", func(d *differential) act {
		var c kernel.Changes
		receiver, at, due, expires, secret := d.receiver(), d.time(), d.time(), d.time(), d.pick("", "", "", "s")
		for range 1 + d.rnd.IntN(6) {
			d.notified++
			c.Notifications = append(c.Notifications, newNotification(d.notified, receiver, func(n *kernel.Notification) {
				n.Job, n.Kind, n.At, n.NextAt, n.ExpiresAt, n.Secret = id(d.rnd.IntN(4)), d.eventKind(), at, due, expires, secret
				if d.chance(10) {
					n.Receiver, n.ExpiresAt, n.Secret = d.receiver(), d.time(), "t"
				}
				if d.chance(10) {
					n.Job = perdure.JobID{}
				}
				if d.chance(25) {
					n.DeliveryOutcome = d.deliveryOutcome()
				}
			}))
		}
		fails := d.chance(20)
		return func(store kernel.Store) (any, error) {
			return true, store.Update(ctx, func(tx kernel.Tx) error {
				if err := tx.Save(&c); err != nil || !fails {
					return err
				}
				return errOops
			})
		}
	}},
	{"save the outcomes of deliveries", func(d *differential) act {
		receiver, due, now := d.receiver(), d.chance(70), d.time()
		places, outcomes, fails := []int{d.rnd.IntN(5), 5 + d.rnd.IntN(5)}, []kernel.DeliveryOutcome{d.deliveryOutcome(), d.deliveryOutcome()}, d.chance(20)
		return func(store kernel.Store) (any, error) {
			found, err := store.Notifications(ctx, kernel.NotificationFilter{Receiver: receiver, Limit: 20}) // some have ended
			if due {
				found, err = store.DueNotifications(ctx, receiver, now, 20)
			}
			if err != nil {
				return nil, err
			}
			var results []kernel.DeliveryResult
			for i, place := range places {
				if place < len(found) {
					results = append(results, kernel.DeliveryResult{Number: found[place].Number, DeliveryOutcome: outcomes[i]})
				}
			}
			return len(results), store.Update(ctx, func(tx kernel.Tx) error {
				if err := tx.SaveDeliveries(receiver, results); err != nil || !fails {
					return err
				}
				return errOops
			})
		}
	}},
	{"deliver what is due", func(d *differential) act {
		receiver, now, end, next, leaveOut, fails, stream := d.receiver(), d.time(), d.time(), d.time(), d.rnd.IntN(12), d.rnd.IntN(6), d.chance(50)
		first := int64(d.streamed)
		d.streamed += 100
		return func(store kernel.Store) (any, error) {
			found, err := store.DueNotifications(ctx, receiver, now, 100)
			if err != nil {
				return nil, err
			}
			if stream {
				pending, err := store.PendingForStream(ctx, receiver, 100)
				if err != nil {
					return nil, err
				}
				found = nil
				for _, n := range pending {
					found = append(found, kernel.Notification{Number: n.Number, DeliveryOutcome: kernel.DeliveryOutcome{Attempts: n.Attempts}})
				}
			}
			var results []kernel.DeliveryResult
			for i, n := range found {
				r := kernel.DeliveryResult{Number: n.Number, DeliveryOutcome: kernel.DeliveryOutcome{State: operate.DeliveryDelivered, Attempts: n.Attempts + 1, EndedAt: end}}
				switch {
				case i == fails:
					r.DeliveryOutcome = kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: n.Attempts + 1, NextAt: next, Error: "no"}
				case stream:
					r.Position = first + int64(i) + 1
				}
				if i != leaveOut {
					results = append(results, r)
				}
			}
			return len(results), store.Update(ctx, func(tx kernel.Tx) error { return tx.SaveDeliveries(receiver, results) })
		}
	}},
	{"resend notifications", func(d *differential) act {
		receiver, since, now, max := d.receiver(), d.time(), d.time(), d.max()
		if d.chance(60) {
			since = at(-24 * time.Hour) // few notifications are dead
		}
		return inTx(func(tx kernel.Tx) (int, error) { return tx.Resend(receiver, since, now, max) })
	}},
	{"hasten notifications", func(d *differential) act {
		receiver, now, max := d.receiver(), d.time(), d.max()
		return inTx(func(tx kernel.Tx) (int, error) { return tx.Hasten(receiver, now, max) })
	}},
	{"read receivers and notifications", func(d *differential) act {
		receiver, now, max, after := d.receiver(), d.time(), d.max(), d.pick("", d.receiver())
		f := kernel.NotificationFilter{Receiver: receiver, Limit: d.rnd.IntN(6)}
		if d.chance(50) {
			f.State = d.deliveryOutcome().State
		}
		before, position := d.rnd.IntN(10), int64(d.rnd.IntN(d.streamed+1))
		return func(store kernel.Store) (any, error) {
			var all outboxRead
			var err [11]error
			all.One, err[0] = store.Receiver(ctx, receiver)
			all.Receivers, err[1] = store.Receivers(ctx)
			all.Pending, err[2] = store.PendingReceivers(ctx, after, max)
			all.Due, err[3] = store.DueNotifications(ctx, receiver, now, 1000)
			some, readErr := store.DueNotifications(ctx, receiver, now, max)
			if err[3] = errors.Join(err[3], readErr); len(some) < min(max, len(all.Due)) || !reflect.DeepEqual(some, all.Due[:len(some)]) && len(some) > 0 {
				err[3] = errors.Join(err[3], fmt.Errorf("of %d due notifications, the first %d are %d others", len(all.Due), max, len(some)))
			}
			all.ForStream, err[10] = store.PendingForStream(ctx, receiver, 1000)
			first, readErr := store.PendingForStream(ctx, receiver, max)
			if err[10] = errors.Join(err[10], readErr); len(first) < min(max, len(all.ForStream)) || len(first) > 0 && !reflect.DeepEqual(first, all.ForStream[:len(first)]) {
				err[10] = errors.Join(err[10], fmt.Errorf("of %d pending notifications, the first %d are %d others", len(all.ForStream), max, len(first)))
			}
			for i := range all.ForStream {
				all.ForStream[i].Number = 0
			}
			all.Count, err[4] = store.CountPending(ctx, receiver, max)
			all.Dead, err[9] = store.CountDead(ctx, receiver, max)
			all.CountAll, err[5] = store.CountPending(ctx, "", max)
			all.Streamed, err[6] = store.StreamedNotifications(ctx, receiver, position, max)
			f := f
			var newest []kernel.Notification
			newest, err[7] = store.Notifications(ctx, kernel.NotificationFilter{Receiver: receiver, Limit: 20})
			if before < len(newest) {
				f.Before = newest[before].Number
			}
			all.Listed, err[8] = store.Notifications(ctx, f)
			for _, list := range [][]kernel.Notification{all.Due, all.Streamed, all.Listed} {
				for i := range list {
					list[i].Number, list[i].Row = 0, 0 // numbers have gaps after a rollback
				}
			}
			return all, errors.Join(err[:]...)
		}
	}},
	{"forget notifications", func(d *differential) act {
		before, max := d.time(), []int{0, 1000}[d.rnd.IntN(2)] // a store may choose which of them it deletes first
		return reads(func(store kernel.Store) (int, error) { return store.ForgetNotifications(ctx, before, max) })
	}},
	{"close mail", func(d *differential) act {
		ids := d.mailIDs()
		job := d.someJob()
		reason := kernel.RefusalJSON(errOops)
		fails := d.chance(20)
		return inTx(func(tx kernel.Tx) ([]kernel.MailID, error) {
			taken, err := tx.TakeMail(ids)
			if err != nil {
				return nil, err
			}
			slices.SortFunc(taken, kernel.MailID.Compare)
			var closed []kernel.ClosedMail
			for i, m := range taken {
				c := kernel.ClosedMail{MailID: m, Refusal: reason}
				if i%3 > 0 {
					c = kernel.ClosedMail{MailID: m, Job: id(job)}
				}
				closed = append(closed, c)
			}
			if err := tx.CloseMail(closed); err != nil || !fails {
				return taken, err
			}
			return nil, errOops
		})
	}},
	{"close mail that is closed", func(d *differential) act {
		ids := d.mailIDs()
		return inTx(func(tx kernel.Tx) (int, error) {
			taken, err := tx.TakeMail(ids)
			var closed []kernel.ClosedMail
			for _, m := range ids {
				if m.To != id(19_999) && !slices.Contains(taken, m) {
					closed = append(closed, kernel.ClosedMail{MailID: m})
				}
			}
			if err != nil || len(closed) == 0 {
				return 0, err
			}
			return len(closed), tx.CloseMail(closed)
		})
	}},
	{"Census", func(*differential) act {
		return reads(func(s kernel.Store) (*kernel.Census, error) {
			c, err := s.Census(ctx, 1<<30)
			if c != nil {
				c.Now = time.Time{}
				for i := range c.Ready { // an estimate
					c.Ready[i].Oldest = time.Time{}
				}
				sortCensus(c)
			}
			return c, err
		})
	}},
	{"SaveStats", func(d *differential) act {
		text := fmt.Sprintf(`{"n": %d}`, d.rnd.IntN(5))
		return inTx(func(tx kernel.Tx) (any, error) { return nil, tx.SaveStats(json.RawMessage(text)) })
	}},
	{"Stats", func(*differential) act {
		return reads(func(s kernel.Store) (string, error) {
			b, err := s.Stats(ctx)
			return string(b), err
		})
	}},
	{"PutSeries", func(d *differential) act {
		node, at := d.pick("n1", "n2"), time.Duration(d.rnd.IntN(5))*time.Minute
		var counts []kernel.SeriesCount
		for i, name := range []string{"order", "import", "a"} {
			if d.chance(70) {
				counts = append(counts, kernel.SeriesCount{Minute: minuteOf(at), Scope: kernel.SeriesScope(1 + i%2), Name: name, Outcome: d.pick("done", "failed"), N: int64(d.rnd.IntN(9))})
			}
		}
		return func(s kernel.Store) (any, error) { return len(counts), s.PutSeries(ctx, node, counts) }
	}},
	{"Series", func(d *differential) act {
		most, since := d.max(), minuteOf(time.Duration(d.rnd.IntN(5))*time.Minute)
		return reads(func(s kernel.Store) ([]kernel.SeriesCount, error) { return s.Series(ctx, since, most) })
	}},
	{"ForgetSeries", func(d *differential) act {
		before := minuteOf(time.Duration(d.rnd.IntN(4)) * time.Minute)
		return reads(func(s kernel.Store) (int, error) { return s.ForgetSeries(ctx, before, 1000) })
	}},
	{"SetMaxMail", func(d *differential) act {
		most := []int{1, 5, 1000, 1_000_000}[d.rnd.IntN(4)]
		return inTx(func(tx kernel.Tx) (any, error) { return nil, tx.SetMaxMail(most) })
	}},
	{"Mail", func(d *differential) act {
		most, bytes := d.max(), []int{1, 300, 1 << 20}[d.rnd.IntN(3)]
		return reads(func(s kernel.Store) ([]kernel.Mail, error) { return s.Mail(ctx, most, bytes) })
	}},
	{"MailWaiting", func(d *differential) act {
		return reads(func(s kernel.Store) (int, error) {
			w, err := s.MailWaiting(ctx)
			return w.Number, err
		})
	}},
	{"Submission", func(d *differential) act {
		ids := d.mailIDs()
		return reads(func(s kernel.Store) (all []kernel.Submission, err error) {
			for _, m := range ids {
				n, err := s.Submission(ctx, m.To)
				if err != nil {
					return nil, err
				}
				if n != nil {
					n.PostedAt, n.ClosedAt = time.Time{}, n.ClosedAt.Truncate(1e6*time.Hour)
					n.Refusal = compact(n.Refusal)
					all = append(all, *n)
				}
			}
			return all, nil
		})
	}},
	{"ForgetMail", func(d *differential) act {
		most := []int{0, 1000}[d.rnd.IntN(2)]
		applied, refused := d.distantTime(), d.distantTime()
		return reads(func(s kernel.Store) (int, error) { return s.ForgetMail(ctx, applied, refused, most) })
	}},
	{"Backlog", func(d *differential) act {
		most := d.max()
		return reads(func(s kernel.Store) (int, error) { return s.Backlog(ctx, most) })
	}},
	{"ReadyAgents", func(d *differential) act {
		most := d.max()
		return reads(func(s kernel.Store) ([]string, error) { return s.ReadyAgents(ctx, most) })
	}},
	{"put a host", func(d *differential) act {
		h := d.host()
		return inTx(func(tx kernel.Tx) (*kernel.Host, error) {
			was, err := tx.LockHost(h.Name)
			if err != nil {
				return nil, err
			}
			return was, tx.PutHost(&h, was)
		})
	}},
	{"put a host that has changed", func(d *differential) act {
		h, was := d.host(), d.host()
		was.Name = h.Name
		return inTx(func(tx kernel.Tx) (any, error) { return nil, tx.PutHost(&h, &was) })
	}},
	{"delete a host", func(d *differential) act {
		name := d.hostName()
		return inTx(func(tx kernel.Tx) (int, error) {
			was, err := tx.LockHost(name)
			if err != nil || was == nil {
				return 0, err
			}
			if err := tx.DeleteHost(was); err != nil {
				return 0, err
			}
			return tx.CountHosts()
		})
	}},
	{"Hosts", func(d *differential) act {
		names, share := []string{d.hostName(), d.hostName()}, d.chance(50)
		return inTx(func(tx kernel.Tx) ([]kernel.Host, error) {
			if share {
				return tx.ShareHosts(names)
			}
			return tx.Hosts(names)
		})
	}},
	{"ListHosts", func(d *differential) act {
		after, most := d.pick("", "h1", "zz"), d.max()
		return reads(func(s kernel.Store) ([]kernel.Host, error) { return s.ListHosts(ctx, after, most) })
	}},
	{"HostRuns", func(d *differential) act {
		holder, most := d.holder(), d.max()
		return reads(func(s kernel.Store) ([]kernel.HostRun, error) { return s.HostRuns(ctx, holder, most) })
	}},
	{"HostUses", func(d *differential) act {
		holders := []string{d.holder(), d.holder()}
		return reads(func(s kernel.Store) ([]kernel.HostUse, error) { return hostUses(s, holders) })
	}},
	{"ReportNode", func(d *differential) act {
		p := kernel.NodeReport{Node: kernel.Node{ID: d.pick("n1", "n2", "n3"), Host: "h", PID: d.rnd.IntN(100), Version: "v", Agents: []string{d.agent()}, Slots: []int{d.rnd.IntN(9)}, Since: d.time()}, TTL: ttl}
		if d.chance(50) {
			p.Seen = []kernel.LastClaim{{Agent: d.agent(), Holder: d.holder(), At: d.time()}, {Agent: d.agent(), Holder: "both", At: d.time()}}
		}
		return reads(func(s kernel.Store) (string, error) {
			roll, err := s.ReportNode(ctx, p)
			if err != nil {
				return "", err
			}
			nodes, err := s.Nodes(ctx)
			if err != nil {
				return "", err
			}
			for i := range nodes {
				nodes[i].SeenAt = time.Time{}
			}
			seen, err := s.LastClaims(ctx)
			return fmt.Sprint(withoutTimes(roll.Roles), nodes, seen), err
		})
	}},
	{"Elect", func(d *differential) act {
		name, node, away := d.pick("r1", "r2"), d.pick("n1", "n2", "n3"), d.chance(40)
		host := map[string]string{"n1": "h1", "n2": "h1", "n3": "h2"}[node]
		return reads(func(s kernel.Store) ([]kernel.Role, error) {
			if err := s.Update(ctx, func(tx kernel.Tx) error {
				roles, err := tx.LockRoles([]string{name})
				if err != nil {
					return err
				}
				now, err := tx.Now()
				if err != nil {
					return err
				}
				next := roles[0].Enlist(node, host, now, ttl)
				if away {
					next = roles[0].HandOver(node, now, ttl)
				}
				return tx.SaveRoles([]kernel.RoleChange{{Now: next, Loaded: roles[0]}})
			}); err != nil {
				return nil, err
			}
			roles, err := s.Roles(ctx)
			return withoutTimes(roles), err
		})
	}},
	{"HeldRole", func(d *differential) act {
		name, holder, give := d.pick("h1", "h2"), d.holder(), d.chance(40)
		return reads(func(s kernel.Store) ([]kernel.HeldRole, error) {
			if err := s.Update(ctx, func(tx kernel.Tx) error {
				role, err := tx.LockHeldRole(name)
				if err != nil {
					return err
				}
				now, err := tx.Now()
				if err != nil {
					return err
				}
				next := role.Hold(holder, now, 0, ttl)
				if give {
					next = role.Release(holder)
				}
				if next.Epoch == 0 {
					return nil
				}
				return tx.SaveHeldRole(kernel.HeldRoleChange{Now: next, Loaded: role})
			}); err != nil {
				return nil, err
			}
			roles, err := s.HeldRoles(ctx)
			for i := range roles {
				roles[i].Until = time.Time{}
			}
			return roles, err
		})
	}},
	{"DropNode", func(d *differential) act {
		name := d.pick("n1", "n2", "n3")
		return reads(func(s kernel.Store) ([]kernel.Node, error) {
			if err := s.DropNode(ctx, name); err != nil {
				return nil, err
			}
			nodes, err := s.Nodes(ctx)
			for i := range nodes {
				nodes[i].SeenAt = time.Time{}
			}
			return nodes, err
		})
	}},
}

// withoutTimes clears the times at which places lapse, because each store has its own clock.
func withoutTimes(roles []kernel.Role) []kernel.Role {
	roles = slices.Clone(roles)
	for i := range roles {
		roles[i].LeaderUntil, roles[i].StandbyUntil = time.Time{}, time.Time{}
	}
	return roles
}

// walk reads all pages of a list, of which each reads a few jobs only.
func walk(s kernel.Store, f kernel.JobFilter) (ids []perdure.JobID, err error) {
	for pages := 0; ; pages++ {
		jobs, stopped, err := s.ListJobs(ctx, f)
		if err != nil || pages > 10_000 {
			return ids, cmp.Or(err, errEndless)
		}
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		last := stopped
		switch {
		case len(jobs) == f.Limit:
			last = jobs[len(jobs)-1].ID
		case stopped.IsZero():
			return ids, nil
		}
		if f.Ascending {
			f.After = last
		} else {
			f.Before = last
		}
	}
}

var errEndless = errors.New("the list does not end")

// filter returns a filter for lists, with random fields set.
func (d *differential) filter() kernel.JobFilter {
	f := kernel.JobFilter{Limit: d.rnd.IntN(6), Ascending: d.chance(30)}
	if d.chance(20) {
		f.Phases = []perdure.Phase{perdure.Phase(d.rnd.IntN(5))}
	}
	if d.chance(10) {
		f.Phases = []perdure.Phase{perdure.Parked, perdure.Running, perdure.Waiting, perdure.Settled}[d.rnd.IntN(3):]
	}
	if d.chance(10) {
		f.Agent = d.agent()
	}
	if d.chance(5) {
		f.Step = fmt.Sprintf("s%d", d.rnd.IntN(3))
	}
	if d.chance(5) {
		f.ErrorCode = d.pick("503", "none")
	}
	if d.chance(10) {
		f.Alert = perdure.AlertKind(d.pick("parked", "waiting", "alert", "overdue"))
	}
	if d.chance(20) {
		s := perdure.State(d.rnd.IntN(3))
		f.Current = &s
	}
	if d.chance(20) {
		s := perdure.State(d.rnd.IntN(2))
		f.Desired = &s
	}
	if d.chance(20) {
		f.Type = d.typ()
	}
	if d.chance(5) {
		f.Key = fmt.Sprintf("key-%d", d.someJob())
	}
	if d.chance(20) {
		f.Labels = map[string]string{"zone": d.pick("eu", "us", "")}
	}
	if d.chance(20) {
		f.Labels = map[string]string{"zone": d.pick("eu", "us", ""), "n": d.pick("0", "1", "2")}
	}
	if d.chance(20) {
		f.Before = id(d.someJob())
	}
	if d.chance(20) {
		f.After = id(d.someJob())
	}
	return f
}

// bulkRead is everything that is read of bulk acts.
type bulkRead struct {
	List       []*kernel.BulkAct
	One, ByKey *kernel.BulkAct
	Listed     []perdure.JobID
	Refusals   []kernel.BulkRefusal
	Running    int
}

// accessRead is everything that is read of credentials and the audit log.
type accessRead struct {
	Some                 []*kernel.Credential
	List                 []*kernel.Credential
	HasAdmin, OtherAdmin bool
	Audit                []operate.AuditEntry
	Count                int
	Sessions             []string
}

// outboxRead is everything that is read of receivers and notifications.
type outboxRead struct {
	One                   *kernel.Receiver
	Receivers             []*kernel.Receiver
	Pending               []string
	Due, Streamed, Listed []kernel.Notification
	ForStream             []kernel.PendingNotification
	Count, CountAll, Dead int
}

// receiver returns the name of a receiver, or a URL that a definition names.
func (d *differential) receiver() string { return d.pick("a", "b", "https://x.example/ü") }

func (d *differential) eventKind() operate.EventKind {
	return operate.EventKind(d.pick(string(operate.EventDone), string(operate.EventParked), string(operate.EventTest)))
}

// deliveryOutcome returns the outcome of an attempt. No two notifications have the same position in a stream.
func (d *differential) deliveryOutcome() kernel.DeliveryOutcome {
	o := kernel.DeliveryOutcome{State: operate.DeliveryPending, Attempts: d.rnd.IntN(5), NextAt: d.time(), Error: d.pick("", "no\nanswer")}
	if d.chance(70) {
		o.State, o.NextAt, o.EndedAt = operate.DeliveryDead, time.Time{}, d.time()
		if d.chance(50) {
			d.streamed++
			o.State, o.Position = operate.DeliveryDelivered, int64(d.streamed)
		}
	}
	return o
}

func (d *differential) bulkState() operate.BulkState {
	return operate.BulkStates[d.rnd.IntN(len(operate.BulkStates))]
}

// mailKey returns a key for a submission: none, one of its own kind, or that of a job.
func (d *differential) mailKey() string {
	if d.chance(30) {
		return fmt.Sprintf("key-%d", d.someJob())
	}
	return d.pick("", "", "post-1", "post-2", "post-3")
}

// mailIDs returns the ids of some posted submissions, each once, and of one that was not posted.
func (d *differential) mailIDs() []kernel.MailID {
	ids := []kernel.MailID{kernel.SubmissionOf(id(19_999))}
	for _, to := range d.posted[max(0, len(d.posted)-30):] {
		if d.chance(30) {
			ids = append(ids, kernel.SubmissionOf(to))
		}
	}
	return ids
}

// distantTime returns a time long ago or far ahead of any store's clock.
func (d *differential) distantTime() time.Time {
	if d.chance(50) {
		return time.Now().Add(-24 * time.Hour)
	}
	return time.Now().Add(24 * time.Hour)
}

// compact removes the spaces from JSON text.
func compact(text json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// withStepsToFind returns those of these agents for which a search finds a step. If all ready steps of an agent are in
// closed lanes, a store may list the agent or not (see kernel.PollAnswer).
func withStepsToFind(s kernel.Store, agents []string) (found []string, err error) {
	err = s.Update(ctx, func(tx kernel.Tx) error {
		found = []string{}
		for _, agent := range agents {
			steps, err := tx.Ready(agent, 1, nil, nil)
			if err != nil {
				return err
			}
			if len(steps) > 0 {
				found = append(found, agent)
			}
		}
		return nil
	})
	return found, err
}
