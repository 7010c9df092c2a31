package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// An album is resized by two processes, of which one dies at its work. One picture in a hundred is damaged, and tolerated.
// Undo removes all small pictures, redo makes them again.
// PERDURE_IMAGES is the number of pictures (make images: 10,000).
func TestImages(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for some seconds")
	}
	count, err := strconv.Atoi(os.Getenv("PERDURE_IMAGES"))
	if err != nil {
		count = 600
	}
	url, svc := serve(t, build(t, "github.com/perdure/perdure/cmd/perdure"))
	agent := build(t, "github.com/perdure/perdure/examples/images")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	first := start(t, agent, url)
	start(t, agent, url)
	dir := t.TempDir()

	began := time.Now()
	id := submitAlbum(ctx, t, svc, dir, count)
	for resized(ctx, t, svc, id).Done < count/10 {
		time.Sleep(20 * time.Millisecond)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	job := settled(ctx, t, svc, id)
	done := time.Since(began)
	want := fmt.Sprintf(`{"total":%d,"done":%d,"failed":%d}`, count, count-count/100, count/100)
	if got := string(job.Steps.Get("resize").Output); job.Current != perdure.Done || got != want {
		t.Fatalf("the album is %s: %s, not %s", job.Current, got, want)
	}
	if small, index := files(t, dir); small != count-count/100 || index != fmt.Sprintf("%d of %d pictures\n", small, count) {
		t.Errorf("%d small pictures; %q", small, index)
	}

	began = time.Now()
	act(ctx, t, svc, id, perdure.VerbUndo)
	if job = settled(ctx, t, svc, id); job.Current != perdure.Undone {
		t.Fatalf("the album is %s", job.Current)
	}
	undone := time.Since(began)
	if small, index := files(t, dir); small != 0 || index != "" {
		t.Errorf("after the undo: %d small pictures; %q", small, index)
	}
	act(ctx, t, svc, id, perdure.VerbRedo)
	job = settled(ctx, t, svc, id)
	if small, _ := files(t, dir); job.Current != perdure.Done || small != count-count/100 {
		t.Errorf("after the redo the album is %s, with %d small pictures", job.Current, small)
	}
	t.Logf("%d pictures: resized in %v, undone in %v", count, done.Round(time.Millisecond), undone.Round(time.Millisecond))
}

func submitAlbum(ctx context.Context, t *testing.T, svc protocol.Server, dir string, count int) string {
	t.Helper()
	definition, err := os.ReadFile("images.yaml")
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]any{"dir": dir, "count": count, "width": 16})
	if err != nil {
		t.Fatal(err)
	}
	const usual = "input: {dir: /tmp/album, count: 1000, width: 16}"
	if !strings.Contains(string(definition), usual) {
		t.Fatal("the example has another input")
	}
	definition = []byte(strings.Replace(string(definition), usual, "input: "+string(input), 1))
	job, _, err := svc.Submit(ctx, definition, "application/yaml")
	if err != nil {
		t.Fatal(err)
	}
	return job.ID.String()
}

func act(ctx context.Context, t *testing.T, svc protocol.Server, id string, verb perdure.Verb) {
	t.Helper()
	if _, err := svc.Act(ctx, id, perdure.Act{Verb: verb, Author: "test"}); err != nil {
		t.Fatal(err)
	}
}

// resized returns how far the children of step resize are.
func resized(ctx context.Context, t *testing.T, svc protocol.Server, id string) perdure.ChildCounts {
	t.Helper()
	job, err := svc.Job(ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c := job.Steps.Get("resize").Children; c != nil {
		return *c
	}
	return perdure.ChildCounts{}
}

func settled(ctx context.Context, t *testing.T, svc protocol.Server, id string) *perdure.JobView {
	t.Helper()
	for {
		job, err := svc.Job(ctx, id, perdure.MaxJobWait)
		if err != nil {
			t.Fatal(err)
		}
		if job.Phase == perdure.Settled || job.Phase == perdure.Parked {
			return job
		}
	}
}

// files returns the number of small pictures, and the text that was published.
func files(t *testing.T, dir string) (small int, index string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "small", "*.png"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "index.txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(all), string(text)
}
