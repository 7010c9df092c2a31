package perdure

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// JobID is a UUID of version 7, so that ids sort by the time of submission.
type JobID [16]byte

const jobIDPrefix = "job_"

func (id JobID) String() string {
	var room [len(jobIDPrefix) + 2*len(id)]byte
	b, _ := id.AppendText(room[:0])
	return string(b)
}

// AppendText appends what String returns to b. The error is always nil.
func (id JobID) AppendText(b []byte) ([]byte, error) {
	return hex.AppendEncode(append(b, jobIDPrefix...), id[:]), nil
}

func (id JobID) IsZero() bool { return id == JobID{} }

// Compare orders ids by age, because they begin with the time.
func (id JobID) Compare(o JobID) int { return bytes.Compare(id[:], o[:]) }

func (id JobID) MarshalText() ([]byte, error)        { return []byte(id.String()), nil }
func (id *JobID) UnmarshalText(b []byte) (err error) { *id, err = ParseJobID(string(b)); return err }

// ParseJobID parses what String returns.
func ParseJobID(s string) (id JobID, err error) {
	digits, ok := strings.CutPrefix(s, jobIDPrefix)
	if !ok || len(digits) != 32 || strings.ToLower(digits) != digits {
		return id, fmt.Errorf("%q is not a job id", s)
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return id, fmt.Errorf("%q is not a job id", s)
	}
	return id, nil
}
