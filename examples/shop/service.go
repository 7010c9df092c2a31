package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

// Service is one of the shop's services: stock, payment or shipping. They differ only in what they do with an order.
//
//	POST   /{things}                 {"order": "order-0001"}, with Idempotency-Key and Perdure-Run
//	DELETE /{things}/by-key/{key}    undoes what was done under that key
type Service struct {
	Trade
	Book     *Book
	Mischief Mischief
	Orders   OrderSource
}

// OrderSource returns the details of an order.
type OrderSource interface {
	Order(ctx context.Context, id string) (Order, error)
}

// Handler serves the API.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /"+s.Things, s.create)
	mux.HandleFunc("DELETE /"+s.Things+"/by-key/{key...}", s.undo)
	return mux
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Order string `json:"order"`
	}
	a := Ask{Direction: "do", Key: r.Header.Get("Idempotency-Key"), Run: runOf(r)}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Order == "" || a.Key == "" || a.Run == 0 {
		say(w, http.StatusBadRequest, "an order, an Idempotency-Key and a Perdure-Run are needed")
		return
	}
	a.Order = body.Order
	s.misbehave(w, r, a, func(w http.ResponseWriter) {
		// The caller may be gone by now. A service that has begun continues.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*time.Second)
		defer cancel()
		order, err := s.Orders.Order(ctx, a.Order)
		if err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		s.answer(w, s.Book.Do(a, func() (receipt, refusal string) {
			if s.Mischief.Refuses(order.ID) {
				return "", s.Refusal
			}
			return s.Act(order), ""
		}))
	})
}

func (s *Service) undo(w http.ResponseWriter, r *http.Request) {
	a := Ask{Direction: "undo", Key: r.PathValue("key"), Order: r.URL.Query().Get("order"), Run: runOf(r)}
	if a.Order == "" || a.Run == 0 {
		say(w, http.StatusBadRequest, "?order= and a Perdure-Run are needed")
		return
	}
	s.misbehave(w, r, a, func(w http.ResponseWriter) { s.answer(w, s.Book.Undo(a)) })
}

// answer translates an Answer to HTTP.
func (s *Service) answer(w http.ResponseWriter, a Answer) {
	if a.Again {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	switch a.Kind {
	case Effect, Undone:
		say(w, http.StatusOK, a.Receipt)
	case Tombstone:
		say(w, http.StatusNotFound, a.Receipt) // this is the purpose of an undo: there is nothing
	case Refused:
		say(w, http.StatusUnprocessableEntity, a.Receipt)
	default:
		say(w, http.StatusConflict, a.Receipt)
	}
}

// misbehave does the work of a request with the error that is its fate.
func (s *Service) misbehave(w http.ResponseWriter, r *http.Request, a Ask, work func(http.ResponseWriter)) {
	var fate Fate
	s.Book.Asked(a, func(nth int) string {
		fate = s.Mischief.Fate(a.Order, a.Direction, nth)
		return string(fate)
	})
	switch fate { // before the work
	case ErrorBefore:
		say(w, http.StatusServiceUnavailable, "try again later")
		return
	case DropBefore:
		panic(http.ErrAbortHandler)
	case DieBefore:
		s.die(fate)
	case SlowBefore:
		time.Sleep(pastUltimatum(r))
	}
	if fate == ErrorAfter {
		work(discard{http.Header{}})
		say(w, http.StatusInternalServerError, "something went wrong")
		return
	}
	work(w) // an answer leaves this process only when the handler returns
	switch fate {
	case DropAfter:
		panic(http.ErrAbortHandler)
	case DieAfter:
		s.die(fate)
	case SlowAfter:
		time.Sleep(pastUltimatum(r))
	}
}

// die is a crash: everything else that this process was doing ends with it.
func (s *Service) die(how Fate) {
	log.Printf("%s %s", s.Name, how)
	os.Exit(3)
}

// pastUltimatum returns a time after the deadline of the request.
func pastUltimatum(r *http.Request) time.Duration {
	remaining, err := strconv.Atoi(r.Header.Get("Perdure-Remaining-Ms"))
	if err != nil {
		remaining = 2000
	}
	return time.Duration(remaining)*time.Millisecond + 700*time.Millisecond
}

func runOf(r *http.Request) int64 {
	run, _ := strconv.ParseInt(r.Header.Get("Perdure-Run"), 10, 64)
	return run
}

// say answers with a small JSON body.
func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
}

// discard is an http.ResponseWriter whose answer goes nowhere.
type discard struct{ header http.Header }

func (n discard) Header() http.Header       { return n.header }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
