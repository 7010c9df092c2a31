package main

import (
	"path/filepath"
	"testing"
)

// shelf is a book whose process can be killed.
type shelf struct {
	*Book
	t    *testing.T
	path string
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{t: t, path: filepath.Join(t.TempDir(), "stock.jsonl")}
	s.reopen()
	return s
}

func (s *shelf) reopen() {
	if s.Book != nil {
		s.Close()
	}
	b, err := OpenBook(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Book = b
	s.t.Cleanup(func() { b.Close() })
}

func (s *shelf) effects() (n int) {
	if err := ReadLedger(s.path, func(e Entry) {
		if e.Kind == Effect {
			n++
		}
	}); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func do(b *Book, run int64) Answer {
	return b.Do(Ask{"do", "k/1", "order-1", run}, func() (string, string) { return "done", "" })
}

func undo(b *Book, run int64) Answer {
	return b.Undo(Ask{"undo", "k/1", "order-1", run})
}

func expect(t *testing.T, what string, got Answer, kind Kind, again bool) {
	t.Helper()
	if got.Kind != kind || got.Again != again {
		t.Errorf("%s: %+v, want %s, again %v", what, got, kind, again)
	}
}

func TestSameKeyIsOneEffect(t *testing.T) { // F036
	s := newShelf(t)
	expect(t, "first", do(s.Book, 1), Effect, false)
	expect(t, "repeated", do(s.Book, 1), Effect, true)
	expect(t, "another run", do(s.Book, 2), Effect, true)
	s.reopen()
	if got := do(s.Book, 3); got.Kind != Effect || !got.Again || got.Receipt != "done" {
		t.Errorf("after a kill the answer is %+v", got)
	}
	if n := s.effects(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestOlderRunIsFenced(t *testing.T) { // F025, F038
	s := newShelf(t)
	fine := func(int) string { return string(Fine) }
	s.Asked(Ask{"do", "k/1", "order-1", 1}, fine) // sleeps
	s.Asked(Ask{"do", "k/1", "order-1", 2}, fine) // comes meanwhile, and fails before it acts
	s.reopen()
	expect(t, "run 1 wakes", do(s.Book, 1), TooLate, false)
	expect(t, "run 2", do(s.Book, 2), Effect, false)
	expect(t, "run 1 wakes again", do(s.Book, 1), TooLate, false)
	if n := s.effects(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestUndoOnce(t *testing.T) { // F092
	s := newShelf(t)
	do(s.Book, 1)
	expect(t, "undo", undo(s.Book, 2), Undone, false)
	expect(t, "undo again", undo(s.Book, 3), Undone, true)
	s.reopen()
	expect(t, "undo after a kill", undo(s.Book, 4), Undone, true)
}

func TestUndoThatOvertakes(t *testing.T) { // F091
	s := newShelf(t)
	expect(t, "undo of nothing", undo(s.Book, 2), Tombstone, false)
	s.reopen()
	expect(t, "the action that it overtook", do(s.Book, 1), TooLate, false)
	expect(t, "even under a newer run", do(s.Book, 3), TooLate, false)
	expect(t, "undo again", undo(s.Book, 4), Tombstone, true)
	if n := s.effects(); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestZombieAfterUndo(t *testing.T) { // F091
	s := newShelf(t)
	do(s.Book, 1)
	undo(s.Book, 2)
	expect(t, "do after undo", do(s.Book, 1), TooLate, false)
	if n := s.effects(); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestOlderUndoIsFenced(t *testing.T) {
	s := newShelf(t)
	do(s.Book, 3)
	expect(t, "undo of before", undo(s.Book, 2), TooLate, false)
}

func TestRefusalStands(t *testing.T) {
	s := newShelf(t)
	no := func() (string, string) { return "", "out of stock" }
	yes := func() (string, string) { t.Error("acted"); return "done", "" }
	expect(t, "refused", s.Do(Ask{"do", "k/1", "order-1", 1}, no), Refused, false)
	s.reopen()
	expect(t, "asked again", s.Do(Ask{"do", "k/1", "order-1", 2}, yes), Refused, true)
	expect(t, "undone", undo(s.Book, 3), Tombstone, false)
}

func TestKeysAreApart(t *testing.T) {
	s := newShelf(t)
	do(s.Book, 1)
	undo(s.Book, 2)
	got := s.Do(Ask{"do", "k/3", "order-1", 3}, func() (string, string) { return "done", "" })
	expect(t, "a new turn after the undo", got, Effect, false)
}
