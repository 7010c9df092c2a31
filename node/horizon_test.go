package node_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/node"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log contains all of these.
func (l *lines) await(t *testing.T, what ...string) {
	t.Helper()
	missing := func(part string) bool { return !strings.Contains(l.String(), part) }
	for end := time.Now().Add(30 * time.Second); slices.ContainsFunc(what, missing); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not told: %q\n%s", what, l)
		}
	}
}

// gauge returns the value of a metric, as it is scraped.
func gauge(t *testing.T, n *node.Node, name string) float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	n.Metrics().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// F103: a transaction that stays open, and so blocks vacuum, is logged with its session. Its end is logged too.
func TestOldTransactionIsLogged(t *testing.T) {
	url := pgtest.Start(t)
	store := everystore.Postgres(t, url)
	var log lines
	n := start(t, store, node.Config{OldTransaction: 200 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = "report"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select count(*) from perdure.step"); err != nil {
		t.Fatal(err)
	}
	log.await(t, "long-running transaction blocks vacuum", "report")
	if age := gauge(t, n, "perdure_store_oldest_transaction_seconds"); age < 0.2 {
		t.Errorf("the metric says %v seconds", age)
	}
	logged := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "long-running transaction blocks") && strings.Contains(line, "report") { // and not the line about a transaction of a slow node
			logged++
		}
	}
	if logged != 1 {
		t.Errorf("it is told %d times", logged)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.await(t, "long-running transaction has ended")
}
