package sqlite

import (
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"perdure"
)

// wrap turns what SQLite says into what a user can act upon. The transaction was rolled back; reads go
// on, and writes too once the cause is gone (F010).
func (s *Store) wrap(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_FULL:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("no space is left for %s: nothing was stored", s.path),
			Hint: "make room; nothing has to be restarted"}
	case lib.SQLITE_IOERR, lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return perdure.Refuse(perdure.CodeUnavailable, "%s cannot be read or written: %v", s.path, e)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("%s is locked by another program", s.path),
			Hint: "a tool that has it open in a transaction"}
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return s.damaged(e.Error())
	}
	return fmt.Errorf("%s: %w", s.path, err)
}

func (s *Store) damaged(how string) error {
	return &perdure.Error{Code: perdure.CodeUnavailable,
		Message: fmt.Sprintf("%s is damaged, or no SQLite database: %s", s.path, how),
		Hint:    "restore a backup, or save what can be read with: sqlite3 FILE .recover"}
}

// commitFailed tells a commit that did not happen from one that may have. After a failed sync nobody
// knows what is on the disk, and a second sync that succeeds proves nothing: nothing more is written
// until the file is opened anew (F110).
func (s *Store) commitFailed(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) || e.Code() != lib.SQLITE_IOERR_FSYNC && e.Code() != lib.SQLITE_IOERR_DIR_FSYNC {
		return s.wrap(err)
	}
	s.broken.Store(&perdure.Error{Code: perdure.CodeUnavailable,
		Message: fmt.Sprintf("the disk of %s failed to sync: %v", s.path, e),
		Hint:    "look at the disk, then start anew"})
	return fmt.Errorf("%w: %w", perdure.ErrUnknown, err)
}
