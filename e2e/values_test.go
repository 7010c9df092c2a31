package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	root "github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/pgtest"
)

// service is a service that takes 80 ms for a call. It returns a unique token for each call, and expects later steps of
// the order to send the tokens of the earlier ones.
type service struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string]string // by idempotency key: the first that came with it
	wrong  map[string]string // orders that were given wrong values: the first of them
	calls  map[string]int    // by order, step and direction
}

const tillTime = 80 * time.Millisecond

func openTill(t *testing.T) *service {
	s := &service{bodies: map[string]string{}, wrong: map[string]string{}, calls: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func token(order, step string) string { return step + " of " + order }

// bodyOf is the body that a call must have, unless the operator gave another.
func bodyOf(order, step string, undo bool) string {
	switch {
	case undo:
		return fmt.Sprintf(`{"cancel":%q}`, token(order, step))
	case step == "reserve":
		return fmt.Sprintf(`{"order":%q}`, order)
	case step == "charge":
		return fmt.Sprintf(`{"reservation":%q,"text":"for %s!"}`, token(order, "reserve"), token(order, "reserve"))
	}
	return fmt.Sprintf(`{"charge":%q,"reservation":%q}`, token(order, "charge"), token(order, "reserve"))
}

// edited is the body that the operator gives to ship some of the orders.
const edited = `{"edited":true}`

func isEdited(order, step string, undo bool) bool {
	return strings.HasSuffix(order, "-edited") && step == "ship" && !undo
}

// ServeHTTP answers a call. The first call that ships an order fails for every fifth order. For an order that the
// operator edits, it is refused until it comes with the operator's input.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	order, step, key := r.URL.Query().Get("order"), r.URL.Query().Get("step"), r.Header.Get("Idempotency-Key")
	undo := r.Header.Get("Perdure-Direction") == "undo"
	time.Sleep(tillTime)
	if s.compare(order, step, key, string(body), undo) && step == "ship" && !undo && strings.HasSuffix(order, "5") {
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	if isEdited(order, step, undo) && string(body) != edited {
		http.Error(w, "not like this", http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"token":%q}`, token(order, step))
}

// compare compares the body of a call with the expected one, and reports whether the call is the first under its key.
func (s *service) compare(order, step, key, body string, undo bool) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[fmt.Sprint(order, step, undo)]++
	before, again := s.bodies[key]
	s.bodies[key] = body
	want := bodyOf(order, step, undo)
	switch byHand := isEdited(order, step, undo); {
	case s.wrong[order] != "", byHand && body == edited:
	case body != want:
		s.wrong[order] = fmt.Sprintf("%s (undo: %v) came with %s, wanted %s", step, undo, body, want)
	case again && body != before && !byHand:
		s.wrong[order] = fmt.Sprintf("key %s came with %s, and then with %s", key, before, body)
	}
	return !again
}

// order is a chain of three steps, each of which reads the outputs of those before it.
func (s *service) order(key string) []byte {
	call := func(step string, body object) object {
		return object{"method": "POST", "url": fmt.Sprintf("%s/?order=%s&step=%s", s.URL, key, step), "body": body}
	}
	step := func(name string, body object) object {
		return object{"agent": "http", "with": call(name, body), "retry": object{"attempts": 3, "backoff": "10ms"}, "onFailure": "park",
			"undo": object{"with": call(name, object{"cancel": "${output?.body?.token}"})}}
	}
	b, err := json.Marshal(object{"type": "order", "key": key, "flow": "chain", "steps": json.RawMessage(fmt.Sprintf(`{"reserve":%s,"charge":%s,"ship":%s}`,
		inJSON(step("reserve", object{"order": key})),
		inJSON(step("charge", object{"reservation": "${steps.reserve.output?.body?.token}", "text": "for ${steps.reserve.output?.body?.token}!"})),
		inJSON(step("ship", object{"reservation": "${steps.reserve.output?.body?.token}", "charge": "${steps.charge.output?.body?.token}"}))))})
	if err != nil {
		panic(err)
	}
	return b
}

func inJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// I19, F149: a limit on orders, and one agent that serves orders and notes. Every call has the body that its
// definition makes of the outputs before it, an undo the output of its do, a retry the same body, and an edited step
// what the operator gave.
func TestServiceReceivesOutputsOfEarlierSteps(t *testing.T) {
	for name, store := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "perdure.db") },
		"postgres": func(t *testing.T) string { return pgtest.Start(t) },
	} {
		t.Run(name, func(t *testing.T) { playTill(t, store(t)) })
	}
}

func playTill(t *testing.T, store string) {
	s := openTill(t)
	url, _ := serve(t, "--store", store, "--migrate", "--agents", "http", "--allow-private-targets", "--slots", "http=100")
	c, err := client.New(url, client.Author("test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutLimit(t.Context(), "job:order", root.LimitSettings{Max: new(40)}); err != nil {
		t.Fatal(err)
	}
	const n = 50
	var keys []string
	for i := range n {
		key := fmt.Sprint("order-", i)
		if i%10 == 7 {
			key += "-edited"
		}
		keys = append(keys, key)
	}
	noting, enough := context.WithCancel(t.Context())
	var notes, all sync.WaitGroup
	for range 4 {
		notes.Go(func() {
			for noting.Err() == nil {
				if _, _, err := c.Submit(noting, s.note(), "application/json"); err != nil && noting.Err() == nil {
					t.Errorf("submit: %v", err)
				}
				time.Sleep(tillTime / 4)
			}
		})
	}
	for i, key := range keys {
		all.Go(func() { s.playOrder(t, c, key, i%5 == 0) })
		time.Sleep(tillTime / 2)
	}
	all.Wait()
	enough()
	notes.Wait()
	s.mu.Lock() // calls for notes may still arrive
	defer s.mu.Unlock()
	for i, key := range slices.Sorted(maps.Keys(s.wrong)) {
		if i < 5 {
			t.Logf("%s: %s", key, s.wrong[key])
		}
	}
	if len(s.wrong) > 0 {
		t.Errorf("%d of %d orders were given wrong values", len(s.wrong), n)
	}
	if got := s.calls[fmt.Sprint("order-5", "ship", false)]; len(s.wrong) == 0 && got < 2 {
		t.Errorf("order-5 was shipped in %d calls: there was no retry", got)
	}
}

// note is a job of the other type.
func (s *service) note() []byte {
	call := object{"method": "POST", "url": s.URL + "/?order=note&step=reserve", "body": object{"order": "note"}}
	return []byte(inJSON(object{"type": "note", "steps": object{"n": object{"agent": "http", "with": call}}}))
}

// playOrder submits an order, gives one that is parked another input, and undoes some when they are done.
func (s *service) playOrder(t *testing.T, c *client.Client, key string, undo bool) {
	if _, _, err := c.Submit(t.Context(), s.order(key), "application/json"); err != nil {
		t.Errorf("submit: %v", err)
	}
	rests := func() *root.JobView {
		j, err := c.Job(t.Context(), key, time.Minute)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			return &root.JobView{}
		}
		return j
	}
	act := func(a root.Act) {
		if _, err := c.Act(t.Context(), key, a); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	j := rests()
	if strings.HasSuffix(key, "-edited") && j.Phase == root.Parked {
		act(root.Act{Verb: root.VerbResume, Step: "ship", Input: editedCall(s, key)})
		j = rests()
	}
	if j.Phase != root.Settled || j.Current != root.Done {
		s.fail(key, fmt.Sprintf("it is %s and %s", j.Current, j.Phase))
		return
	}
	if undo {
		act(root.Act{Verb: root.VerbUndo})
		if j = rests(); j.Current != root.Undone {
			s.fail(key, fmt.Sprintf("it is %s and %s, and was undone", j.Current, j.Phase))
		}
	}
}

func editedCall(s *service, key string) json.RawMessage {
	return json.RawMessage(inJSON(object{"method": "POST", "url": fmt.Sprintf("%s/?order=%s&step=ship", s.URL, key), "body": json.RawMessage(edited)}))
}

func (s *service) fail(order, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrong[order] == "" {
		s.wrong[order] = what
	}
}
