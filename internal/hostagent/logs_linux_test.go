package hostagent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
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
type fullNode struct{ chunks []protocol.LogChunk }

func (n *fullNode) AppendLogs(_ context.Context, _ string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	results := make([]protocol.LogResult, len(chunks))
	for i, c := range chunks {
		if n.chunks = append(n.chunks, c); len(c.Data) > 0 {
			results[i] = protocol.LogResult{Reason: protocol.RefusedFull, RetryAfter: time.Second}
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
	node := &fullNode{}
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
