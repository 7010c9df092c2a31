package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"perdure"
)

// roomToWrite is how much space there must be again, after the disk was full, before submissions are worth a try: the log
// takes a transaction whole, and the file with it at the next checkpoint.
const roomToWrite = 2 * perdure.MaxPayloadBytes

// TryWrite says whether the store takes submissions again, after it has refused one: there is room on its disk, and a
// small write goes through.
func (s *Store) TryWrite(ctx context.Context) error {
	if free, known := freeSpace(filepath.Dir(s.path)); known && free < roomToWrite {
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("no space is left for %s: nothing is stored", s.path),
			Hint: "make room; nothing has to be restarted"}
	}
	return s.Update(ctx, func(t perdure.Tx) error {
		t.(*tx).wrote = true // the time is stored
		_, err := t.Now()
		return err
	})
}
