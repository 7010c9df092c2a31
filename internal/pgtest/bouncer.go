package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const envRequireBouncer = "PERDURE_TEST_REQUIRE_PGBOUNCER"

const bouncerConfig = `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s/users
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
server_lifetime = 5
ignore_startup_parameters = extra_float_digits
`

// Bouncer puts a PgBouncer in transaction mode in front of the server at url, and returns the URL of the same database
// through it. Prepared statements are off, because PgBouncer supports them only since version 1.21. Without PgBouncer
// the test is skipped, unless PERDURE_TEST_REQUIRE_PGBOUNCER=1.
func Bouncer(t testing.TB, direct string) string {
	t.Helper()
	program, err := bouncerProgram()
	if err != nil {
		if os.Getenv(envRequireBouncer) == "1" {
			t.Fatalf("pgtest: %s=1, and %v", envRequireBouncer, err)
		}
		t.Skipf("pgtest: %v", err)
	}
	through, err := startBouncer(t, program, direct)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return through
}

// SameDatabase returns the URL of the database of direct on the server of through.
func SameDatabase(t testing.TB, through, direct string) string {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return withDatabase(through, strings.TrimPrefix(u.Path, "/"))
}

func bouncerProgram() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	if path := "/usr/sbin/pgbouncer"; executable(path) {
		return path, nil
	}
	return "", fmt.Errorf("no PgBouncer on this machine")
}

func startBouncer(t testing.TB, program, direct string) (string, error) {
	u, err := url.Parse(direct)
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	cred, err := unprivileged() // PgBouncer, too, refuses to run as root
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "perdure-bouncer-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(bouncerConfig, u.Hostname(), u.Port(), port, dir)
	for path, text := range map[string]string{config: text, filepath.Join(dir, "users"): fmt.Sprintf("%q %q\n", u.User.Username(), "")} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command(program, config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred, Setpgid: true}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	query := u.Query()
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	if err := reachable(u.String()); err != nil {
		text, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("pgbouncer does not answer: %w\n%s", err, text)
	}
	return u.String(), nil
}

func reachable(url string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, url); err == nil {
			return conn.Close(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
