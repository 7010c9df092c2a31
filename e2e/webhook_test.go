package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/e2e/rig"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/operate"
)

// F070, F139: a node is killed with SIGKILL, several times, while it delivers notifications to a receiver that fails, hangs up
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
	return complete(b.byJob, want)
}

// complete counts the jobs of which all has arrived, and returns those that are not in order.
func complete(byJob map[string][]string, want string) (jobs int, other []string) {
	for _, kinds := range byJob {
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
	receiver.mu.Lock()
	t.Logf("%d repeated", receiver.repeated)
	receiver.mu.Unlock()
	kill(t, node)
	must(t, "check", "--store", store)
}

// F070, F139: two nodes are killed with SIGKILL at random, while a receiver fails, is slow, hangs, hangs up, redirects to this machine,
// is down and is started again, and answers 410, after which an operator resumes it. Every notification of every job
// arrives, signed, once for each id after repeated ids are ignored, and in the order of the job. Nothing follows a redirect.
func TestEveryNotificationReachesABadReceiver(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute or two")
	}
	const rounds, perRound, agent = 4, 40, "manual"
	store := pgtest.Start(t)
	trap := &badInbox{}
	trapServer := httptest.NewServer(trap)
	defer trapServer.Close()
	b := &badInbox{trap: trapServer.URL, seen: map[string]bool{}, faulty: map[string]bool{}, byJob: map[string][]string{}}
	b.listen(t, rig.FreeAddress(t))
	defer func() { b.server.Close() }()

	nodes, clients := make([]*exec.Cmd, 2), make([]*client.Client, 2)
	addresses := []string{rig.FreeAddress(t), rig.FreeAddress(t)}
	start := func(i int) {
		t.Helper()
		nodes[i] = begin(t, "serve", "--listen", addresses[i], "--store", store, "--migrate", "--agents", "none", "--allow-private-targets", "--role-ttl", "2s", "--log-level", "error")
		eventually(t, "the node is ready", func() bool { return ready("http://" + addresses[i]) })
	}
	for i := range nodes {
		start(i)
		c, err := client.New("http://"+addresses[i], client.Author("anna"))
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	v, err := clients[0].CreateWebhook(t.Context(), operate.WebhookRequest{Name: "inbox", Author: "anna",
		WebhookSettings: operate.WebhookSettings{URL: "http://" + b.address, On: []operate.EventKind{operate.EventReceived, operate.EventRunning, operate.EventParked}}})
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.secret = v.Secret
	b.mu.Unlock()
	for round := range rounds {
		victim := rand.IntN(2)
		switch round {
		case 1:
			b.server.Close() // it is down
		case 2:
			b.listen(t, b.address)
		case 3:
			b.setGone(true)
		}
		kill(t, nodes[victim])
		parkRange(t, clients[1-victim], agent, round*perRound, (round+1)*perRound)
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		start(victim)
	}
	eventually(t, "410 has paused the receiver", func() bool {
		v, err := clients[0].GetWebhook(t.Context(), "inbox")
		if err != nil {
			t.Fatal(err)
		}
		return v.State == operate.WebhookPaused
	})
	b.setGone(false)
	if _, err := clients[0].ResumeWebhook(t.Context(), "inbox", "anna"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		done, other := b.complete("received running parked")
		if len(other) > 0 {
			t.Fatalf("out of order: %q", other)
		}
		if done == rounds*perRound {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d jobs are reported completely", done, rounds*perRound)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	trap.mu.Lock()
	defer trap.mu.Unlock()
	if b.wrong != "" || trap.requests > 0 {
		t.Errorf("%s; %d redirects were followed", b.wrong, trap.requests)
	}
	for fault := range faults {
		if b.faults[fault] == 0 {
			t.Errorf("the receiver has never shown fault %d", fault)
		}
	}
	t.Logf("faults %v, %d repeated", b.faults, b.repeated)
	for _, node := range nodes {
		kill(t, node)
	}
	must(t, "check", "--store", store)
}

// The faults of a badInbox: a notification meets at most one of them.
const (
	fails = iota
	hangsUp
	hangsUpLater // after it has accepted the notification
	redirects
	isSlow
	hangs
	faults
)

// badInbox is a receiver that shows each fault, and ignores ids that it has seen.
type badInbox struct {
	address, trap string
	server        *http.Server

	mu       sync.Mutex
	secret   string
	gone     bool
	wrong    string
	seen     map[string]bool
	faulty   map[string]bool // ids that have met a fault
	byJob    map[string][]string
	faults   [faults]int
	repeated int
	requests int
}

func (b *badInbox) setGone(gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = gone
}

func (b *badInbox) listen(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b.address, b.server = address, &http.Server{Handler: b}
	go b.server.Serve(l)
}

// fault returns the fault that a notification meets; faults: none.
func (b *badInbox) fault(id string) int {
	if b.faulty[id] {
		return faults
	}
	fault := rand.IntN(4 * faults)
	if fault >= faults || fault == hangs && b.faults[hangs] > 1 { // a hang takes as long as an attempt may
		return faults
	}
	b.faulty[id] = true
	b.faults[fault]++
	return fault
}

func (b *badInbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.requests++
	if b.trap == "" || b.gone {
		b.mu.Unlock()
		w.WriteHeader(http.StatusGone)
		return
	}
	fault := b.fault(r.Header.Get("webhook-id"))
	b.mu.Unlock()
	switch fault {
	case fails:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case hangsUp:
		panic(http.ErrAbortHandler)
	case redirects:
		http.Redirect(w, r, b.trap, http.StatusTemporaryRedirect)
		return
	case isSlow:
		time.Sleep(time.Second)
	case hangs:
		<-r.Context().Done()
		return
	}
	b.accept(r, body)
	if fault == hangsUpLater {
		panic(http.ErrAbortHandler)
	}
}

func (b *badInbox) accept(r *http.Request, body []byte) {
	var e struct{ ID, Type, Subject string }
	b.mu.Lock()
	defer b.mu.Unlock()
	hook, err := standard.NewWebhook(b.secret)
	if err == nil {
		err = hook.Verify(body, r.Header)
	}
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil || e.ID != r.Header.Get("webhook-id") {
		b.wrong = fmt.Sprintf("%s: %v", body, err)
	}
	if b.seen[e.ID] {
		b.repeated++
		return
	}
	b.seen[e.ID] = true
	b.byJob[e.Subject] = append(b.byJob[e.Subject], strings.TrimPrefix(e.Type, "perdure.job."))
}

func (b *badInbox) complete(want string) (jobs int, other []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return complete(b.byJob, want)
}
