package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

// logged is a node with a run of the step a of the job k, by the holder h.
type logged struct {
	*testing.T
	node *node.Node
	run  perdure.Run
}

func startLogged(t *testing.T, store kernel.Store) *logged {
	n := start(t, store, node.Config{})
	submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: ours, undo: {}, retry: {attempts: 3, backoff: 1ms}}\n")
	return &logged{t, n, claimOne(t, n, "h")}
}

func claimOne(t *testing.T, n *node.Node, holder string) perdure.Run {
	t.Helper()
	runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "ours", Holder: holder, Max: 1, Wait: 10 * time.Second})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	return runs[0]
}

func (l *logged) chunk(offset int64, data string, edits ...func(*protocol.LogChunk)) protocol.LogChunk {
	c := protocol.LogChunk{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number, Stream: operate.Stdout, Offset: offset, Data: []byte(data)}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func last(c *protocol.LogChunk)   { c.Last = true }
func skips(c *protocol.LogChunk)  { c.Skips = true }
func stderr(c *protocol.LogChunk) { c.Stream = operate.Stderr }

// add adds one chunk, and compares the answer.
func (l *logged) add(holder string, c protocol.LogChunk, want string) {
	l.Helper()
	results, err := l.node.AppendLogs(l.Context(), holder, []protocol.LogChunk{c})
	if err != nil {
		l.Fatal(err)
	}
	r := results[0]
	got := fmt.Sprint(r.Reason, " ", r.Next)
	if r.Accepted {
		got = fmt.Sprint("accepted ", r.Next)
	}
	if got != want {
		l.Errorf("chunk of %d bytes at %d by %s: %s, want %s", len(c.Data), c.Offset, holder, got, want)
	}
}

// text returns a log with marks for what is left out.
func (l *logged) text(q operate.LogQuery) (text string, end bool) {
	l.Helper()
	var b bytes.Buffer
	q.Job, q.Step = "k", "a"
	if err := l.node.ReadLog(l.Context(), q, func(p *operate.LogPart) error {
		if p.LeftOut > 0 {
			fmt.Fprintf(&b, "[%d]", p.LeftOut)
		}
		b.Write(p.Data)
		end = p.End
		return nil
	}); err != nil {
		l.Fatal(err)
	}
	return b.String(), end
}

func (l *logged) report(outcome perdure.Outcome) {
	l.Helper()
	rep := protocol.Report{Job: l.run.Job, Step: l.run.Step, Run: l.run.Number, Outcome: outcome}
	if results, _, err := l.node.Report(l.Context(), "h", []protocol.Report{rep}, nil); err != nil || !results[0].Accepted {
		l.Fatalf("%+v, %v", results, err)
	}
}

// A chunk is stored once, however often and in however many parts it is sent (F190). A missing part is noticed.
func TestChunksOfALogAreStoredOnce(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		l := startLogged(t, store)
		l.add("h", l.chunk(0, "hello "), "accepted 6")
		l.add("h", l.chunk(0, "hello "), "accepted 6")
		l.add("h", l.chunk(3, "lo wor"), "accepted 9")
		l.add("h", l.chunk(2, "llo"), "accepted 9")
		l.add("h", l.chunk(10, "d"), "gap 9")
		l.add("h", l.chunk(9, "ld"), "accepted 11")
		l.add("h", l.chunk(0, "oops", stderr), "accepted 4")
		if got, end := l.text(operate.LogQuery{}); got != "hello world" || end {
			t.Errorf("%q, end %v", got, end)
		}
		if got, _ := l.text(operate.LogQuery{Stream: operate.Stderr, Run: l.run.Number}); got != "oops" {
			t.Errorf("stderr %q", got)
		}
		for _, c := range []struct {
			q    operate.LogQuery
			want string
		}{{operate.LogQuery{Offset: 6}, "world"}, {operate.LogQuery{Tail: 3}, "rld"}, {operate.LogQuery{Tail: 3, Offset: 10}, "d"}, {operate.LogQuery{Offset: 50}, ""}, {operate.LogQuery{Tail: 50}, "hello world"}} {
			if got, _ := l.text(c.q); got != c.want {
				t.Errorf("%+v: %q", c.q, got)
			}
		}
		l.add("h", l.chunk(100, "again", skips), "accepted 105")
		if got, _ := l.text(operate.LogQuery{Offset: 6}); got != "world[89]again" {
			t.Errorf("with a gap: %q", got)
		}
		l.add("h", l.chunk(105, "!", last), "accepted 106")
		l.add("h", l.chunk(106, "more"), "late 106")
		l.add("h", l.chunk(104, "n!"), "accepted 106")
		if _, end := l.text(operate.LogQuery{}); !end {
			t.Error("the log is complete, and has no end")
		}
	})
}

// Only the holder of a run adds to its log; also after the run has ended, if it has begun the log before (F191).
func TestOnlyTheHolderAddsToALog(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		l := startLogged(t, store)
		l.add("other", l.chunk(0, "x"), "forbidden 0")
		other := l.chunk(0, "x")
		other.Run++
		l.add("h", other, "unknown 0")
		other = l.chunk(0, "x")
		other.Step = "b"
		l.add("h", other, "unknown 0")
		other = l.chunk(0, "x")
		other.Job[0]++
		l.add("h", other, "unknown 0")
		l.add("h", l.chunk(0, ""), "accepted 0")
		l.add("other", l.chunk(0, "x"), "forbidden 0")
		l.add("other", l.chunk(0, "x", stderr), "forbidden 0")
		l.report(perdure.OutcomeFailed)
		l.add("h", l.chunk(0, "x"), "accepted 1")
		l.add("h", l.chunk(0, "y", stderr), "accepted 1")

		first := l.run
		l.run = claimOne(t, l.node, "h")
		l.report(perdure.OutcomeFailed)
		l.add("h", l.chunk(0, "x"), "late 0") // its log was not begun
		second := l.run
		l.run = claimOne(t, l.node, "h3")
		l.add("h3", l.chunk(0, "three"), "accepted 5")
		l.run = second
		l.add("h", l.chunk(0, "x"), "late 0")
		l.run = first
		l.add("h", l.chunk(1, "z"), "accepted 2")
		if got, end := l.text(operate.LogQuery{Run: first.Number}); got != "xz" || !end {
			t.Errorf("the first run: %q, end %v", got, end)
		}
		if got, end := l.text(operate.LogQuery{}); got != "three" || end {
			t.Errorf("the latest run: %q, end %v", got, end)
		}
		for _, q := range []operate.LogQuery{{Job: "k", Step: "a", Run: 9}, {Job: "k", Step: "b"}, {Job: "x", Step: "a"}} {
			if err := l.node.ReadLog(t.Context(), q, nil); perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Errorf("%+v: %v", q, err)
			}
		}
		for _, q := range []operate.LogQuery{{Job: "k", Step: "a", Stream: "x"}, {Job: "k", Step: "a", Offset: -1}} {
			if err := l.node.ReadLog(t.Context(), q, nil); perdure.CodeOf(err) != perdure.CodeInvalid {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// A reader that follows a log receives each byte once, and ends with the run.
func TestFollowedLogEndsWithItsRun(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		l := startLogged(t, store)
		got := make(chan string, 100)
		done := make(chan error, 1)
		go func() {
			done <- l.node.ReadLog(t.Context(), operate.LogQuery{Job: "k", Step: "a", Follow: true}, func(p *operate.LogPart) error {
				text := string(p.Data)
				if p.End {
					text += "END"
				}
				got <- text
				return nil
			})
		}()
		if s := <-got; s != "" {
			t.Fatalf("before the first byte: %q", s)
		}
		offset := int64(0)
		for _, s := range []string{"one\n", "two\n"} {
			l.add("h", l.chunk(offset, s), fmt.Sprint("accepted ", offset+int64(len(s))))
			offset += int64(len(s))
			if g := <-got; g != s {
				t.Fatalf("%q, want %q", g, s)
			}
		}
		l.report(perdure.OutcomeDone)
		l.add("h", l.chunk(offset, "rest", last), fmt.Sprint("accepted ", offset+4))
		if g := <-got + <-got; g != "restEND" {
			t.Errorf("at the end: %q", g)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// F270: a reader that follows a log whose run has ended waits longer for a host that lives, because the node may refuse its
// bytes for a while. It receives no end unless the holder has sent all.
func TestFollowedLogOfALivingHostIsWaitedFor(t *testing.T) {
	for holder, c := range map[string]struct {
		pause time.Duration
		want  string
	}{
		"h":                        {4 * time.Second, "one two END"},
		"other":                    {7 * time.Second, "one "},
		"host/h1/0011223344556677": {20 * time.Second, "one two END"},
		"host/h2/0011223344556677": {40 * time.Second, "one "},
		"host/h3/7766554433221100": {7 * time.Second, "one "}, // it is registered with another incarnation
	} {
		synctest.Test(t, func(t *testing.T) {
			n := start(t, memory.New(), node.Config{})
			for _, name := range []string{"h1", "h2", "h3"} {
				if _, err := n.RegisterHost(t.Context(), operate.HostRequest{Name: name, HostSettings: operate.HostSettings{Incarnation: "0011223344556677", Capacity: perdure.Amounts{"slots": 1}, Heartbeat: perdure.Duration(time.Hour)}}); err != nil {
					t.Fatal(err)
				}
			}
			submit(t, n, "type: t\nkey: k\nsteps:\n  a: {agent: ours}\n")
			l := &logged{t, n, claimOne(t, n, holder)}
			l.add(holder, l.chunk(0, "one "), "accepted 4")
			if results, _, err := n.Report(t.Context(), holder, []protocol.Report{{Job: l.run.Job, Step: "a", Run: 1, Outcome: perdure.OutcomeDone}}, nil); err != nil || !results[0].Accepted {
				t.Fatalf("%+v, %v", results, err)
			}
			time.AfterFunc(c.pause, func() { l.add(holder, l.chunk(4, "two ", last), "accepted 8") })
			text, end := l.text(operate.LogQuery{Follow: true})
			if end {
				text += "END"
			}
			if text != c.want {
				t.Errorf("%s: %q, want %q", holder, text, c.want)
			}
			time.Sleep(time.Minute)
		})
	}
}

// A reader on the node that stores a chunk is woken, and does not poll.
func TestReaderOfALogIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLogged(t, memory.New())
		got := make(chan time.Time, 10)
		go func() {
			_ = l.node.ReadLog(t.Context(), operate.LogQuery{Job: "k", Step: "a", Follow: true}, func(*operate.LogPart) error { got <- time.Now(); return nil })
		}()
		<-got
		time.Sleep(300 * time.Millisecond)
		added := time.Now()
		l.add("h", l.chunk(0, "one", last), "accepted 3")
		if lag := (<-got).Sub(added); lag > 100*time.Millisecond {
			t.Errorf("a chunk is seen %s after it was stored", lag)
		}
	})
}

// stepReads is a store that counts the transactions that read one step alone.
type stepReads struct {
	kernel.Store
	n *atomic.Int64
}

func (s stepReads) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	return s.Store.Update(ctx, func(tx kernel.Tx) error { return fn(stepReadsTx{tx, s.n}) })
}

type stepReadsTx struct {
	kernel.Tx
	n *atomic.Int64
}

func (tx stepReadsTx) Steps(refs []kernel.StepRef) ([]*kernel.Step, error) {
	if len(refs) == 1 && refs[0].Index == 16 {
		tx.n.Add(1)
	}
	return tx.Tx.Steps(refs)
}

// The reader of a log of a job with many steps needs a transaction to read its step. It reads the step once a second, however
// often the log grows.
func TestReaderOfALogReadsItsStepSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		n := start(t, stepReads{memory.New(), &reads}, node.Config{})
		steps := "type: t\nkey: k\nsteps:\n"
		for i := range 16 {
			steps += fmt.Sprintf("  s%d: {agent: other}\n", i)
		}
		submit(t, n, steps+"  a: {agent: ours, completeWithin: 1h}\n")
		l := &logged{t, n, claimOne(t, n, "h")}
		reads.Store(0)
		text := make(chan string)
		go func() {
			got, _ := l.text(operate.LogQuery{Follow: true})
			text <- got
		}()
		for i := range int64(100) {
			l.add("h", l.chunk(i, "x"), fmt.Sprint("accepted ", i+1))
			time.Sleep(100 * time.Millisecond)
		}
		if n := reads.Load(); n < 5 || n > 13 { // the first ones are for the call and the first chunk
			t.Errorf("%d reads in ten seconds", n)
		}
		l.add("h", l.chunk(100, "", last), "accepted 100")
		if got := <-text; got != strings.Repeat("x", 100) {
			t.Errorf("%q", got)
		}
	})
}

// A reader ends when its context does, and when its function returns an error.
func TestReaderOfALogEnds(t *testing.T) {
	l := startLogged(t, memory.New())
	ctx, cancel := context.WithCancel(t.Context())
	err := l.node.ReadLog(ctx, operate.LogQuery{Job: "k", Step: "a", Follow: true}, func(*operate.LogPart) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	oops := errors.New("oops")
	if err := l.node.ReadLog(t.Context(), operate.LogQuery{Job: "k", Step: "a"}, func(*operate.LogPart) error { return oops }); !errors.Is(err, oops) {
		t.Error(err)
	}
}

// Calls of many holders at once are each answered, and each byte is stored once (F190).
func TestManyCallsAddToLogs(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		l := startLogged(t, store)
		var wg sync.WaitGroup
		for range 8 { // all of them send the same bytes: another one may be ahead
			wg.Go(func() {
				for i := range int64(20) {
					results, err := l.node.AppendLogs(t.Context(), "h", []protocol.LogChunk{l.chunk(i*3, "abc"), l.chunk(i*3, "xy", stderr, skips)})
					if err != nil || !results[0].Accepted || !results[1].Accepted {
						t.Errorf("%+v, %v", results, err)
					}
				}
			})
		}
		wg.Wait()
		if got, _ := l.text(operate.LogQuery{}); got != strings.Repeat("abc", 20) {
			t.Errorf("%q", got)
		}
	})
}

// A node stores a bounded number of bytes a second. What is above is refused with a time, and accepted later (F192).
func TestLogsAboveTheRateAreRefused(t *testing.T) {
	l := startLogged(t, memory.New())
	data := strings.Repeat("x", protocol.MaxLogChunk)
	var chunks []protocol.LogChunk
	next := int64(0)
	for range protocol.MaxLogBytes / protocol.MaxLogChunk {
		chunks = append(chunks, l.chunk(next, data))
		next += int64(len(data))
	}
	for sent := int64(0); ; {
		results, err := l.node.AppendLogs(t.Context(), "h", chunks)
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.IndexFunc(results, func(r protocol.LogResult) bool { return !r.Accepted })
		if refused >= 0 {
			r := results[refused]
			if r.Reason != protocol.RefusedFull || r.RetryAfter <= 0 || r.RetryAfter > 2*time.Second || sent == 0 {
				t.Errorf("%+v after %d bytes", r, sent)
			}
			time.Sleep(r.RetryAfter)
			l.add("h", l.chunk(r.Next, "later"), fmt.Sprint("accepted ", r.Next+5))
			break
		}
		if sent += protocol.MaxLogBytes; sent > 1<<30 {
			t.Fatal("no chunk is refused")
		}
		for i := range chunks {
			chunks[i].Offset += protocol.MaxLogBytes
		}
	}
	big := make([]protocol.LogChunk, perdure.MaxBatch+1)
	if _, err := l.node.AppendLogs(t.Context(), "h", big); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Error(err)
	}
	if _, err := l.node.AppendLogs(t.Context(), "h", append(chunks, l.chunk(0, "x"))); perdure.CodeOf(err) != perdure.CodeTooLarge {
		t.Error(err)
	}
	l.add("h", l.chunk(0, data+"x"), "invalid 0")
	l.add("h", l.chunk(-1, ""), "invalid 0")
}
