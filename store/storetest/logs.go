package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

var logChecks = []check{
	{"Logs/EveryField", logFields},
	{"Logs/ChangedRowIsStale", logStale},
	{"Logs/Extend", logExtended},
	{"Logs/Cut", logCut},
	{"Logs/ReadFromAnOffset", logRead},
	{"Logs/Movable", logMovable},
	{"Logs/Move", logMoved},
	{"Logs/MoveOfAnotherRowIsStale", logMoveStale},
	{"Logs/MoveTwiceAtOnce", logMovedTwice},
}

func logRef(job int, step string, run int64, stream operate.LogStream) kernel.LogRef {
	return kernel.LogRef{LogRun: kernel.LogRun{Job: id(job), Step: step, Run: run}, Stream: stream}
}

func writeOf(offset int64, data string) kernel.LogWrite {
	return kernel.LogWrite{LogChunk: kernel.LogChunk{Offset: offset, Data: []byte(data)}}
}

func (s *suite) logs(runs ...kernel.LogRun) []kernel.Log {
	s.Helper()
	found, err := s.store.Logs(ctx, runs)
	s.must(err)
	slices.SortFunc(found, func(a, b kernel.Log) int { return compareLogs(&a, &b) })
	return found
}

func (s *suite) chunks(ref kernel.LogRef, from int64, max int) []kernel.LogChunk {
	s.Helper()
	found, err := s.store.LogChunks(ctx, ref, from, max)
	s.must(err)
	return found
}

// Every field is stored and read. Logs of other runs, steps and jobs are not returned.
func logFields(s *suite) {
	out, err := logRef(1, "ü-1", 1<<40, operate.Stdout), logRef(1, "ü-1", 1<<40, operate.Stderr)
	s.equal("no logs", s.logs(out.LogRun), nil)
	s.equal("no runs", s.logs(), nil)
	s.equal("no bytes", s.chunks(out, 0, 9), nil)
	rows := []kernel.Log{{LogRef: err, Holder: "h ü"}, {LogRef: out, Holder: "h ü", Next: 1 << 50, Last: 1<<50 - 3, Complete: true}}
	raw := string([]byte{0, 0xff, '\n', 0x80})
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: rows[0]}, {Now: rows[1], Writes: []kernel.LogWrite{writeOf(1<<50-4, raw)}}}))
	for _, other := range []kernel.LogRef{logRef(2, "ü-1", 1<<40, operate.Stdout), logRef(1, "ü", 1<<40, operate.Stdout), logRef(1, "ü-1", 1, operate.Stdout)} {
		s.equal("of another run", s.logs(other.LogRun), nil)
		s.equal("bytes of another run", s.chunks(other, 0, 9), nil)
	}
	s.equal("rows", s.logs(out.LogRun), rows)
	s.equal("bytes", s.chunks(out, 0, 9), []kernel.LogChunk{{Offset: 1<<50 - 4, Data: []byte(raw)}})
	s.equal("bytes of the other stream", s.chunks(err, 0, 9), nil)
	other := logRef(1, "ü-1", 2, operate.Stdout)
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: kernel.Log{LogRef: other, Holder: "i"}}}))
	s.equal("rows of two runs", s.logs(other.LogRun, out.LogRun), append([]kernel.Log{{LogRef: other, Holder: "i"}}, rows...))
}

// A change of a row that is not as it was loaded writes nothing, and neither do the others of its transaction (F190).
func logStale(s *suite) {
	a, b := logRef(1, "a", 1, operate.Stdout), logRef(1, "a", 1, operate.Stderr)
	first := kernel.Log{LogRef: a, Holder: "h", Next: 3}
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: first, Writes: []kernel.LogWrite{writeOf(0, "one")}}}))
	next := kernel.Log{LogRef: a, Holder: "h", Next: 6, Last: 3}
	none, earlier, done := first, first, first
	none.LogRef, earlier.Next, done.Complete = b, 2, true
	for what, c := range map[string]kernel.LogChange{
		"one that is there":        {Now: next},
		"one that is not there":    {Now: kernel.Log{LogRef: b, Next: 3}, Loaded: &none},
		"one that is shorter":      {Now: next, Loaded: &earlier},
		"one that is complete":     {Now: next, Loaded: &done},
		"an extension of no bytes": {Now: next, Loaded: &earlier, Writes: []kernel.LogWrite{{LogChunk: kernel.LogChunk{Offset: 1, Data: []byte("x")}, Extends: true}}},
	} {
		c.Writes = append(c.Writes, writeOf(3, "two"))
		other := kernel.LogChange{Now: kernel.Log{LogRef: logRef(9, "z", 1, operate.Stdout)}, Writes: []kernel.LogWrite{writeOf(0, "z")}}
		for _, list := range [][]kernel.LogChange{{c, other}, {other, c}} {
			if err := s.store.SaveLogs(ctx, list); !errors.Is(err, kernel.ErrStale) {
				s.Errorf("%s: %v", what, err)
			}
		}
		s.equal("of the other", s.logs(other.Now.LogRun), nil)
		s.equal("bytes of the other", s.chunks(other.Now.LogRef, 0, 9), nil)
	}
	s.equal("rows", s.logs(a.LogRun), []kernel.Log{first})
	s.equal("bytes", s.chunks(a, 0, 9), []kernel.LogChunk{{Data: []byte("one")}})
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: next, Loaded: &first, Writes: []kernel.LogWrite{writeOf(3, "two")}}}))
	s.equal("rows after a change", s.logs(a.LogRun), []kernel.Log{next})
}

func logExtended(s *suite) {
	ref := logRef(1, "a", 1, operate.Stdout)
	first := kernel.Log{LogRef: ref, Holder: "h", Next: 5, Last: 3}
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: first, Writes: []kernel.LogWrite{writeOf(0, "one"), writeOf(3, "\x00\xff")}}}))
	next := kernel.Log{LogRef: ref, Holder: "h", Next: 10, Last: 7, Complete: true}
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: next, Loaded: &first, Writes: []kernel.LogWrite{
		{LogChunk: kernel.LogChunk{Offset: 3, Data: []byte("\xfe\x00")}, Extends: true}, writeOf(7, "new")}}}))
	s.equal("bytes", s.chunks(ref, 0, 9), []kernel.LogChunk{{Data: []byte("one")}, {Offset: 3, Data: []byte("\x00\xff\xfe\x00")}, {Offset: 7, Data: []byte("new")}})
	s.equal("row", s.logs(ref.LogRun), []kernel.Log{next})
}

// A cut deletes rows that begin in the middle of the log, and none of others.
func logCut(s *suite) {
	const part = kernel.MaxLogPart
	ref, other := logRef(1, "a", 1, operate.Stdout), logRef(1, "a", 1, operate.Stderr)
	all := []kernel.LogWrite{writeOf(part-1, "h"), writeOf(part, "a"), writeOf(part+1, "b"), writeOf(part+2, "c")}
	loaded := kernel.Log{LogRef: ref, Next: part + 3}
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: loaded, Writes: all}, {Now: kernel.Log{LogRef: other, Next: part + 3}, Writes: all}}))
	now := loaded
	now.Next++
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: now, Loaded: &loaded, Writes: []kernel.LogWrite{writeOf(part+3, "d")}, CutTo: part + 2}}))
	var left []int64
	for _, k := range s.chunks(ref, 0, 9) {
		left = append(left, k.Offset)
	}
	s.equal("offsets that are left", left, []int64{part - 1, part + 2, part + 3})
	s.equal("rows of the other stream", len(s.chunks(other, 0, 9)), 4)
}

// Bytes are read from the row that has the offset on, a bounded number of rows.
func logRead(s *suite) {
	ref := logRef(1, "a", 1, operate.Stdout)
	large := bytes.Repeat([]byte("0123456789abcdef"), kernel.MaxLogChunk/16)
	const third = kernel.MaxLogChunk + 4
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: kernel.Log{LogRef: ref, Next: third + 2}, Writes: []kernel.LogWrite{
		writeOf(0, "four"), {LogChunk: kernel.LogChunk{Offset: 4, Data: large}}, writeOf(third, "x"), writeOf(third+1, "y")}}}))
	for _, c := range []struct {
		from int64
		max  int
		want []int64
	}{{0, 9, []int64{0, 4, third, third + 1}}, {3, 9, []int64{0, 4, third, third + 1}}, {4, 9, []int64{4, third, third + 1}}, {third - 1, 2, []int64{4, third}},
		{third, 1, []int64{third}}, {third + 1, 9, []int64{third + 1}}, {third + 2, 9, nil}, {1 << 52, 9, nil}, {0, 0, nil}} {
		var got []int64
		for _, k := range s.chunks(ref, c.from, c.max) {
			got = append(got, k.Offset)
		}
		s.equal("offsets", got, c.want)
	}
	s.equal("the large row", s.chunks(ref, third-1, 1)[0].Data, large)
}

func (s *suite) movable(max int) []kernel.Log {
	s.Helper()
	return s.movableAfter(kernel.LogRef{}, max)
}

func (s *suite) movableAfter(after kernel.LogRef, max int) []kernel.Log {
	s.Helper()
	found, err := s.store.MovableLogs(ctx, after, max)
	s.must(err)
	return found
}

// movedFrom is the least length of a log that is moved.
const movedFrom = 64 << 10

// A log is found once it is complete and long enough (F267), at most as many as are asked for, in order.
func logMovable(s *suite) {
	s.equal("none", s.movable(9), nil)
	row := func(job int, step string, run int64, stream operate.LogStream, next int64, complete bool) kernel.Log {
		return kernel.Log{LogRef: logRef(job, step, run, stream), Holder: "h", Next: next, Complete: complete}
	}
	small, open := row(1, "a", 1, operate.Stdout, movedFrom-1, true), row(1, "a", 1, operate.Stderr, movedFrom, false)
	want := []kernel.Log{row(1, "a", 2, operate.Stderr, movedFrom, true), row(1, "a", 2, operate.Stdout, movedFrom+1, true), row(1, "a", 10, operate.Stderr, movedFrom, true),
		row(1, "b", 1, operate.Stderr, movedFrom, true), row(2, "a", 1, operate.Stderr, 1<<50, true)}
	for _, l := range append([]kernel.Log{small, open, want[4], want[2]}, want[3], want[1], want[0]) {
		s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: l}}))
	}
	s.equal("all", s.movable(9), want)
	s.equal("two", s.movable(2), want[:2])
	s.equal("at most none", s.movable(0), nil)
	for i, l := range want {
		s.equal("after one", s.movableAfter(l.LogRef, 2), want[i+1:min(i+3, len(want))])
	}
	s.equal("after one that is not movable", s.movableAfter(small.LogRef, 9), want)
	s.equal("after one that is not there", s.movableAfter(logRef(1, "a", 9, operate.Stdout), 1), want[2:3])
	for _, loaded := range []kernel.Log{small, open} {
		now := loaded
		now.Next, now.Complete = movedFrom+2, true
		s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: now, Loaded: &loaded}}))
		want = append(want, now)
	}
	slices.SortFunc(want, func(a, b kernel.Log) int { return compareLogs(&a, &b) })
	s.equal("after a change", s.movable(9), want)
}

// A moved log has an artifact, which its job uses, and no bytes; other logs keep theirs. It never changes again (F267, F268).
func logMoved(s *suite) {
	ref, other := logRef(1, "ü", 1, operate.Stdout), logRef(1, "ü", 1, operate.Stderr)
	row := kernel.Log{LogRef: ref, Holder: "h", Next: movedFrom + 1, Last: movedFrom, Complete: true}
	left := row
	left.LogRef = other
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: row, Writes: []kernel.LogWrite{writeOf(0, "one"), writeOf(movedFrom, "x")}}, {Now: left, Writes: []kernel.LogWrite{writeOf(0, "other")}}}))
	hash := artifact(1)
	s.must(s.store.MoveLog(ctx, row, hash))
	moved := row
	moved.Artifact = hash
	s.equal("rows", s.logs(ref.LogRun), []kernel.Log{left, moved})
	s.equal("bytes", s.chunks(ref, 0, 9), nil)
	s.equal("bytes of the other", s.chunks(other, 0, 9), []kernel.LogChunk{{Data: []byte("other")}})
	s.equal("movable", s.movable(9), []kernel.Log{left})
	s.equal("used", s.usedArtifacts(hash), []kernel.ArtifactHash{hash})
	s.equal("of the job", s.artifactsOf(1, 9), []kernel.ArtifactHash{hash})

	now := moved
	now.Next++
	for _, loaded := range []kernel.Log{row, moved} {
		err := s.store.SaveLogs(ctx, []kernel.LogChange{{Now: now, Loaded: &loaded, Writes: []kernel.LogWrite{writeOf(row.Next, "y")}}})
		s.equal("a change of a moved log is stale", errors.Is(err, kernel.ErrStale), true)
		s.equal("a second move is stale", errors.Is(s.store.MoveLog(ctx, loaded, artifact(2)), kernel.ErrStale), true)
	}
	s.equal("rows after a second move", s.logs(ref.LogRun), []kernel.Log{left, moved})
	s.equal("bytes after a change", s.chunks(ref, 0, 9), nil)
	s.equal("the artifact of the second move", s.usedArtifacts(artifact(2)), nil)

	s.must(s.store.MoveLog(ctx, left, hash)) // the same bytes: the use is there
	left.Artifact = hash
	s.equal("both", s.logs(ref.LogRun), []kernel.Log{left, moved})
	s.equal("of the job", s.artifactsOf(1, 9), []kernel.ArtifactHash{hash})
}

// A move of a row that is not as it was loaded, or that must not be moved, writes nothing (F267).
func logMoveStale(s *suite) {
	ref := logRef(1, "a", 1, operate.Stdout)
	row := kernel.Log{LogRef: ref, Holder: "h", Next: movedFrom, Complete: true}
	small, open := row, row
	small.LogRef, small.Next = logRef(1, "a", 2, operate.Stdout), movedFrom-1
	open.LogRef, open.Complete = logRef(1, "a", 3, operate.Stdout), false
	for _, l := range []kernel.Log{row, small, open} {
		s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: l, Writes: []kernel.LogWrite{writeOf(0, "x")}}}))
	}
	shorter, incomplete, none := row, row, row
	shorter.Next--
	incomplete.Complete = false
	none.LogRef = logRef(2, "a", 1, operate.Stdout)
	for what, loaded := range map[string]kernel.Log{"shorter": shorter, "not complete": incomplete, "not there": none, "small": small, "open": open} {
		if err := s.store.MoveLog(ctx, loaded, artifact(1)); !errors.Is(err, kernel.ErrStale) {
			s.Errorf("%s: %v", what, err)
		}
	}
	for _, l := range []kernel.Log{row, small, open} {
		s.equal("row", s.logs(l.LogRun), []kernel.Log{l})
		s.equal("bytes", s.chunks(l.LogRef, 0, 9), []kernel.LogChunk{{Data: []byte("x")}})
	}
	s.equal("used", s.usedArtifacts(artifact(1)), nil)
}

// Of several moves of one log at once, one is done (F268).
func logMovedTwice(s *suite) {
	row := kernel.Log{LogRef: logRef(1, "a", 1, operate.Stdout), Holder: "h", Next: movedFrom, Complete: true}
	s.must(s.store.SaveLogs(ctx, []kernel.LogChange{{Now: row, Writes: []kernel.LogWrite{writeOf(0, "x")}}}))
	const movers = 4
	errs := make(chan error, movers)
	for i := range movers {
		go func() { errs <- s.store.MoveLog(ctx, row, artifact(byte(1+i))) }()
	}
	done := 0
	for range movers {
		switch err := <-errs; {
		case err == nil:
			done++
		case !errors.Is(err, kernel.ErrStale):
			s.Error(err)
		}
	}
	s.equal("moves", done, 1)
	found := s.logs(row.LogRun)
	s.equal("uses", s.artifactsOf(1, 9), []kernel.ArtifactHash{found[0].Artifact})
}

func compareLogs(a, b *kernel.Log) int {
	return cmp.Or(bytes.Compare(a.Job[:], b.Job[:]), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Stream, b.Stream))
}

// someLog returns one of few logs, so that several operations change the same.
func (d *differential) someLog() kernel.LogRef {
	return logRef(d.someJob()%4, d.pick("s0", "s1"), int64(1+d.rnd.IntN(2)), operate.LogStream(d.pick("stdout", "stderr")))
}

// logAnswer is what a store has of a run, in order.
type logAnswer struct {
	Logs    []kernel.Log
	Chunks  []kernel.LogChunk
	Movable []kernel.Log
	Uses    []kernel.ArtifactHash
}

func readLogs(store kernel.Store, ref, after kernel.LogRef, from int64, max int) (a logAnswer, err error) {
	if a.Logs, err = store.Logs(ctx, []kernel.LogRun{ref.LogRun}); err != nil {
		return a, err
	}
	slices.SortFunc(a.Logs, func(a, b kernel.Log) int { return compareLogs(&a, &b) })
	if a.Chunks, err = store.LogChunks(ctx, ref, from, max); err != nil {
		return a, err
	}
	if a.Movable, err = store.MovableLogs(ctx, after, max); err != nil {
		return a, err
	}
	a.Uses, err = store.ArtifactsOf(ctx, ref.Job, max)
	return a, err
}

// addToLogs is an operation of Differential.
func addToLogs(d *differential) act {
	refs := []kernel.LogRef{d.someLog(), d.someLog()}
	chunk := protocol.LogChunk{Data: []byte(d.pick("a", "line\n", "\x00\xff")), Skips: true, Last: d.chance(15)}
	skip, stale := int64(d.rnd.IntN(3)*kernel.MaxLogPart/2), d.chance(20)
	return func(store kernel.Store) (any, error) {
		var changes []kernel.LogChange
		for i, ref := range refs {
			if i > 0 && ref == refs[0] {
				break
			}
			found, err := store.Logs(ctx, []kernel.LogRun{ref.LogRun})
			if err != nil {
				return nil, err
			}
			c := kernel.NewLog(ref, "h")
			for _, l := range found {
				if l.LogRef == ref {
					c = kernel.ChangeLog(l)
				}
			}
			k := chunk
			k.Offset = c.Now.Next + skip
			c.Add(&k)
			if stale && i > 0 && c.Loaded != nil {
				c.Loaded.Next++
			}
			changes = append(changes, *c)
		}
		return true, store.SaveLogs(ctx, changes)
	}
}

// moveSomeLog is an operation of Differential. It moves the first movable log, or one that may not be movable.
func moveSomeLog(d *differential) act {
	ref, first, stale, hash := d.someLog(), d.chance(50), d.chance(20), artifact(byte(1+d.rnd.IntN(3)))
	return func(store kernel.Store) (any, error) {
		var found []kernel.Log
		var err error
		if first {
			found, err = store.MovableLogs(ctx, kernel.LogRef{}, 1)
		} else if found, err = store.Logs(ctx, []kernel.LogRun{ref.LogRun}); len(found) == 2 && found[0].Stream != ref.Stream {
			found = found[1:]
		}
		if err != nil || len(found) == 0 {
			return found, err
		}
		if stale {
			found[0].Next--
		}
		return found[0].LogRef, store.MoveLog(ctx, found[0], hash)
	}
}

// readSomeLogs is an operation of Differential.
func readSomeLogs(d *differential) act {
	ref, from, max := d.someLog(), int64(d.rnd.IntN(4)*kernel.MaxLogPart/2), d.max()
	var after kernel.LogRef
	if d.chance(50) {
		after = d.someLog()
	}
	return func(store kernel.Store) (any, error) { return readLogs(store, ref, after, from, max) }
}
