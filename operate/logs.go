package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
)

// Logs is the part of Service that reads what runs have written.
type Logs interface {
	// ReadLog calls see with the parts of a log in their order, and at least once. With Follow it goes on until the run or
	// its log has ended, see returns an error, or ctx ends.
	ReadLog(ctx context.Context, q LogQuery, see func(*LogPart) error) error
}

// LogStream is one of the two streams of a run.
type LogStream string

// The streams of a run.
const (
	Stdout LogStream = "stdout"
	Stderr LogStream = "stderr"
)

// LogQuery selects a part of the log of a run.
type LogQuery struct {
	Job    string // a ref
	Step   string
	Run    int64     // 0: the latest run of the step
	Stream LogStream // "": Stdout
	Offset int64     // the first byte, counted from the start of the log
	Tail   int64     // at most so many bytes before the present end; 0: no bound
	Follow bool      // go on until the log is complete
}

// LogPart is a part of a log.
type LogPart struct {
	Run     int64  `json:"run"`
	Offset  int64  `json:"offset"`            // of the first byte of Data, counted from the start of the log
	LeftOut int64  `json:"leftOut,omitempty"` // so many bytes before Offset are not stored
	Size    int64  `json:"size"`              // offset of the end of the log, when the part was read
	Data    []byte `json:"data,omitempty"`    // any bytes; in JSON as base64
	End     bool   `json:"end,omitempty"`     // nothing follows in the log, or the run has ended
}

// Next returns the offset of the byte after the part.
func (p *LogPart) Next() int64 { return p.Offset + int64(len(p.Data)) }

// LeftOutText is the line that stands for n bytes that are not stored.
func LeftOutText(n int64) string {
	units, size := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}, n
	for len(units) > 1 && size >= 1<<10 {
		units, size = units[1:], size>>10
	}
	return fmt.Sprintf("… %d %s left out …", size, units[0])
}

// ParseSize reads a number of bytes, such as 65536, 64KiB or 8MiB.
func ParseSize(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if before, ok := strings.CutSuffix(s, unit); ok {
			number, shift = before, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<53)>>shift {
		return 0, fmt.Errorf("%q is not a number of bytes, such as 65536, 64KiB or 8MiB", s)
	}
	return n << shift, nil
}

// Check returns an error with CodeInvalid if a field has a value that no log has.
func (q *LogQuery) Check() error {
	switch {
	case q.Stream != "" && q.Stream != Stdout && q.Stream != Stderr:
		return perdure.Refuse(perdure.CodeInvalid, "unknown stream %q: use stdout or stderr", q.Stream)
	case q.Run < 0 || q.Offset < 0 || q.Tail < 0:
		return perdure.Refuse(perdure.CodeInvalid, "run, offset and tail are not below 0")
	}
	return nil
}
