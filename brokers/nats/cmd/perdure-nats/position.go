package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure"
)

// position is the value of a receiver in the key-value bucket.
type position struct {
	Position int64     `json:"position"` // all notifications up to it are published
	Writer   string    `json:"writer"`   // the process that may move it
	At       time.Time `json:"at"`
}

// positions stores how far a receiver was read. Each write compares the revision of the value. A process that starts
// writes its name into the value, so that the next write of an older process fails: the newest process has the receiver,
// and the position never moves back.
type positions struct {
	kv     jetstream.KeyValue
	key    string
	writer string

	mu       sync.Mutex
	revision uint64
}

// openPosition returns the stored position of a receiver, 0 if there is none, and takes the receiver over.
func (b *bridge) openPosition(ctx context.Context, stream string) (*positions, int64, error) {
	s := &positions{key: "receiver/" + strings.ReplaceAll(b.receiver, ".", "="), writer: rand.Text()}
	var start int64
	err := b.retryTemporary(ctx, func(ctx context.Context) (err error) {
		if s.kv, err = b.bucket(ctx, stream); err != nil {
			return natsError(err, "the bucket "+b.positions+" cannot be opened")
		}
		if start, err = s.takeOver(ctx); err != nil {
			return natsError(err, "the position of the receiver cannot be stored")
		}
		return nil
	})
	return s, start, err
}

// bucket opens the bucket, or creates it with as many replicas as the stream of the notifications has: a position must
// not be safer than what it counts, nor less safe.
func (b *bridge) bucket(ctx context.Context, stream string) (jetstream.KeyValue, error) {
	kv, err := b.js.KeyValue(ctx, b.positions)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	of, err := b.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: b.positions, Description: "how far perdure-nats has read the receivers of Perdure", Storage: jetstream.FileStorage,
		Replicas: of.CachedInfo().Config.Replicas,
	})
}

// takeOver writes the name of this process into the value. A read may be stale, because a replica answers it; the write
// then fails, and is repeated by the caller.
func (s *positions) takeOver(ctx context.Context) (int64, error) {
	entry, err := s.kv.Get(ctx, s.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		s.revision, err = s.kv.Create(ctx, s.key, s.value(0))
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	var at position
	if err := json.Unmarshal(entry.Value(), &at); err != nil || at.Position < 0 {
		return 0, perdure.Refuse(perdure.CodeInvalid, "the value of key %s in bucket %s is not a position; delete it to begin with the oldest notification that Perdure keeps", s.key, s.kv.Bucket())
	}
	s.revision, err = s.kv.Update(ctx, s.key, s.value(at.Position), entry.Revision())
	return at.Position, err
}

func (s *positions) value(at int64) []byte {
	text, err := json.Marshal(position{Position: at, Writer: s.writer, At: time.Now().UTC()})
	if err != nil {
		panic(err)
	}
	return text
}

// errTaken ends a process whose receiver another process has taken over.
var errTaken = perdure.Refuse(perdure.CodeConflict, "another perdure-nats reads this receiver now; run one for each receiver")

// save stores a position. An error other than errTaken is temporary.
func (s *positions) save(ctx context.Context, at int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision, err := s.kv.Update(ctx, s.key, s.value(at), s.revision)
	if err == nil {
		s.revision = revision
		return nil
	}
	// Either another process has written, or a write of this process whose answer was lost.
	entry, readErr := s.kv.Get(ctx, s.key)
	if readErr != nil || entry.Revision() <= s.revision {
		return err
	}
	var found position
	if json.Unmarshal(entry.Value(), &found) != nil || found.Writer != s.writer {
		return errTaken
	}
	s.revision = entry.Revision()
	return err
}
