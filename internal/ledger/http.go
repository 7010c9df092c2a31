package ledger

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func cmpPlace(a, b Place) int {
	return cmp.Or(strings.Compare(a.Job, b.Job), strings.Compare(a.Step, b.Step))
}

// ServeHTTP takes calls from the agent http: who calls is in its headers, the rest in the query:
//
//	job, step   where
//	before      steps, with commas between them
//	mood        what goes wrong with the first call: fail, hang (it acts, and does not answer), late (it acts
//	            when nobody listens any more); with each: refuse (until Kind), gate (waits for Open), dawdle (takes a while)
func (l *Ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	c := Call{Place: Place{q.Get("job"), q.Get("step")}, Undo: r.Header.Get("Perdure-Direction") == "undo",
		Key: r.Header.Get("Idempotency-Key"), DoKey: r.Header.Get("Perdure-Do-Key")}
	var err error
	if c.Run, err = strconv.ParseInt(r.Header.Get("Perdure-Run"), 10, 64); err != nil {
		http.Error(w, "Perdure-Run: "+err.Error(), http.StatusBadRequest)
		return
	}
	if before := q.Get("before"); before != "" {
		c.Before = strings.Split(before, ",")
	}
	mood := q.Get("mood")
	if c.Undo {
		mood = ""
	}
	if !l.humour(w, r, mood, c.Place) {
		return
	}
	switch l.Act(c) {
	case Overtaken:
		http.Error(w, "a later run was here", http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"step\":%q}\n", c.Step)
	}
}

// slow is how long dawdle takes, late how long late does, and hangs how long a call hangs at the most.
const (
	slow  = 50 * time.Millisecond
	late  = 4 * time.Second
	hangs = time.Minute
)

// humour is what comes before the act. False: there is none any more.
func (l *Ledger) humour(w http.ResponseWriter, r *http.Request, mood string, at Place) bool {
	l.mu.Lock()
	p := l.at(at)
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
		l.Act(callOf(r, at))
		pause(r, time.After(hangs))
		return false
	}
	return r.Context().Err() == nil || mood == "dawdle" // who does not listen any more may have acted all the same
}

func callOf(r *http.Request, at Place) Call {
	run, _ := strconv.ParseInt(r.Header.Get("Perdure-Run"), 10, 64)
	return Call{Place: at, Key: r.Header.Get("Idempotency-Key"), Run: run}
}

func pause[T any](r *http.Request, until <-chan T) {
	select {
	case <-until:
	case <-r.Context().Done():
	}
}
