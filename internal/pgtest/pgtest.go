// Package pgtest gives tests a PostgreSQL server of their own.
//
// The first Start of a test process starts a temporary server, or uses the one that PERDURE_TEST_POSTGRES names. Each
// call creates a fresh database on it. If there is neither a server nor its programs, the test is skipped, unless
// PERDURE_TEST_REQUIRE_POSTGRES=1 (CI).
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	envServer  = "PERDURE_TEST_POSTGRES"
	envRequire = "PERDURE_TEST_REQUIRE_POSTGRES"
)

// shared is the server of this process. It ends with the process, because it holds the pipe to the server's keeper.
var shared = sync.OnceValues(func() (*server, error) {
	if given := os.Getenv(envServer); given != "" {
		return &server{url: given}, nil
	}
	return newServer(false, nil)
})

// Start returns the URL of a fresh, empty database, which is dropped when the test ends.
func Start(t testing.TB) string {
	t.Helper()
	return create(t, "template0 encoding 'UTF8'")
}

// template is a database of the shared server that has been prepared.
var template struct {
	sync.Mutex
	name string
}

// Prepared returns the URL of a fresh database that prepare has filled. On the temporary server, prepare is called once, and
// the databases are copies. All calls of a process must pass the same function.
func Prepared(t testing.TB, prepare func(ctx context.Context, url string) error) string {
	t.Helper()
	if os.Getenv(envServer) != "" { // a template would stay there
		url := Start(t)
		if err := prepare(t.Context(), url); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		return url
	}
	template.Lock()
	defer template.Unlock()
	if template.name == "" {
		s, err := shared()
		if err != nil {
			missing(t, err)
		}
		name := newName()
		err = admin(s.url, "create database "+name+" template template0 encoding 'UTF8'")
		if err == nil {
			err = prepare(t.Context(), withDatabase(s.url, name))
		}
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		template.name = name
	}
	return create(t, template.name)
}

func newName() string { return "perdure_" + strings.ToLower(rand.Text()[:12]) }

// create creates a database from a template, until the test ends.
func create(t testing.TB, template string) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		missing(t, err)
	}
	server, name := s.url, newName()
	if err := admin(server, "create database "+name+" template "+template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := admin(server, "drop database "+name+" with (force)"); err != nil {
			t.Logf("pgtest: %v", err)
		}
	})
	return withDatabase(server, name)
}

// Temporary starts a server for a program that is not a test. stop ends it, and so does the end of the program.
func Temporary() (url string, stop func(), err error) {
	s, err := shared()
	if err != nil {
		return "", nil, err
	}
	return s.url, func() {
		if s.watch != nil {
			s.remove()
		}
	}, nil
}

// missing ends a test that has no server.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(envRequire) == "1" {
		t.Fatalf("pgtest: %s=1, and %v", envRequire, err)
	}
	t.Skipf("pgtest: %v (set %s to the URL of a server)", err, envServer)
}

func admin(server, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	u.Path = "/" + name
	return u.String()
}
