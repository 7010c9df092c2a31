// Package logfile is the format of a log that was moved to an artifact.
//
// A file is a sequence of pieces in the order of their offsets. A piece is the offset of its first byte in the log (8 bytes,
// big-endian), the number of its bytes (4 bytes, big-endian), and the bytes. Rows of a log that follow each other share a
// piece of at most 1 MiB; bytes of the log between two pieces are not stored. The last piece has no bytes, and its offset is
// the length of the log. So a file that was cut is noticed, even where a piece ends.
//
// NewFile makes a file from the rows of a log, and Reader reads it again. Both need memory for about one piece. A file may have
// any content: a reader returns ErrDamaged for one that is not the file of its log.
package logfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/perdure/perdure/internal/kernel"
)

const (
	maxPiece   = 1 << 20
	headerSize = 8 + 4
	rowsAtOnce = 16 // rows that are read from the store at once
)

// ErrDamaged is returned for a file that is not that of its log.
var ErrDamaged = errors.New("the file of the log is damaged")

// Rows reads rows of a log, as kernel.LogStore.LogChunks does.
type Rows func(from int64, max int) ([]kernel.LogChunk, error)

// file makes the file of a log.
type file struct {
	rows Rows
	size int64 // of the log

	next  int64             // offset of the next byte of the log
	ahead []kernel.LogChunk // rows from next on
	piece []byte            // in memory, with its header
	rest  []byte            // of piece
	ended bool
}

// NewFile returns a reader of the file of a log that has this length.
func NewFile(size int64, rows Rows) io.Reader {
	return &file{rows: rows, size: size}
}

// Read implements io.Reader.
func (f *file) Read(b []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.ended {
			return 0, io.EOF
		}
		if err := f.build(); err != nil {
			return 0, err
		}
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// build makes the next piece.
func (f *file) build() error {
	f.piece = append(f.piece[:0], make([]byte, headerSize)...)
	begin := f.size
	for room := maxPiece; room > 0; room = maxPiece + headerSize - len(f.piece) {
		row, err := f.row()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		if len(f.piece) == headerSize {
			begin = row.Offset
		} else if row.Offset > f.next {
			break // bytes in between are not stored
		}
		n := min(len(row.Data), room)
		f.piece = append(f.piece, row.Data[:n]...)
		f.next = row.Offset + int64(n)
		row.Offset, row.Data = f.next, row.Data[n:]
	}
	length := len(f.piece) - headerSize
	f.ended = length == 0
	binary.BigEndian.PutUint64(f.piece, uint64(begin))
	binary.BigEndian.PutUint32(f.piece[8:], uint32(length))
	f.rest = f.piece
	return nil
}

// row returns what is left of the next row; nil after the last one.
func (f *file) row() (*kernel.LogChunk, error) {
	for len(f.ahead) > 0 && len(f.ahead[0].Data) == 0 {
		f.ahead = f.ahead[1:]
	}
	if len(f.ahead) == 0 {
		var err error
		if f.ahead, err = f.rows(f.next, rowsAtOnce); err != nil || len(f.ahead) == 0 {
			return nil, err
		}
	}
	row := &f.ahead[0]
	if end := row.Offset + int64(len(row.Data)); row.Offset < f.next || end < row.Offset || end > f.size || len(row.Data) == 0 {
		return nil, fmt.Errorf("%w: a row of the store has %d bytes from %d on, where %d was expected", ErrDamaged, len(row.Data), row.Offset, f.next)
	}
	return row, nil
}

// Reader reads the bytes of a log from its file.
type Reader struct {
	file io.ReadSeeker
	size int64 // of the log
	at   int64 // offset in the log of the next byte of the file
	left int64 // bytes of the present piece from there on
	// passed is the offset in the log before which no byte can be read any more. It is below at where bytes are not stored.
	passed int64
	ends   bool // the last piece was read
}

// NewReader returns a reader of the file of a log that has this length.
func NewReader(file io.ReadSeeker, size int64) *Reader {
	return &Reader{file: file, size: size}
}

// Rows returns at most max parts of the log in order, each of at most kernel.MaxLogChunk bytes, from the first byte on that is
// not before an offset. It returns none at the end. Reading on where the call before has ended costs least.
func (r *Reader) Rows(from int64, max int) (rows []kernel.LogChunk, err error) {
	if from < r.passed {
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		*r = Reader{file: r.file, size: r.size}
	}
	for len(rows) < max && !r.ends {
		switch skip := min(r.left, from-r.at); {
		case r.left == 0:
			err = r.begin()
		case skip > 0:
			_, err = r.file.Seek(skip, io.SeekCurrent)
			r.at, r.left, r.passed = r.at+skip, r.left-skip, r.at+skip
		default:
			row := kernel.LogChunk{Offset: r.at, Data: make([]byte, min(r.left, kernel.MaxLogChunk))}
			if _, err = io.ReadFull(r.file, row.Data); err == nil {
				n := int64(len(row.Data))
				rows, r.at, r.left, r.passed = append(rows, row), r.at+n, r.left-n, r.at+n
			}
		}
		if err != nil {
			return nil, damaged(err)
		}
	}
	return rows, nil
}

// begin reads the header of the next piece.
func (r *Reader) begin() error {
	var header [headerSize]byte
	if _, err := io.ReadFull(r.file, header[:]); err != nil {
		return err
	}
	offset, length := binary.BigEndian.Uint64(header[:]), int64(binary.BigEndian.Uint32(header[8:]))
	if offset < uint64(r.at) || offset > uint64(r.size) || length > min(maxPiece, r.size-int64(offset)) || length == 0 && int64(offset) != r.size {
		return fmt.Errorf("%w: a piece of %d bytes from %d on, after %d of %d", ErrDamaged, length, offset, r.at, r.size)
	}
	r.at, r.left, r.ends = int64(offset), length, length == 0
	return nil
}

// damaged converts the error for a file that has ended before its last piece.
func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in the middle", ErrDamaged)
	}
	return err
}
