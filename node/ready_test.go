package node_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/protocol"
	"github.com/perdure/perdure/store/memory"
)

const anyJob = "type: t\nsteps:\n  s: {agent: nobody}\n"

// F010: a node is not ready while its database refuses submissions, gives the reason, and becomes ready again by
// itself.
func TestNotReadyWhileTheDatabaseIsReadOnly(t *testing.T) {
	server := pgtest.NewServer(t, false)
	n := start(t, everystore.Postgres(t, server.URL), node.Config{})
	submit(t, n, anyJob)
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("set default_transaction_read_only = off")
	exec("alter system set default_transaction_read_only = on")
	exec("select pg_reload_conf()")
	refused := within(10*time.Second, func() bool {
		_, _, err := n.Submit(t.Context(), []byte(anyJob), "application/yaml")
		return perdure.CodeOf(err) == perdure.CodeUnavailable
	})
	if !refused {
		t.Fatal("submissions are not refused")
	}
	for range 3 {
		if err := n.Ready(t.Context()); perdure.CodeOf(err) != perdure.CodeUnavailable || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("ready: %v", err)
		}
		time.Sleep(600 * time.Millisecond) // with a trial in between
	}
	exec("alter system reset default_transaction_read_only")
	exec("select pg_reload_conf()")
	if !within(10*time.Second, func() bool { return n.Ready(t.Context()) == nil }) {
		t.Errorf("still not ready: %v", n.Ready(t.Context()))
	}
	submit(t, n, anyJob)
}

func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return false
}

// refusing is a store that can be set to refuse calls.
type refusing struct {
	kernel.Store
	mu     sync.Mutex
	what   refusals
	trials int
}

type refusals struct{ writes, ready, trial error }

func (r *refusing) set(what refusals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.what = what
}

func (r *refusing) now() refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.what
}

func (r *refusing) Update(ctx context.Context, fn func(kernel.Tx) error) error {
	if err := r.now().writes; err != nil {
		return err
	}
	return r.Store.Update(ctx, fn)
}

func (r *refusing) Accepting() error { return r.now().ready }

func (r *refusing) TryWrite(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trials++
	return r.what.trial
}

// F010: a store's own reason is passed on unchanged. A refused submission stays a reason until a trial or a submission
// succeeds. An invalid submission is no reason.
func TestReasonsForNotBeingReady(t *testing.T) {
	full := perdure.Refuse(perdure.CodeUnavailable, "no space is left")
	store := &refusing{Store: memory.New()}
	n := node.New(store, node.Config{SweepPeriod: time.Hour, RoleTTL: time.Hour})
	if err := n.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "not started") {
		t.Errorf("before the start: %v", err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop(context.Background()) })
	expect := func(what string, want error) {
		t.Helper()
		if err := n.Ready(t.Context()); err != want { //nolint:errorlint // the error is passed on unchanged
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	expect("at first", nil)
	standby := perdure.Refuse(perdure.CodeUnavailable, "the standby does not answer")
	store.set(refusals{ready: standby})
	expect("the store's own reason", standby)
	store.set(refusals{})
	expect("without it", nil)
	submit(t, n, anyJob)

	store.set(refusals{writes: full, trial: full})
	if _, _, err := n.Submit(t.Context(), []byte(anyJob), "application/yaml"); perdure.CodeOf(err) != perdure.CodeUnavailable {
		t.Fatal(err)
	}
	for range 5 {
		expect("after a refused submission", full)
	}
	if store.trials != 1 {
		t.Errorf("%d trials within a second", store.trials)
	}
	store.set(refusals{trial: full})
	if runs, err := n.Claim(t.Context(), protocol.Claim{Agent: "nobody", Holder: "h", Max: 1}); err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	expect("after a small write", full)
	store.set(refusals{})
	submit(t, n, anyJob)
	expect("after one that was stored", nil)

	store.set(refusals{writes: full, trial: full})
	_, _, _ = n.Submit(t.Context(), []byte(anyJob), "application/yaml")
	store.set(refusals{})
	if !within(5*time.Second, func() bool { return n.Ready(t.Context()) == nil }) {
		t.Error("no trial has passed")
	}
	if _, _, err := n.Submit(t.Context(), []byte("type: t\n"), "application/yaml"); err == nil {
		t.Error("a job without steps")
	}
	expect("after a wrong submission", nil)
}
