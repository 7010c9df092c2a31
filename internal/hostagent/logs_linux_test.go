package hostagent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/keeper"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// logOf reads the log of a job's step.
func (g *grid) logOf(id perdure.JobID, stream operate.LogStream) (text []byte, end bool) {
	g.Helper()
	err := g.node.ReadLog(g.Context(), operate.LogQuery{Job: id.String(), Step: "run", Stream: stream}, func(p *operate.LogPart) error {
		if p.LeftOut > 0 || p.Offset != int64(len(text)) {
			return fmt.Errorf("offset %d after %d bytes, %d left out", p.Offset, len(text), p.LeftOut)
		}
		text, end = append(text, p.Data...), p.End
		return nil
	})
	if err != nil {
		g.Fatal(err)
	}
	return text, end
}

// F190: what a command writes is stored without a gap and without doubling, while its host agent is killed and started again.
// The log is complete when the job is done.
func TestLogsOfCommandsAreStored(t *testing.T) {
	g := newGrid(t)
	h := g.host("h1", 20*time.Second)
	id := g.submit(`i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done
echo half > $D/half; while [ ! -e $D/go ]; do sleep 0.02; done; head -c 300000 /dev/zero | tr '\0' x; echo; echo end >&2`, 1)
	g.await("the first lines", func() bool { text, _ := g.logOf(id, operate.Stdout); return len(text) > 0 })
	h.kill(syscall.SIGKILL)
	h.start()
	g.file("half")
	g.touch("go")
	g.step(id, "the end", settled)

	var want bytes.Buffer
	for i := range 300 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString(strings.Repeat("x", 300000) + "\n")
	if text, end := g.logOf(id, operate.Stdout); !bytes.Equal(text, want.Bytes()) || !end {
		t.Errorf("stdout: %d bytes of %d, end %v", len(text), want.Len(), end)
	}
	if text, end := g.logOf(id, operate.Stderr); string(text) != "end\n" || !end {
		t.Errorf("stderr: %q, end %v", text, end)
	}
}

// F190: a command that writes nothing has empty logs, and the end of each is known.
func TestQuietCommandHasEmptyLogs(t *testing.T) {
	g := newGrid(t)
	g.host("h1", 20*time.Second)
	id := g.submit(`exit 0`, 1)
	g.step(id, "the end", settled)
	for _, stream := range []operate.LogStream{operate.Stdout, operate.Stderr} {
		if text, end := g.logOf(id, stream); len(text) > 0 || !end {
			t.Errorf("%s: %q, end %v", stream, text, end)
		}
	}
}

// fullNode refuses bytes, because it has no room.
type fullNode struct {
	retryAfter time.Duration
	mu         sync.Mutex
	chunks     []protocol.LogChunk
	calls      int
}

func (n *fullNode) hasBegun(run int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.chunks, func(c protocol.LogChunk) bool { return c.Run == run && len(c.Data) == 0 })
}

func (n *fullNode) AppendLogs(_ context.Context, _ string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	results := make([]protocol.LogResult, len(chunks))
	for i, c := range chunks {
		if n.chunks = append(n.chunks, c); len(c.Data) > 0 {
			results[i] = protocol.LogResult{Reason: protocol.RefusedFull, RetryAfter: n.retryAfter}
		} else {
			results[i] = protocol.LogResult{Accepted: true}
		}
	}
	return results, nil
}

// F270: the log of a command is begun while the node has no room for its bytes. Otherwise the node would refuse all of it
// after the report.
func TestLogIsBegunAtANodeWithoutRoom(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stdout"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := &fullNode{retryAfter: time.Second}
	u := newUploader(node, "h", nil)
	u.begin(&perdure.Run{Step: "run", Number: 1}, dir)
	for range 2 {
		if wait, err := u.upload(t.Context()); err != nil || wait != time.Second {
			t.Fatalf("%v, %v", wait, err)
		}
	}
	begun := map[operate.LogStream]int{}
	for _, c := range node.chunks {
		if len(c.Data) == 0 && c.Offset == 0 {
			begun[c.Stream]++
		}
	}
	if begun[operate.Stdout] != 1 || begun[operate.Stderr] != 1 || len(node.chunks) != 4 {
		t.Errorf("chunks %+v", node.chunks)
	}
}

// F280: a node has no room for logs, and runs end all the time. The host sends no more often than the node requires, up to a
// bound, and the log of each run is begun before the run is reported.
func TestNodeWithoutRoomIsNotAskedAtEachEndOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &fullNode{retryAfter: time.Minute}
		u := newUploader(node, "h", slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan struct{})
		go func() { u.work(ctx); close(worked) }()
		var runs sync.WaitGroup
		begun := time.Now()
		for i := range int64(40) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, keeper.Stdout), []byte("hello"), 0o600); err != nil {
				t.Fatal(err)
			}
			u.begin(&perdure.Run{Step: "run", Number: i}, dir)
			runs.Go(func() {
				if u.end(dir); !node.hasBegun(i) {
					t.Errorf("run %d: its log is not begun after %s", i, time.Since(begun))
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		runs.Wait()
		if most := int(time.Since(begun)/retryMost) + 1; node.calls > most {
			t.Errorf("%d uploads in %s", node.calls, time.Since(begun))
		}
		u.end("") // no run
		u.kick <- struct{}{}
		synctest.Wait()
		begun = time.Now()
		cancel()
		if <-worked; time.Since(begun) > 0 {
			t.Errorf("ended after %s", time.Since(begun))
		}
	})
}

// F281: the file system of a host does not answer while a log is read. Other runs begin and end all the same.
func TestReadOfALogDelaysNoRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, keeper.Stdout)
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Another open of the file waits until the lease is returned.
	lease, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Close() }()
	if _, err := unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("NOT TESTED: no lease of a file: %v", err)
	}
	u := newUploader(&fullNode{}, "h", nil)
	u.begin(&perdure.Run{Step: "run", Number: 1}, dir)
	read := make(chan int)
	go func() {
		chunks, _ := u.gather()
		read <- len(chunks)
	}()
	time.Sleep(200 * time.Millisecond)
	began := make(chan struct{})
	go func() {
		u.begin(&perdure.Run{Step: "run", Number: 2}, "other")
		close(began)
	}()
	select {
	case <-began:
	case <-time.After(5 * time.Second):
		t.Error("a run does not begin while the log of another is read")
	}
	select {
	case <-read:
		t.Error("the lease has no effect")
	default:
	}
	_, _ = unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	if n := <-read; n != 3 { // the begin of both streams, and a chunk
		t.Errorf("%d chunks", n)
	}
}

// logNode takes chunks as a node does.
type logNode struct {
	log  kernel.LogChange
	full bool
}

func (n *logNode) AppendLogs(_ context.Context, holder string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	results := make([]protocol.LogResult, len(chunks))
	for i, c := range chunks {
		if c.Stream != operate.Stdout {
			results[i] = protocol.LogResult{Accepted: true}
			continue
		}
		reason, fresh := n.log.Refuse(holder, &c)
		if reason == "" && fresh > 0 && n.full {
			reason = protocol.RefusedFull
		}
		if results[i].Reason = reason; reason == "" {
			n.log.Add(&c)
			results[i].Accepted = true
		}
		results[i].Next = n.log.Now.Next
	}
	return results, nil
}

// F278: the disk was full when a command wrote the end of its stdout. The log says that bytes are missing there. They are not said
// to be missing before the node has what is stored.
func TestMissingEndOfALogIsSkipped(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, keeper.Stdout), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keeper.WriteFile(dir, "exit.json", &keeper.Exit{Written: &keeper.Written{Stdout: 100}}); err != nil {
		t.Fatal(err)
	}
	node := &logNode{log: *kernel.NewLog(kernel.LogRef{}, "h"), full: true}
	u := newUploader(node, "h", nil)
	u.begin(&perdure.Run{Step: "run", Number: 1}, dir)
	u.runs[dir].ended.Store(true)
	for range 3 {
		if _, err := u.upload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l := node.log.Now; l.Next != 0 || l.Complete {
		t.Errorf("the node has no room: %+v", l)
	}
	node.full = false
	for range 2 {
		if _, err := u.upload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l := node.log; l.Now.Next != 100 || !l.Now.Complete || len(l.Writes) != 1 || string(l.Writes[0].Data) != "hello" || len(u.runs) > 0 {
		t.Errorf("%+v, %d runs left", l, len(u.runs))
	}
}

// A stream whose files have not changed is not listed again; what is written later is found.
func TestUnchangedStreamIsNotListed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, keeper.Stdout)
	for _, name := range []string{keeper.Stdout, keeper.Stderr} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &shipped{run: &perdure.Run{Step: "a"}, dir: dir}
	stream := &s.streams[0]
	stream.begun = true
	longAgo := time.Now().Add(-time.Minute)
	look := func(want string) {
		t.Helper()
		if err := os.Chtimes(dir, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
		longAgo = longAgo.Add(time.Second)
		text := ""
		for _, c := range s.chunks(keeper.Stdout, stream, 10) {
			text += string(c.Data)
			stream.next = c.Offset + int64(len(c.Data))
		}
		if text != want {
			t.Errorf("%q is found, want %q", text, want)
		}
	}
	holds := func() bool { return stream.sent.holds(dir) }
	if look(""); !holds() {
		t.Error("it is listed again")
	}
	if err := os.WriteFile(file, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if holds() {
		t.Error("bytes of the last file are missed")
	}
	look("one")
	if look(""); !holds() {
		t.Error("it is listed again")
	}
	if err := os.WriteFile(file+".00000000000000000003", []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if holds() {
		t.Error("a further file is missed")
	}
	look("two")
	stream.sent = sentState{time.Now(), keeper.Part{Path: file, Size: 3}}
	if err := os.Chtimes(dir, stream.sent.dirAt, stream.sent.dirAt); err != nil {
		t.Fatal(err)
	}
	if holds() {
		t.Error("a directory that has just been changed may change again at the same time")
	}
}
