package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func cmpPlace(a, b Place) int {
	return cmp.Or(strings.Compare(a.Job, b.Job), strings.Compare(a.Step, b.Step))
}

// ServeHTTP accepts calls from the agent http: the run is in the headers, the values are in the body, and the rest is in
// the query:
//
//	job, step   where
//	before      steps, separated by commas
//	mood        what goes wrong with the first call: fail, hang (it acts, and does not answer), late (it acts
//	            after the caller is gone); with each call: refuse (until Kind), gate (waits for Open), dawdle (takes a while)
func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := callOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	mood := r.URL.Query().Get("mood")
	if c.Undo {
		mood = ""
	}
	if !l.humour(w, r, mood, c) {
		return
	}
	switch l.Act(c) {
	case Overtaken:
		http.Error(w, "a later run was here", http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"step\":%q,\"token\":%q}\n", c.Step, Token(c.Key))
	}
}

const maxBody = 64 << 10

// Values returns the body of a call, as expressions: the tokens of the steps before, or of the do run that is undone.
func Values(undo bool, before ...string) map[string]any {
	from := []string{}
	for _, step := range before {
		from = append(from, "${steps."+step+".output?.body?.token}")
	}
	if undo {
		from = []string{"${output?.body?.token}"}
	}
	return map[string]any{"from": from}
}

func callOf(r *http.Request) (Call, error) {
	q := r.URL.Query()
	c := Call{Place: Place{q.Get("job"), q.Get("step")}, Undo: r.Header.Get("Perdure-Direction") == "undo",
		Key: r.Header.Get("Idempotency-Key"), DoKey: r.Header.Get("Perdure-Do-Key")}
	if before := q.Get("before"); before != "" {
		c.Before = strings.Split(before, ",")
	}
	var err error
	if c.Run, err = strconv.ParseInt(r.Header.Get("Perdure-Run"), 10, 64); err != nil {
		return c, fmt.Errorf("Perdure-Run: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil || len(body) == 0 {
		return c, err
	}
	var values struct{ From []string } // null becomes ""
	c.Body = string(body)
	err = json.Unmarshal(body, &values)
	c.From = values.From
	return c, err
}

// slow is how long dawdle takes, late how long late takes, and hangs how long a call hangs at most.
const (
	slow  = 50 * time.Millisecond
	late  = 4 * time.Second
	hangs = time.Minute
)

// humour does what the mood demands before the act. It returns false if the call ends with that.
func (l *Ledger) humour(w http.ResponseWriter, r *http.Request, mood string, c Call) bool {
	l.mu.Lock()
	p := l.at(c.Place)
	p.calls++
	first, kind := p.calls == 1, l.kind
	l.mu.Unlock()
	switch {
	case mood == "fail" && first:
		http.Error(w, "not now", http.StatusInternalServerError)
		return false
	case mood == "refuse" && !kind:
		http.Error(w, "not like this", http.StatusUnprocessableEntity)
		return false
	case mood == "dawdle":
		pause(r, time.After(slow))
	case mood == "gate":
		pause(r, l.opened)
	case mood == "late" && first:
		time.Sleep(late)
		return true
	case mood == "hang" && first:
		l.Act(c)
		pause(r, time.After(hangs))
		return false
	}
	return r.Context().Err() == nil || mood == "dawdle" // a caller that is gone does not prevent the act
}

func pause[T any](r *http.Request, until <-chan T) {
	select {
	case <-until:
	case <-r.Context().Done():
	}
}
