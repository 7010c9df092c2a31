package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Kind is what one line of a ledger says.
type Kind string

const (
	Asked     Kind = "asked"     // a request came in; what it led to, if anything, stands below
	Effect    Kind = "effect"    // the thing was done: stock put aside, money taken, parcel handed over
	Undone    Kind = "undone"    // the effect was taken back
	Tombstone Kind = "tombstone" // an undo came and found nothing: from now on it is too late to act
	Refused   Kind = "refused"   // no, for good: out of stock, card declined, no such address
	TooLate   Kind = "tooLate"   // a request that slept was turned away: the world has moved on
)

// Entry is one line of a ledger.
type Entry struct {
	At        time.Time `json:"at"`
	Kind      Kind      `json:"kind"`
	Direction string    `json:"direction,omitempty"` // of asked: do or undo
	Key       string    `json:"key"`                 // under which the effect is done: job/step/turn
	Order     string    `json:"order"`
	Run       int64     `json:"run"` // the fencing token of the request
	Note      string    `json:"note,omitempty"`
}

// Ledger is an append-only file with a JSON line per entry. Append returns once the lines are on the
// disk: what a service says that it has done, it has done, whatever dies afterwards.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLedger opens or makes a ledger and hands what is in it to replay, oldest first. A last line
// that is torn, because its writer was killed in the middle of it, was never answered for: it is cut off.
func OpenLedger(path string, replay func(Entry)) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	whole, err := readEntries(file, replay)
	if err == nil {
		err = file.Truncate(whole)
	}
	if err == nil {
		_, err = file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	return &Ledger{file: file}, nil
}

// ReadLedger hands the entries of a file to see. It changes nothing; a file that is not there is an
// empty ledger.
func ReadLedger(path string, see func(Entry)) error {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err = readEntries(file, see); err != nil {
		err = fmt.Errorf("ledger %s: %w", path, err)
	}
	return err
}

// readEntries reads whole lines, and says how many bytes they are.
func readEntries(r io.Reader, see func(Entry)) (whole int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil // what is left of a torn line does not count
		}
		if err != nil {
			return whole, err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return whole, fmt.Errorf("at byte %d: %w", whole, err)
		}
		see(e)
		whole += int64(len(line))
	}
}

// Append writes entries, whole and in one go, and waits for the disk.
func (l *Ledger) Append(entries ...Entry) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b) // ends each with a newline
	for _, e := range entries {
		e.At = time.Now().UTC()
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(b.Bytes()); err != nil {
		return err
	}
	return l.file.Sync()
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }
