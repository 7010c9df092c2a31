package logfile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/logfile"
)

// rowsOf reads rows as a store does, at most n at once.
func rowsOf(rows []kernel.LogChunk, n int) logfile.Rows {
	return func(from int64, max int) (found []kernel.LogChunk, err error) {
		for _, k := range rows {
			if k.Offset+int64(len(k.Data)) > from && len(found) < min(max, n) {
				found = append(found, kernel.LogChunk{Offset: k.Offset, Data: bytes.Clone(k.Data)})
			}
		}
		return found, nil
	}
}

// someRows returns rows of a log with gaps between some of them, and the length of the log.
func someRows(random *rand.Rand, n int) (rows []kernel.LogChunk, size int64) {
	for range n {
		if random.IntN(10) == 0 {
			size += 1 + random.Int64N(1<<24)
		}
		data := make([]byte, 1+random.IntN(kernel.MaxLogChunk))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		rows = append(rows, kernel.LogChunk{Offset: size, Data: data})
		size += int64(len(data))
	}
	return rows, size + random.Int64N(3)
}

// joined joins rows that follow each other, from an offset on.
func joined(rows []kernel.LogChunk, from int64) (all []kernel.LogChunk) {
	for _, k := range rows {
		if cut := min(from-k.Offset, int64(len(k.Data))); cut > 0 {
			k = kernel.LogChunk{Offset: k.Offset + cut, Data: k.Data[cut:]}
		}
		if len(k.Data) == 0 {
			continue
		}
		if last := len(all) - 1; last >= 0 && all[last].Offset+int64(len(all[last].Data)) == k.Offset {
			all[last].Data = slices.Concat(all[last].Data, k.Data)
		} else {
			all = append(all, k)
		}
	}
	return all
}

func fileOf(t *testing.T, size int64, rows logfile.Rows) []byte {
	t.Helper()
	b, err := io.ReadAll(logfile.NewFile(size, rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readFrom(t *testing.T, file []byte, size, from int64, max int) (all []kernel.LogChunk) {
	t.Helper()
	r := logfile.NewReader(bytes.NewReader(file), size)
	for next := from; ; {
		rows, err := r.Rows(next, max)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			return all
		}
		for _, k := range rows {
			if len(k.Data) > kernel.MaxLogChunk || k.Offset < next {
				t.Fatalf("%d bytes at %d, after %d", len(k.Data), k.Offset, next)
			}
			next = k.Offset + int64(len(k.Data))
		}
		all = append(all, rows...)
	}
}

// A file has the bytes of the rows, wherever reading begins. The same rows make the same file, however they are read.
func TestFileHasTheBytesOfItsRows(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		rows, size := someRows(random, random.IntN(80))
		file := fileOf(t, size, rowsOf(rows, 16))
		if again := fileOf(t, size, rowsOf(rows, 1+random.IntN(3))); !bytes.Equal(file, again) {
			t.Fatalf("seed %d: another file of the same rows", seed)
		}
		if err := iotest.TestReader(logfile.NewFile(size, rowsOf(rows, 16)), file); err != nil {
			t.Error(err)
		}
		for range 20 {
			from := random.Int64N(size + 2)
			got, want := joined(readFrom(t, file, size, from, 1+random.IntN(5)), from), joined(rows, from)
			if !slices.EqualFunc(got, want, func(a, b kernel.LogChunk) bool { return a.Offset == b.Offset && bytes.Equal(a.Data, b.Data) }) {
				t.Fatalf("seed %d: from %d of %d on: %d parts, want %d", seed, from, size, len(got), len(want))
			}
		}
	}
}

// readAll reads a file to its end, and returns the first error.
func readAll(file []byte, size int64) error {
	r := logfile.NewReader(bytes.NewReader(file), size)
	for next := int64(0); ; {
		rows, err := r.Rows(next, 16)
		if err != nil || len(rows) == 0 {
			return err
		}
		last := rows[len(rows)-1]
		next = last.Offset + int64(len(last.Data))
	}
}

func piece(offset uint64, length uint32, data string) []byte {
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, offset), length), data...)
}

// F269: a file that was cut anywhere, or whose pieces cannot be those of the log, is an error.
func TestDamagedFileIsAnError(t *testing.T) {
	rows := []kernel.LogChunk{{Offset: 0, Data: []byte("head")}, {Offset: 4, Data: []byte("more")}, {Offset: 20, Data: []byte("tail")}}
	file := fileOf(t, 30, rowsOf(rows, 16))
	if err := readAll(file, 30); err != nil {
		t.Fatal(err)
	}
	for n := range len(file) {
		if err := readAll(file[:n], 30); !errors.Is(err, logfile.ErrDamaged) {
			t.Errorf("cut to %d of %d bytes: %v", n, len(file), err)
		}
	}
	for what, file := range map[string][]byte{
		"a piece before the one before it": slices.Concat(piece(5, 1, "x"), piece(5, 1, "x")),
		"a piece beyond the log":           piece(31, 1, "x"),
		"a piece that ends beyond the log": piece(29, 2, "xx"),
		"the largest offset":               piece(1<<64-1, 1, "x"),
		"a negative offset":                piece(1<<63, 1, "x"),
		"the largest length":               piece(0, 1<<32-1, "x"),
		"the end of another log":           piece(29, 0, ""),
		"no file":                          nil,
	} {
		if err := readAll(file, 30); !errors.Is(err, logfile.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := readAll(piece(0, 1<<20+1, "x"), 1<<40); !errors.Is(err, logfile.ErrDamaged) {
		t.Errorf("a piece that is too large: %v", err)
	}
}

// An error of the store or of the file is passed on, and no end is invented. Rows that cannot be those of the log are an error.
func TestErrorsArePassedOn(t *testing.T) {
	oops := errors.New("oops")
	if _, err := io.ReadAll(logfile.NewFile(9, func(int64, int) ([]kernel.LogChunk, error) { return nil, oops })); !errors.Is(err, oops) {
		t.Error(err)
	}
	for _, rows := range [][]kernel.LogChunk{{{Offset: 8, Data: []byte("xx")}}, {{Offset: 3, Data: []byte("xx")}, {Offset: 4, Data: []byte("y")}}, {{Offset: 3}}} {
		read := func(int64, int) ([]kernel.LogChunk, error) { return rows, nil }
		if _, err := io.ReadAll(logfile.NewFile(9, read)); !errors.Is(err, logfile.ErrDamaged) {
			t.Errorf("%v: %v", rows, err)
		}
	}
	r := logfile.NewReader(broken{oops}, 9)
	if _, err := r.Rows(0, 1); !errors.Is(err, oops) {
		t.Error(err)
	}
	r = logfile.NewReader(bytes.NewReader(piece(0, 3, "abc")), 3)
	if rows, err := r.Rows(0, 1); err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if rows, err := r.Rows(2, 1); err != nil || len(rows) != 1 || string(rows[0].Data) != "c" {
		t.Errorf("an offset that was passed: %v, %v", rows, err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error)       { return 0, b.err }
func (b broken) Seek(int64, int) (int64, error) { return 0, b.err }

// F269: a file with any content makes a reader neither panic nor return bytes beyond the log.
func FuzzReader(f *testing.F) {
	f.Add(piece(0, 2, "ab"), int64(2), int64(1))
	f.Add(slices.Concat(piece(3, 1, "x"), piece(9, 0, "")), int64(9), int64(0))
	f.Fuzz(func(t *testing.T, file []byte, size, from int64) {
		size, from = max(size, 0), max(from, 0)
		r := logfile.NewReader(bytes.NewReader(file), size)
		for {
			rows, err := r.Rows(from, 16)
			if err != nil || len(rows) == 0 {
				return
			}
			for _, k := range rows {
				if end := k.Offset + int64(len(k.Data)); k.Offset < from || end > size || len(k.Data) > kernel.MaxLogChunk {
					t.Fatalf("%d bytes at %d, from %d on", len(k.Data), k.Offset, from)
				} else {
					from = end
				}
			}
		}
	})
}
