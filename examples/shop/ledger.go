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

// Kind is the kind of an entry of a ledger.
type Kind string

const (
	Asked     Kind = "asked"     // a request arrived; its result, if any, follows
	Effect    Kind = "effect"    // the effect: stock reserved, money charged, parcel sent
	Undone    Kind = "undone"    // the effect was undone
	Tombstone Kind = "tombstone" // an undo found no effect: a later do is refused
	Refused   Kind = "refused"   // refused permanently: out of stock, card declined, no such address
	TooLate   Kind = "tooLate"   // a delayed request was refused, because a newer one came before it
)

// Entry is one line of a ledger.
type Entry struct {
	At        time.Time `json:"at"`
	Kind      Kind      `json:"kind"`
	Direction string    `json:"direction,omitempty"` // for asked: do or undo
	Key       string    `json:"key"`                 // key of the effect: job/step/turn
	Order     string    `json:"order"`
	Run       int64     `json:"run"` // the fencing token of the request
	Note      string    `json:"note,omitempty"`
}

// Ledger is an append-only file with a JSON line for each entry. Append returns when the lines are on the disk: an
// effect that a service has recorded survives any crash.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLedger opens or creates a ledger, and passes its entries to replay, oldest first. An incomplete last line, whose
// writer was killed, was never acknowledged, and is removed.
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

// ReadLedger passes the entries of a file to see. It changes nothing. A file that does not exist is an empty ledger.
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

// readEntries reads complete lines, and returns their size in bytes.
func readEntries(r io.Reader, see func(Entry)) (whole int64, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return whole, nil // an incomplete last line does not count
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

// Append writes entries in one write, and waits for the disk.
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
