package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// scriptedLogs has what runs have written. A reader that follows a log gets what there is, and after a while an answer
// without an end, unless the log is complete.
type scriptedLogs struct {
	latest   int64
	text     map[int64]string
	complete map[int64]bool
}

func (s *scriptedLogs) ReadLog(ctx context.Context, q operate.LogQuery, see func(*operate.LogPart) error) error {
	if q.Run == 0 {
		q.Run = s.latest
	}
	if q.Run > s.latest {
		return perdure.Refuse(perdure.CodeNotFound, "no run %d", q.Run)
	}
	for range 50 {
		text := s.text[q.Run]
		end := s.complete[q.Run]
		if err := see(&operate.LogPart{Run: q.Run, Offset: q.Offset, Size: int64(len(text)), Data: []byte(text[q.Offset:]), End: end}); err != nil {
			return err
		}
		if q.Offset = int64(len(text)); end {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func follower(svc operate.Logs, text *strings.Builder) *logFollower {
	return &logFollower{svc: svc, see: func(part *operate.LogPart) error { text.Write(part.Data); return nil },
		cut: func(run int64) { fmt.Fprintf(text, "[cut %d]", run) }}
}

// F270: a log is followed until its end is known, also if the node has given up meanwhile.
func TestFollowerOfALogReadsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := &scriptedLogs{latest: 1, text: map[int64]string{1: "one "}, complete: map[int64]bool{}}
		var text strings.Builder
		l := follower(svc, &text)
		for i, more := range []string{"two ", "three"} {
			time.AfterFunc(time.Duration(i+1)*8*time.Second, func() { svc.text[1] += more; svc.complete[1] = i == 1 })
		}
		if err := l.finish(t.Context(), 1); err != nil || text.String() != "one two three" || !l.end {
			t.Errorf("%q, end %v, %v", text.String(), l.end, err)
		}
	})
}

// F270: a log that gets no further bytes is given up after a while, and the reader knows that its end is missing. That of a
// further run is read meanwhile.
func TestFollowerOfALogGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := &scriptedLogs{latest: 2, text: map[int64]string{1: "one ", 2: "two"}, complete: map[int64]bool{}}
		var text strings.Builder
		l, began := follower(svc, &text), time.Now()
		l.at.Run = 1
		err := l.finish(t.Context(), 2)
		if took := time.Since(began); err != nil || text.String() != "one [cut 1]two" || l.end || took < logPatience || took > time.Minute {
			t.Errorf("%q, end %v, %v after %s", text.String(), l.end, err, took)
		}
	})
}

// The lines of --tail are whole: a part of a log that does not begin with its first byte may begin within a line. A hole in the
// log is shown.
func TestTailOfALog(t *testing.T) {
	part := func(offset int64, text string, leftOut int64) *operate.LogPart {
		return &operate.LogPart{Run: 1, Offset: offset, Size: 1000, Data: []byte(text), LeftOut: leftOut}
	}
	for name, tc := range map[string]struct {
		tail  int
		parts []*operate.LogPart
		want  string
	}{
		"from the first byte":              {5, []*operate.LogPart{part(0, "one\ntwo\n", 0)}, "one\ntwo\n"},
		"within a line":                    {5, []*operate.LogPart{part(3, "of one\ntwo\n", 0), part(14, "three", 0)}, "two\nthree"},
		"within a line, and lines left":    {1, []*operate.LogPart{part(3, "of one\ntwo\n", 0)}, "two\n"},
		"within the only line":             {5, []*operate.LogPart{part(3, "of one", 0)}, "of one"},
		"within the only line, with break": {5, []*operate.LogPart{part(3, "of one\n", 0)}, "of one\n"},
		"a hole first":                     {5, []*operate.LogPart{part(9, "of one\ntwo\n", 6)}, "two\n"},
		"a hole":                           {5, []*operate.LogPart{part(0, "one\nt", 0), part(12, "of two\nthree\n", 6)}, "one\nt\n… 6 bytes left out …\nof two\nthree\n"},
	} {
		var out strings.Builder
		p := &logPrinter{app: &app{out: &printer{w: &out}}, stream: operate.Stdout, skip: tc.tail}
		for _, part := range tc.parts {
			if err := p.print(part); err != nil {
				t.Fatal(err)
			}
		}
		if p.flush(); out.String() != tc.want {
			t.Errorf("%s: %q, want %q", name, out.String(), tc.want)
		}
	}
}

// F221: a file that cannot be closed gets no name.
func TestFileThatCannotBeClosedGetsNoName(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "scene.blend")
	if err := os.WriteFile(name, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "part.*")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close() // a second one fails
	err = nameFile(f, name)
	if got, rerr := os.ReadFile(name); err == nil || rerr != nil || string(got) != "earlier" {
		t.Errorf("%v, and the file has %q, %v", err, got, rerr)
	}
}

// The message of a failure has the end of stderr, which perdure exec has printed.
func TestFailureWithoutStderr(t *testing.T) {
	for message, want := range map[string]string{
		"exit code 3": "exit code 3",
		"exit code 3: broken: killed by TERM: \nagain":                   "exit code 3",
		"killed by SEGV: exit code 4: x":                                 "killed by SEGV",
		"killed: out of memory: err":                                     "killed: out of memory",
		"stopped by an operator: killed by TERM: err\nerr2":              "stopped by an operator: killed by TERM",
		"stopped after completeWithin (4s): exit code 0 after TERM: err": "stopped after completeWithin (4s): exit code 0 after TERM",
		"prog: executable file not found in $PATH":                       "prog: executable file not found in $PATH",
		"collect: exit code 1: x":                                        "collect: exit code 1: x",
	} {
		if got := withoutStderr(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}
