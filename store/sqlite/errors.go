package sqlite

import (
	"fmt"

	driver "zombiezen.com/go/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// wrap translates an error of SQLite into one that tells a user what to do. The transaction was rolled back. Reads
// continue, and writes too once the cause is gone (F010).
func (s *Store) wrap(err error) error {
	switch driver.ErrCode(err).ToPrimary() {
	case driver.ResultFull:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("no space is left for %s: nothing was stored", s.path),
			Hint: "make room; nothing has to be restarted"}
	case driver.ResultIOErr, driver.ResultReadOnly, driver.ResultCantOpen, driver.ResultPerm:
		return perdure.Refuse(perdure.CodeUnavailable, "%s cannot be read or written: %v", s.path, err)
	case driver.ResultBusy, driver.ResultLocked:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("%s is locked by another program", s.path),
			Hint: "a tool, or your own program, has written in a transaction that is still open: end that, and ask again"}
	case driver.ResultNotADB:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("%s is no SQLite database", s.path),
			Hint: "name another file; if this was a store, its head is damaged: restore a backup"}
	case driver.ResultCorrupt:
		return s.damaged(err.Error())
	case driver.ResultOK, driver.ResultError: // of a wrong statement, or not of SQLite
		return err
	}
	return fmt.Errorf("%s: %w", s.path, err)
}

func (s *Store) damaged(how string) error {
	return &perdure.Error{Code: perdure.CodeUnavailable,
		Message: fmt.Sprintf("%s is damaged: %s", s.path, how),
		Hint:    "restore a backup, after FILE-wal and FILE-shm are deleted, or save what can be read with: sqlite3 FILE .recover"}
}

// commitFailed distinguishes a commit that did not happen from an indeterminate one. A commit is indeterminate if a sync
// failed: of the file, or of the log when it is restarted. Then nothing more is written until the file is opened again
// (F110).
func (s *Store) commitFailed(err error) error {
	if code := driver.ErrCode(err); code != driver.ResultIOErrFsync && code != driver.ResultIOErrDirFsync {
		return s.wrap(err)
	}
	return unknown(s.durable.fail(err))
}

func unknown(err error) error { return fmt.Errorf("%w: %w", kernel.ErrUnknown, err) }
