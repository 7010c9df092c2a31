package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLedgerComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stock.jsonl")
	l, err := OpenLedger(path, func(Entry) { t.Error("an entry in a new ledger") })
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Entry{Kind: Asked, Key: "k"}, Entry{Kind: Effect, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	l.Close()

	// Its writer is killed in the middle of a line.
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"at":"2026-01-01T00:00:00Z","kind":"und`)
	f.Close()

	var kinds []Kind
	l, err = OpenLedger(path, func(e Entry) { kinds = append(kinds, e.Kind) })
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Entry{Kind: Undone, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if len(kinds) != 2 {
		t.Errorf("came back with %v", kinds)
	}
	kinds = nil
	if err := ReadLedger(path, func(e Entry) { kinds = append(kinds, e.Kind) }); err != nil {
		t.Fatal(err)
	}
	if len(kinds) != 3 || kinds[2] != Undone {
		t.Errorf("after the torn line: %v", kinds)
	}
}

func TestLedgerRefusesWhatItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stock.jsonl")
	if err := os.WriteFile(path, []byte("{\"kind\":\"effect\"}\nnot a ledger\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(path, func(Entry) {}); err == nil {
		t.Error("a line that is no entry was passed over")
	}
}
