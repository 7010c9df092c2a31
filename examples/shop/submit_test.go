package main

import (
	"context"
	"errors"
	"io"
	"log"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// fakeNode keeps jobs by key, as a node does, and can lose its answers.
type fakeNode struct {
	jobs   map[string]string // key: definition
	err    error             // instead of storing
	lose   int               // so many answers after storing
	refuse string            // this key is refused for good
	slow   string            // this one takes its time
}

func (n *fakeNode) Submit(_ context.Context, body []byte, _ string) (*perdure.JobView, bool, error) {
	_, after, _ := strings.Cut(string(body), "\nkey: ")
	key, _, _ := strings.Cut(after, " ")
	if n.err != nil {
		return nil, false, n.err
	}
	if key == n.refuse {
		return nil, false, perdure.Refuse(perdure.CodeInvalid, "no")
	}
	_, known := n.jobs[key]
	n.jobs[key] = string(body)
	if n.lose > 0 {
		n.lose--
		return nil, false, errors.New("the answer is lost")
	}
	return &perdure.JobView{Key: key}, !known, nil
}

func (n *fakeNode) Job(_ context.Context, key string, _ time.Duration) (*perdure.JobView, error) {
	if _, ok := n.jobs[key]; !ok {
		return nil, perdure.Refuse(perdure.CodeNotFound, "no job %q", key)
	}
	job := &perdure.JobView{Key: key, Phase: perdure.Settled, Current: perdure.Done}
	if key == n.slow {
		job.Phase = perdure.Running
	}
	return job, nil
}

func newSubmission(t *testing.T, n *fakeNode) *Submission {
	db, err := OpenDatabase(filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Submission{DB: db, Jobs: n, Template: orderYAML, Log: log.New(io.Discard, "", 0)}
}

func TestSubmissionGoesOn(t *testing.T) {
	n := &fakeNode{jobs: map[string]string{}, err: errors.New("away")}
	s := newSubmission(t, n)
	ctx := t.Context()
	for _, o := range makeOrders(3, 1) {
		for range 2 { // a customer who does not hear back asks again
			if err := s.DB.Enqueue(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if taken, err := s.take(ctx); taken != 3 || err != nil {
		t.Fatalf("took %d, %v", taken, err)
	}
	if sent, err := s.send(ctx); sent != 0 || err == nil {
		t.Fatalf("sent %d to a node that is away, %v", sent, err)
	}
	n.err, n.lose = nil, 1
	if sent, err := s.send(ctx); sent != 0 || err == nil { // F006: stored, but the answer is lost
		t.Fatalf("sent %d although the answer was lost, %v", sent, err)
	}
	if sent, err := s.send(ctx); sent != 3 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	if sent, err := s.send(ctx); sent != 0 || err != nil {
		t.Fatalf("sent %d again, %v", sent, err)
	}
	orders, err := s.DB.Taken(ctx)
	if len(orders) != 3 || len(n.jobs) != 3 || err != nil {
		t.Errorf("orders %v, jobs %d, %v", orders, len(n.jobs), err)
	}
	// Only the id of an order travels.
	if def := n.jobs["order-0002"]; !strings.Contains(def, "order: order-0002") || strings.Contains(def, templateOrder) {
		t.Errorf("the definition of order-0002 is\n%s", def)
	}
	// A customer sends an order a second time after it was accepted.
	if err := s.DB.Enqueue(ctx, makeOrders(1, 1)[0]); err != nil {
		t.Fatal(err)
	}
	if taken, err := s.take(ctx); taken != 0 || err != nil {
		t.Errorf("took an order twice: %d, %v", taken, err)
	}
}

func TestSubmissionHearsHowItEnded(t *testing.T) {
	n := &fakeNode{jobs: map[string]string{}, slow: "order-0001"}
	s := newSubmission(t, n)
	for _, o := range makeOrders(atOnce+1, 1) {
		if err := s.DB.Enqueue(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, stroke := range []func(context.Context) (int, error){s.take, s.send, s.close} {
			if _, err := stroke(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if done, err := s.DB.Ended(t.Context(), "done"); len(done) != atOnce || err != nil {
		t.Errorf("heard of %d, %v", len(done), err)
	}
	n.slow = ""
	if closed, err := s.close(t.Context()); closed != 1 || err != nil {
		t.Errorf("the last one: %d, %v", closed, err)
	}
}

func TestOneBadOrderHoldsUpNobody(t *testing.T) {
	n := &fakeNode{jobs: map[string]string{}, refuse: "order-0001"}
	s := newSubmission(t, n)
	for _, o := range makeOrders(3, 1) {
		if err := s.DB.Enqueue(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.jobs) != 2 {
		t.Errorf("%d jobs", len(n.jobs))
	}
}
