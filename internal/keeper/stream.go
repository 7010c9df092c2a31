package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of a run's streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// A stream is kept in a file with its beginning (stdout) and in segments (stdout.OFFSET). Of the segments, the two latest
// are kept: at least SegmentBytes of the end, unless the whole is shorter. So a stream has at most MaxStreamBytes.
const (
	HeadBytes      = 8 << 20
	SegmentBytes   = 4 << 20
	MaxStreamBytes = HeadBytes + 2*SegmentBytes
)

// streamWriter writes a stream. Its Write never fails and never waits for space: what cannot be written is left out.
type streamWriter struct {
	dir, name string
	head      int64 // bound of the beginning
	segment   int64 // bound of a segment

	total    int64    // bytes that the command has written
	file     *os.File // the beginning or the latest segment; nil: the next byte begins a segment
	left     int64    // space in file
	segments []string // the segments that there are, oldest first
	notUntil time.Time
}

// retryWrite is how long a stream is left out after the disk was full.
const retryWrite = time.Second

func newStream(dir, name string, head, segment int64) (*streamWriter, error) {
	f, err := os.OpenFile(path.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &streamWriter{dir: dir, name: name, head: head, segment: segment, file: f, left: head}, nil
}

func (s *streamWriter) Write(b []byte) (int, error) {
	all := len(b)
	for len(b) > 0 {
		if s.left == 0 {
			s.close()
		}
		if s.file == nil && !s.begin() {
			s.total += int64(len(b))
			break
		}
		n, err := s.file.Write(b[:min(int64(len(b)), s.left)])
		s.total += int64(n)
		s.left -= int64(n)
		if b = b[n:]; err != nil {
			s.close()
			s.notUntil = time.Now().Add(retryWrite)
		}
	}
	return all, nil
}

// begin begins a segment, and removes all but the two latest.
func (s *streamWriter) begin() bool {
	if time.Now().Before(s.notUntil) {
		return false
	}
	path := path.Join(s.dir, fmt.Sprintf("%s.%020d", s.name, s.total))
	for len(s.segments) > 1 {
		_ = os.Remove(s.segments[0])
		s.segments = s.segments[1:]
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		s.notUntil = time.Now().Add(retryWrite)
		return false
	}
	s.file, s.left = f, s.segment
	s.segments = append(s.segments, path)
	return true
}

func (s *streamWriter) close() {
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// Stream is what is kept of a stream. While the disk is full, bytes are left out, perhaps also those at the end: Exit.Written
// says where a stream ends.
type Stream struct {
	Parts []Part
	Size  int64 // up to the end of the last part
}

// Part is a contiguous piece of a stream in a file.
type Part struct {
	Path   string
	Offset int64 // in the stream
	Size   int64
}

// ReadStream returns what is kept of a stream at present. The command may still be writing, so that a part may be gone
// when it is read.
func ReadStream(dir, name string) (Stream, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !missing(err) {
		return Stream{}, err
	}
	s := Stream{}
	for _, e := range entries {
		offset, isPart := strings.CutPrefix(e.Name(), name+".")
		if !isPart && e.Name() != name {
			continue
		}
		p := Part{Path: path.Join(dir, e.Name())}
		if isPart {
			if p.Offset, err = strconv.ParseInt(offset, 10, 64); err != nil {
				continue // it is not of a keeper
			}
		}
		info, err := os.Stat(p.Path)
		if missing(err) {
			continue
		}
		if err != nil {
			return Stream{}, err
		}
		p.Size = info.Size()
		s.Parts = append(s.Parts, p)
		s.Size = p.Offset + p.Size
	}
	return s, nil
}

// Whole reads the stream if nothing of it is left out and it has at most limit bytes; false otherwise.
func (s *Stream) Whole(limit int64) ([]byte, bool, error) {
	if s.Size > limit {
		return nil, false, nil
	}
	var all []byte
	for _, p := range s.Parts {
		if p.Offset != int64(len(all)) {
			return nil, false, nil
		}
		b, err := p.read(0)
		if err != nil {
			return nil, false, err
		}
		all = append(all, b...)
	}
	return all, true, nil
}

// Tail reads at most the last n bytes, as far as they are contiguous. cut says that the stream has more.
func (s *Stream) Tail(n int64) (b []byte, cut bool, err error) {
	from := s.Size
	for _, p := range slices.Backward(s.Parts) {
		if p.Offset+p.Size != from || int64(len(b)) >= n {
			break
		}
		skip := max(p.Size-(n-int64(len(b))), 0)
		piece, err := p.read(skip)
		if err != nil {
			return nil, false, err
		}
		b = append(piece, b...)
		if from = p.Offset + skip; skip > 0 {
			break
		}
	}
	return b, from > 0, nil
}

func (p *Part) read(skip int64) ([]byte, error) {
	f, err := os.Open(p.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, p.Size-skip)
	n, err := f.ReadAt(b, skip)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}
