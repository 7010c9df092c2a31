package dispatch

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

var refresh = flag.Bool("refresh", false, "write what happened into the transcripts")

// The example of doc.go and the transcripts in testdata happen as they are written.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("%d transcripts", len(files))
	}
	for _, file := range append(files, "doc.go") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := string(text)
			if file == "doc.go" {
				want = exampleOf(t, want)
			}
			p := newPlay(t)
			for line := range strings.Lines(want) {
				switch {
				case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
					p.out.WriteString(line)
				case strings.HasPrefix(line, "> "):
					p.out.WriteString(line)
					p.command(strings.Fields(line)[1:])
				}
			}
			if *refresh && file != "doc.go" {
				p.must(os.WriteFile(file, []byte(p.out.String()), 0o644))
			}
			if diff := cmp.Diff(want, p.out.String()); diff != "" {
				t.Errorf("-written +happened:\n%s", diff)
			}
		})
	}
}

// exampleOf returns the last indented block of a package comment.
func exampleOf(t *testing.T, source string) string {
	_, text, found := strings.Cut(source, "//\t> ")
	if !found {
		t.Fatal("doc.go has no example")
	}
	var b strings.Builder
	for line := range strings.Lines("//\t> " + text) {
		if example, ok := strings.CutPrefix(line, "//\t"); ok {
			b.WriteString(example)
		}
	}
	return b.String()
}

// play carries out the commands of a transcript against a store in memory.
type play struct {
	*testing.T
	out    strings.Builder
	store  *memory.Store
	queue  *Queue
	jobs   map[string]perdure.JobID
	names  map[perdure.JobID]string
	claims map[string]*Claim
	order  []string
	taken  []*Claim
	turn   int
}

func newPlay(t *testing.T) *play {
	p := &play{T: t, store: memory.New(), queue: NewQueue(env.Real{}, 1, false), jobs: map[string]perdure.JobID{}, names: map[perdure.JobID]string{}, claims: map[string]*Claim{}}
	p.queue.agent("mail")
	return p
}

func (p *play) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *play) command(args []string) {
	switch args[0] {
	case "limit":
		p.must(p.store.Update(context.Background(), func(tx kernel.Tx) error {
			l := kernel.Limit{Name: args[1], Max: kernel.Unbounded, PerKey: kernel.Unbounded}
			bound := &l.Max
			if len(args) == 4 { // limit NAME per-key N
				bound = &l.PerKey
			}
			_, err := fmt.Sscan(args[len(args)-1], bound)
			p.must(err)
			return tx.PutLimit(l)
		}))
		return
	case "submit", "urgent":
		p.transaction(nil, func(b *fakeBatch) {
			for _, name := range args[1:] {
				def := perdure.Define("letter")
				if args[0] == "urgent" {
					def.Priority(9)
				}
				step := def.Step("send", "mail")
				for i, account := range strings.Split(name, "/")[1:] { // a/acme/bolt: of limit ads, the steps of a need a permit for key acme, and for bolt
					if i > 0 {
						step = step.Step(fmt.Sprint("again", i), "mail").After("send")
					}
					step.Limit("ads", account, 1)
				}
				plan, err := definition.FromDefinition(step)
				p.must(err)
				id := perdure.JobID{1, byte(len(p.jobs))}
				p.jobs[name], p.names[id] = id, name
				b.w.Submit(id, plan)
			}
		})
	case "claim", "repeat":
		c := NewClaim(protocol.Claim{Agent: "mail", Holder: args[1], Max: 1, Wait: time.Minute, RequestID: args[1], First: args[0] == "claim", Heartbeat: time.Minute},
			time.Now(), func() int { return 1 << 40 })
		p.claims[args[1]] = c
		p.order = append(p.order, args[1])
		p.must(p.queue.Wait(c))
	case "take":
		p.queue.mu.Lock()
		work := p.queue.shouldBegin()
		p.queue.mu.Unlock()
		if !work {
			p.out.WriteString("nothing to take\n")
			break
		}
		_, p.taken, p.turn, _ = p.queue.Take()
	case "serve":
		claims := p.taken
		p.taken = nil
		p.transaction(claims, func(*fakeBatch) {})
		p.queue.Saved(p.turn)
	case "wake":
		p.queue.Wake([]string{"mail"})
	case "leave":
		if p.queue.Leave(p.claims[args[1]]) {
			fmt.Fprintf(&p.out, "%s is answered: nothing\n", args[1])
			p.forget(args[1])
		}
	case "report":
		p.transaction(nil, func(b *fakeBatch) {
			ref := kernel.StepRef{Job: p.jobs[args[1]]}
			_, err := b.TryLock([]kernel.StepRef{ref})
			p.must(err)
			refs := []kernel.StepRef{ref}
			for i := 1; i < len(b.w.Plan(ref.Job).Steps); i++ {
				refs = append(refs, kernel.StepRef{Job: ref.Job, Index: i})
			}
			p.must(b.LoadSteps(refs))
			s := b.w.Step(ref)
			outcome := perdure.OutcomeDone
			if args[2] == "returned" {
				outcome = perdure.OutcomeReturned
			}
			if res := b.w.Report(ref, s.LockedBy, &protocol.Report{Job: ref.Job, Step: s.Name, Run: s.Run, Outcome: outcome}); !res.Accepted {
				p.Fatalf("%+v", res)
			}
			b.freed = true
		})
	default:
		p.Fatalf("unknown command %q", args[0])
	}
	p.state()
}

// transaction applies events and serves claims, as the scheduler does.
func (p *play) transaction(claims []*Claim, apply func(*fakeBatch)) {
	var b *fakeBatch
	var t *Transaction
	p.must(p.store.Update(context.Background(), func(tx kernel.Tx) error {
		now, err := tx.Now()
		p.must(err)
		b = &fakeBatch{play: p, tx: tx, w: kernel.NewWorkset(now, func() float64 { return 0.5 })}
		b.SetBudget(&kernel.Budget{Work: 1 << 20, Bytes: b.MaxBytes(), Read: perdure.MaxReadBytes})
		apply(b)
		fresh := b.w.NewlyReady()
		if len(fresh) > 0 {
			claims = append(claims, p.queue.TakeWaiting([]string{"mail"})...)
		}
		t = p.queue.Begin(b, claims)
		p.must(t.Dispatch(map[string][]kernel.StepRef{"mail": fresh}))
		t.ReturnEarly()
		b.woken = len(t.Opened()) > 0 || slices.ContainsFunc(fresh, func(ref kernel.StepRef) bool { return b.w.Step(ref).Phase == perdure.Ready })
		t.ReleaseSearches()
		return tx.Save(b.w.FinalChanges())
	}))
	o := Outcome{Freed: b.freed}
	if b.woken {
		o.Woken = []string{"mail"}
	}
	t.End(o)
	for _, name := range slices.Clone(p.order) {
		c := p.claims[name]
		select {
		case <-c.Answered:
			p.forget(name)
			if len(c.Runs) == 0 {
				fmt.Fprintf(&p.out, "%s is answered: nothing\n", name)
			}
			for _, run := range c.Runs {
				fmt.Fprintf(&p.out, "%s is granted %s\n", name, p.names[run.Job])
			}
		default:
		}
	}
}

func (p *play) forget(name string) {
	p.order = slices.DeleteFunc(p.order, func(other string) bool { return other == name })
}

// state prints what the queue knows of the agent, and the claims.
func (p *play) state() {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	a := p.queue.agent("mail")
	var words []string
	switch a.lastResult {
	case limitFull:
		words = append(words, "steps wait for a limit")
	case moreReady:
		words = append(words, "more may be ready")
	}
	if p.queue.due[a] {
		words = append(words, "due")
	}
	if a.searching {
		words = append(words, "search in progress")
	}
	if len(words) == 0 && a.searchEnded.IsZero() {
		words = append(words, "nothing known")
	} else if len(words) == 0 {
		words = append(words, "nothing else is ready")
	}
	p.out.WriteString("mail: " + strings.Join(words, ", "))
	for _, c := range a.waiting {
		p.out.WriteString("; waiting " + c.Request.Holder)
	}
	for _, c := range p.taken {
		word := "taken"
		if c.state == leaving {
			word = "leaving"
		}
		fmt.Fprintf(&p.out, "; %s %s (%s)", word, c.Request.Holder, []string{"repeatOnly", "ownSteps", "urgentSteps", "searchStore"}[c.mode])
	}
	p.out.WriteString("\n")
}

// fakeBatch is a transaction without rendering.
type fakeBatch struct {
	*play
	tx     kernel.Tx
	w      *kernel.Workset
	budget *kernel.Budget
	freed  bool
	woken  bool
}

func (b *fakeBatch) Tx() Tx                   { return b.tx }
func (b *fakeBatch) Workset() *kernel.Workset { return b.w }
func (b *fakeBatch) Began() time.Time         { return time.Now() }
func (b *fakeBatch) Budget() *kernel.Budget   { return b.budget }
func (b *fakeBatch) MaxBytes() int            { return 1 << 20 }
func (b *fakeBatch) Save() error              { return b.tx.Save(b.w.Changes()) }

func (b *fakeBatch) SetBudget(budget *kernel.Budget) {
	b.budget = budget
	b.w.SetBudget(budget, nil)
}

func (b *fakeBatch) TryLock(refs []kernel.StepRef) (bool, error) {
	var ids []perdure.JobID
	for _, ref := range refs {
		if !b.w.Has(ref.Job) {
			ids = append(ids, ref.Job)
		}
	}
	jobs, err := b.tx.TryLockJobs(ids)
	for _, j := range jobs {
		texts, err := b.tx.Shapes([]kernel.ShapeID{j.Shape})
		b.must(err)
		shape, err := new(definition.Compiler).Compile(texts[j.Shape])
		b.must(err)
		plan, err := shape.PlanOf(j, nil)
		b.must(err)
		b.w.AddJob(j, plan)
	}
	return len(jobs) < len(ids), err
}

func (b *fakeBatch) LoadSteps(refs []kernel.StepRef) error {
	refs = slices.DeleteFunc(slices.Clone(refs), b.w.HasStep)
	steps, err := b.tx.Steps(refs)
	b.w.AddSteps(steps)
	return err
}

func (b *fakeBatch) LoadPayloads(refs []kernel.StepRef) (bool, error) {
	found, err := b.tx.Payloads(refs, b.budget.Read)
	b.w.AddPayloads(refs, found)
	return true, err
}

func (b *fakeBatch) Fold(_ perdure.JobID, rule func()) error {
	rule()
	return nil
}

func (b *fakeBatch) Damaged(_ perdure.JobID, why error) error { return why }

func (b *fakeBatch) Postpone(*kernel.Rendering, string) bool { return true }
