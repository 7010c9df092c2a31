package kernel_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/protocol"
)

// rowsOfLog applies changes as a store does, and keeps what the rules promise of the rows.
type rowsOfLog struct {
	*testing.T
	log    *kernel.Log
	chunks []kernel.LogChunk
}

func (r *rowsOfLog) add(chunks ...protocol.LogChunk) {
	r.Helper()
	c := kernel.NewLog(kernel.LogRef{}, "h")
	if r.log != nil {
		c = kernel.ChangeLog(*r.log)
	}
	for i := range chunks {
		if reason, _ := c.Refuse("h", &chunks[i]); reason != "" {
			r.Fatalf("chunk at %d is refused: %s", chunks[i].Offset, reason)
		}
		c.Add(&chunks[i])
	}
	for _, w := range c.Writes {
		if w.Extends {
			k := &r.chunks[len(r.chunks)-1]
			if k.Offset != w.Offset {
				r.Fatalf("row %d is extended, and is not the last one", w.Offset)
			}
			k.Data = slices.Concat(k.Data, w.Data)
			continue
		}
		r.chunks = append(r.chunks, w.LogChunk)
	}
	r.chunks = slices.DeleteFunc(r.chunks, func(k kernel.LogChunk) bool { return k.Offset >= kernel.MaxLogPart && k.Offset < c.CutTo })
	now := c.Now
	r.log = &now
}

// A log keeps its first and its last 8 MiB in rows of bounded size, in whatever parts it arrives. Lines that arrive one at a
// time share rows.
func TestLogKeepsItsBeginningAndItsEnd(t *testing.T) {
	for _, sizes := range [][2]int{{1, 200}, {60_000, 65_536}, {1, 65_536}} {
		random := rand.New(rand.NewPCG(uint64(sizes[0]), 1))
		r := &rowsOfLog{T: t}
		const total = 20 << 20
		all := make([]byte, total)
		for i := range all {
			all[i] = byte(i>>16) ^ byte(i)
		}
		for sent := 0; sent < total; {
			var call []protocol.LogChunk
			for range 1 + random.IntN(40) {
				n := min(sizes[0]+random.IntN(sizes[1]-sizes[0]+1), total-sent)
				call = append(call, protocol.LogChunk{Offset: int64(sent), Data: all[sent : sent+n]})
				sent += n
			}
			r.add(call...)
		}
		head, tail, small := 0, 0, 0
		for i, k := range r.chunks {
			end := int(k.Offset) + len(k.Data)
			if !bytes.Equal(k.Data, all[k.Offset:end]) || len(k.Data) > kernel.MaxLogChunk || int(k.Offset) < kernel.MaxLogPart && end > kernel.MaxLogPart {
				t.Fatalf("row %d of %d bytes is not right", k.Offset, len(k.Data))
			}
			if i > 0 && len(k.Data) < 4<<10 && i < len(r.chunks)-1 {
				small++
			}
			if end <= kernel.MaxLogPart {
				head += len(k.Data)
			} else {
				tail += len(k.Data)
			}
		}
		if head != kernel.MaxLogPart || tail > kernel.MaxLogPart || tail < kernel.MaxLogPart-kernel.MaxLogChunk {
			t.Errorf("%d bytes of the beginning, %d of the end", head, tail)
		}
		if small > 1 { // the row before the middle may be small
			t.Errorf("%d of %d rows are small", small, len(r.chunks))
		}
	}
}

// Bytes that the log has are cut off, and what was skipped belongs to no row.
func TestRepeatedBytesOfALogAreCut(t *testing.T) {
	r := &rowsOfLog{T: t}
	r.add(protocol.LogChunk{Data: []byte("abc")})
	r.add(protocol.LogChunk{Data: []byte("abcd")}, protocol.LogChunk{Offset: 1, Data: []byte("b")}, protocol.LogChunk{Offset: 4, Data: []byte("e")})
	r.add(protocol.LogChunk{Offset: 10, Data: []byte("kl"), Skips: true})
	r.add(protocol.LogChunk{Offset: 11, Data: []byte("lm"), Last: true})
	var got []string
	for _, k := range r.chunks {
		got = append(got, string(k.Data))
	}
	if !slices.Equal(got, []string{"abcde", "klm"}) || r.chunks[1].Offset != 10 || r.log.Next != 13 || !r.log.Complete {
		t.Errorf("%q, %+v", got, r.log)
	}
}
