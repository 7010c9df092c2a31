package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// text returns what is kept of a stream, with what is left out.
func text(t *testing.T, dir, name string) string {
	t.Helper()
	s, err := ReadStream(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	at := int64(0)
	for _, p := range s.Parts {
		if p.Offset > at {
			fmt.Fprintf(&all, "[%d bytes left out]", p.Offset-at)
		}
		b, err := p.read(0)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
		at = p.Offset + p.Size
	}
	return all.String()
}

func TestStreamKeepsBeginningAndEnd(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 14, 15, 18, 19, 100, 1001} {
		dir := t.TempDir()
		s, err := newStream(dir, Stdout, 10, 4)
		if err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		for i := 0; i < n; i += 3 {
			piece := strings.Repeat("x", min(3, n-i))
			all.WriteString(piece)
			if _, err := s.Write([]byte(piece)); err != nil {
				t.Fatal(err)
			}
		}
		s.close()
		got, err := ReadStream(dir, Stdout)
		if err != nil || got.Size != int64(n) {
			t.Fatalf("%d: %d bytes, %v", n, got.Size, err)
		}
		kept := int64(0)
		for _, p := range got.Parts {
			kept += p.Size
		}
		if kept > 18 || kept < min(int64(n), 14) {
			t.Errorf("%d: %d bytes are kept", n, kept)
		}
		want := all.String()
		if left := n - int(kept); left > 0 {
			want = fmt.Sprintf("%s[%d bytes left out]%s", want[:10], left, want[10+left:])
		}
		if text := text(t, dir, Stdout); text != want {
			t.Errorf("%d: %q, want %q", n, text, want)
		}
		whole, ok, err := got.Whole(18)
		if err != nil || ok != (n <= 18) || ok && string(whole) != all.String() {
			t.Errorf("%d: whole %q, %v, %v", n, whole, ok, err)
		}
		tail, cut, err := got.Tail(3)
		if err != nil || len(tail) != min(n, 3) || cut != (n > 3) {
			t.Errorf("%d: tail %q, %v, %v", n, tail, cut, err)
		}
	}
}

// What could not be written is left out, and the rest has its place.
func TestStreamWithAGap(t *testing.T) {
	dir := t.TempDir()
	for name, s := range map[string]string{"stdout": "begin", "stdout.00000000000000000100": "end", "stdout.pid": "no part"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ReadStream(dir, Stdout)
	if err != nil {
		t.Fatal(err)
	}
	if text := text(t, dir, Stdout); text != "begin[95 bytes left out]end" || s.Size != 103 {
		t.Errorf("%q", text)
	}
	if _, ok, _ := s.Whole(1000); ok {
		t.Error("it is whole")
	}
	if tail, cut, _ := s.Tail(50); string(tail) != "end" || !cut {
		t.Errorf("%q", tail)
	}
}

func TestRecordIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	if err := createKeeper(dir, &Keeper{Socket: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := createKeeper(dir, &Keeper{Socket: "b"}); !os.IsExist(err) {
		t.Errorf("%v", err)
	}
	k, err := ReadKeeper(dir)
	left, _ := os.ReadDir(dir)
	if err != nil || k.Socket != "a" || len(left) != 1 {
		t.Errorf("%+v, %v, %d files", k, err, len(left))
	}
}

func TestLongMessageFitsIntoTheReservedPlace(t *testing.T) {
	dir := t.TempDir()
	r, err := reserveExit(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.write(&Exit{Cause: NotStarted, Message: strings.Repeat("\x00", 2*exitRecordBytes)}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, exitFile))
	if err != nil || info.Size() > exitRecordBytes {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if e, err := ReadExit(dir); err != nil || e.Cause != NotStarted {
		t.Errorf("%+v, %v", e, err)
	}
}
