package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

type fakeOrders struct{ err error }

func (f fakeOrders) Order(_ context.Context, id string) (Order, error) {
	return Order{ID: id, SKU: "assam", Quantity: 2}, f.err
}

func newTestService(t *testing.T, orders OrderSource, m Mischief) (*httptest.Server, string) {
	path := filepath.Join(t.TempDir(), "stock.jsonl")
	book, err := OpenBook(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Trade: stock, Book: book, Mischief: m, Orders: orders}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() { server.Close(); book.Close() })
	return server, path
}

// request sends what the http agent sends. Key and run may be missing.
func request(t *testing.T, method, url, body, key, run string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if run != "" {
		req.Header.Set("Perdure-Run", run)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Idempotency-Replayed")
}

func TestServiceOverHTTP(t *testing.T) {
	server, path := newTestService(t, fakeOrders{}, Mischief{Off: true})
	create, byKey := server.URL+"/reservations", server.URL+"/reservations/by-key/"
	const body, key = `{"order": "order-0001"}`, "job_1/reserve/1"
	for _, c := range []struct {
		what, method, url, body, key, run string
		status                            int
		again                             string
	}{
		{"no key", "POST", create, body, "", "1", 400, ""},
		{"no run", "POST", create, body, key, "", 400, ""},
		{"no order", "POST", create, `{}`, key, "1", 400, ""},
		{"the first", "POST", create, body, key, "1", 200, ""},
		{"the same again", "POST", create, body, key, "2", 200, "true"},
		{"an older one", "POST", create, body, key, "1", 409, ""},
		{"undo", "DELETE", byKey + key + "?order=order-0001", "", "job_1/reserve/2", "3", 200, ""},
		{"undo again", "DELETE", byKey + key + "?order=order-0001", "", "job_1/reserve/2", "4", 200, "true"},
		{"do after undo", "POST", create, body, key, "5", 409, ""},
		{"undo of nothing", "DELETE", byKey + "job_2/reserve/1?order=order-0002", "", "job_2/reserve/2", "2", 404, ""},
		{"escaped", "DELETE", byKey + "job_2%2Freserve%2F1?order=order-0002", "", "job_2/reserve/2", "2", 404, "true"},
	} {
		status, again := request(t, c.method, c.url, c.body, c.key, c.run)
		if status != c.status || again != c.again {
			t.Errorf("%s: %d, again %q; want %d, %q", c.what, status, again, c.status, c.again)
		}
	}
	kinds := map[Kind]int{}
	if err := ReadLedger(path, func(e Entry) { kinds[e.Kind]++ }); err != nil {
		t.Fatal(err)
	}
	if kinds[Effect] != 1 || kinds[Undone] != 1 || kinds[Tombstone] != 1 || kinds[TooLate] != 2 || kinds[Asked] != 8 {
		t.Errorf("ledger: %v", kinds)
	}
}

func TestServiceWithoutItsOrders(t *testing.T) {
	server, path := newTestService(t, fakeOrders{errors.New("away")}, Mischief{Off: true})
	if status, _ := request(t, "POST", server.URL+"/reservations", `{"order": "order-0001"}`, "k", "1"); status != 503 {
		t.Errorf("status %d", status)
	}
	_ = ReadLedger(path, func(e Entry) {
		if e.Kind != Asked {
			t.Errorf("%s was written", e.Kind)
		}
	})
}

func TestMischiefIsTheSeeds(t *testing.T) {
	m, same, other := Mischief{Service: "stock", Seed: 7}, Mischief{Service: "stock", Seed: 7}, Mischief{Service: "stock", Seed: 8}
	fates, differ := map[Fate]int{}, 0
	for _, o := range makeOrders(2000, 1) {
		for _, direction := range []string{"do", "undo"} {
			f := m.Fate(o.ID, direction, 1)
			fates[f]++
			if f != same.Fate(o.ID, direction, 1) {
				t.Fatal("the same seed, another fate")
			}
			if f != other.Fate(o.ID, direction, 1) {
				differ++
			}
		}
		if f := m.Fate(o.ID, "undo", mischiefTries+1); f != Fine {
			t.Fatalf("%s: an undo that never succeeds: %s", o.ID, f)
		}
	}
	for _, c := range chances {
		if fates[c.fate] == 0 {
			t.Errorf("%s never happens", c.fate)
		}
	}
	if fates[Fine] < 2000 || differ == 0 {
		t.Errorf("fates: %v, %d differ", fates, differ)
	}
}
