package chaos

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// book is a server that records the calls that reach it.
type book struct {
	mu    sync.Mutex
	calls []string
}

func (b *book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	b.mu.Lock()
	b.calls = append(b.calls, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	b.mu.Unlock()
	w.Header().Set("X-Seen", "yes")
	_, _ = io.WriteString(w, `{"results":[{"accepted":true},{"accepted":false,"reason":"late"}]}`)
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls)
}

// Each fault affects all calls of an agent as its description says, until it is healed.
func TestEachFaultIsApplied(t *testing.T) {
	for name, c := range map[string]struct {
		m        Mischief
		arrives  int
		answered bool
	}{
		"nothing": {Mischief{}, 1, true},
		"lost":    {Mischief{Lose: 1}, 0, false},
		"cut":     {Mischief{Cut: 1}, 1, false},
		"doubled": {Mischief{Double: 1}, 2, true},
		"late":    {Mischief{Delay: 1000}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &book{}
			server := httptest.NewServer(b)
			defer server.Close()
			to, _ := url.Parse(server.URL)
			way := NewWay(to, http.DefaultTransport, c.m)
			front := httptest.NewServer(way)
			defer front.Close()
			post := func(path string) bool {
				resp, err := http.Post(front.URL+path, "application/json", strings.NewReader("what"))
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				return err == nil && strings.Contains(string(text), "late") && resp.Header.Get("X-Seen") == "yes"
			}
			for _, path := range []string{"/v1/reports", "/v1/heartbeats", "/v1/agents/a%2Fb/claim?x=1"} {
				before := b.count()
				if post(path) != c.answered || b.count()-before != c.arrives {
					t.Errorf("%s: %d arrived", path, b.count()-before)
				}
				if c.arrives > 0 && b.calls[len(b.calls)-1] != "POST "+path+" what" {
					t.Errorf("%s arrived as %q", path, b.calls[len(b.calls)-1])
				}
			}
			if !post("/v1/jobs") {
				t.Error("what is no agent's call went wrong")
			}
			want := Counts{Calls: 3}
			for n, share := range map[*int]float64{&want.Lost: c.m.Lose, &want.Cut: c.m.Cut, &want.Doubled: c.m.Double} {
				*n = 3 * int(share)
			}
			got := way.Counts()
			if got.Calls != want.Calls || got.Lost != want.Lost || got.Cut != want.Cut || got.Doubled != want.Doubled {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if refused := got.Refused["late"]; refused != min(c.arrives, 1) {
				t.Errorf("%d reports were seen refused", refused)
			}
			if way.Heal(); !post("/v1/reports") {
				t.Error("all is well, and it went wrong")
			}
		})
	}
}
