package e2e

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/operate"
)

// F070: a node is killed with SIGKILL, several times, while it delivers notifications to a receiver that fails, hangs up
// and is slow at random, and is started again. Every notification of every job arrives, once for each id after repeated
// ids are ignored, and in the order of the job.
func TestNotificationsOfAKilledNodeArrive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Run("sqlite", func(t *testing.T) {
		killDuringDeliveries(t, "sqlite:"+filepath.Join(t.TempDir(), "perdure.db"))
	})
	t.Run("postgres", func(t *testing.T) { killDuringDeliveries(t, pgtest.Start(t)) })
}

// inbox is a receiver that ignores ids that it has seen.
type inbox struct {
	mu       sync.Mutex
	calm     bool // it accepts everything
	seen     map[string]bool
	byJob    map[string][]string
	repeated int
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var e struct{ ID, Type, Subject string }
	b.mu.Lock()
	defer b.mu.Unlock()
	n := rand.IntN(12)
	switch {
	case json.Unmarshal(body, &e) != nil || e.ID == "" || e.ID != r.Header.Get("webhook-id") || r.Header.Get("webhook-signature") == "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case b.calm || n > 2:
	case n == 0:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case n == 1:
		panic(http.ErrAbortHandler) // it hangs up, and has not accepted it
	}
	if b.seen[e.ID] {
		b.repeated++
	} else {
		b.seen[e.ID] = true
		b.byJob[e.Subject] = append(b.byJob[e.Subject], strings.TrimPrefix(e.Type, "perdure.job."))
	}
	if n == 2 && !b.calm {
		panic(http.ErrAbortHandler) // it hangs up after it has accepted it
	}
}

func (b *inbox) complete(want string) (jobs int, other []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kinds := range b.byJob {
		switch got := strings.Join(kinds, " "); {
		case got == want:
			jobs++
		case !strings.HasPrefix(want, got):
			other = append(other, got)
		}
	}
	return jobs, other
}

func killDuringDeliveries(t *testing.T, store string) {
	const kills, jobs, agent = 3, 200, "manual"
	receiver := &inbox{seen: map[string]bool{}, byJob: map[string][]string{}}
	server := httptest.NewServer(receiver)
	defer server.Close()
	address := rig.FreeAddress(t)
	start := func() *exec.Cmd {
		node := begin(t, "serve", "--listen", address, "--store", store, "--migrate", "--agents", "none", "--allow-private-targets", "--role-ttl", "2s", "--log-level", "error")
		eventually(t, "the node is ready", func() bool { return ready("http://" + address) })
		return node
	}
	node := start()
	c, err := client.New("http://"+address, client.Author("anna"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateWebhook(t.Context(), operate.WebhookRequest{Name: "inbox", Author: "anna",
		WebhookSettings: operate.WebhookSettings{URL: server.URL, On: []operate.EventKind{operate.EventReceived, operate.EventRunning, operate.EventParked}}}); err != nil {
		t.Fatal(err)
	}
	park(t, c, agent, jobs)
	for range kills {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		kill(t, node)
		node = start()
	}
	receiver.mu.Lock()
	receiver.calm = true
	receiver.mu.Unlock()
	done, end := 0, time.Now().Add(2*time.Minute)
	for done < jobs && time.Now().Before(end) {
		var other []string
		if done, other = receiver.complete("received running parked"); len(other) > 0 {
			t.Fatalf("out of order: %q", other)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if done != jobs {
		t.Errorf("%d of %d jobs are reported completely", done, jobs)
	}
	t.Logf("%d repeated", receiver.repeated)
	kill(t, node)
	must(t, "check", "--store", store)
}
