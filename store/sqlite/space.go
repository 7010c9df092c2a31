package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// roomToWrite is how much space must be free again after the disk was full, before submissions are accepted: the log
// stores each transaction completely, and so does the file at the next checkpoint.
const roomToWrite = 2 * perdure.MaxPayloadBytes

// TryWrite returns nil if the store accepts submissions again, after it has refused one: there is room on its disk, and
// a small write succeeds.
func (s *Store) TryWrite(ctx context.Context) error {
	if free, known := freeSpace(filepath.Dir(s.path)); known && free < roomToWrite {
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("no space is left on the disk of %s: writes are refused", s.path),
			Hint: "free disk space; no restart is needed"}
	}
	return s.Update(ctx, func(t kernel.Tx) error {
		t.(*tx).hasWritten = true // the time is stored
		_, err := t.Now()
		return err
	})
}
