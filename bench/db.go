package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // for looking into the peers' files
)

// pgSettings are the same for all. What is not named here is as PostgreSQL comes.
var pgSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=15min", "max_connections=300",
	"autovacuum=on", "autovacuum_naptime=10s", "jit=off",
}

// postgres is a server of this process's own.
type postgres struct {
	url     string // of the database postgres
	dir     string
	version string
	child   *child
	made    int
}

func startPostgres(ctx context.Context, parent string, more ...string) (*postgres, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "pg-")
	if err != nil {
		return nil, err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, err
		}
	}
	data, log := filepath.Join(dir, "data"), filepath.Join(parent, filepath.Base(dir)+".log")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--auth=trust", "--username=postgres",
		"--encoding=UTF8", "--locale=C", "--pgdata="+data)
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-D", data, "-p", strconv.Itoa(port), "-k", dir, "-c", "listen_addresses=127.0.0.1"}
	for _, s := range append(pgSettings, more...) {
		args = append(args, "-c", s)
	}
	// QUIT: the data is thrown away, nothing needs to be put in order.
	c, err := start(program{path: filepath.Join(bin, "postgres"), args: args, dir: dir, log: log, end: "QUIT", remove: dir, cred: cred})
	if err != nil {
		return nil, err
	}
	p := &postgres{url: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), dir: dir, child: c}
	err = await(ctx, 60*time.Second, func(ctx context.Context) error {
		return p.do(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "show server_version").Scan(&p.version)
		})
	})
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("postgres does not start: %w\n%s", err, c.tail())
	}
	return p, nil
}

func (p *postgres) stop() {
	if p != nil {
		p.child.stop()
		_ = os.RemoveAll(p.dir)
	}
}

func (p *postgres) do(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// fresh makes an empty database; drop removes it. Between two of them everything dirty is written out, so that no
// measurement pays for the pages of another.
func (p *postgres) fresh(ctx context.Context) (dbURL string, drop func(), err error) {
	p.made++
	name := fmt.Sprintf("bench%d", p.made)
	if err := p.do(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "create database "+name); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "checkpoint")
		return err
	}); err != nil {
		return "", nil, err
	}
	return strings.Replace(p.url, "/postgres?", "/"+name+"?", 1), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = p.do(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "drop database "+name+" with (force)")
			return err
		})
	}, nil
}

// pid is the postmaster's.
func (p *postgres) pid() int {
	b, err := os.ReadFile(filepath.Join(p.dir, "data", "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// postgresPrograms finds the newest directory that holds initdb and postgres.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
			return filepath.Dir(path), nil
		}
	}
	best, version := "", 0
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		if v, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir))); v > version {
			if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
				best, version = dir, v
			}
		}
	}
	if best == "" {
		return "", errors.New("no PostgreSQL on this machine: install the package postgresql")
	}
	return best, nil
}

// look is one connection beside the system's own, which looks at what it has stored.
type look struct {
	db *sql.DB       // SQLite
	pg *pgx.Conn     // PostgreSQL
	at chan struct{} // one at a time
}

func lookAtPostgres(ctx context.Context, dbURL string) (*look, error) {
	conn, err := pgx.Connect(ctx, dbURL)
	if err != nil {
		return nil, err
	}
	return &look{pg: conn, at: make(chan struct{}, 1)}, nil
}

func lookAtSQLite(path string) (*look, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &look{db: db, at: make(chan struct{}, 1)}, nil
}

// number is the answer to a query for one number.
func (l *look) number(ctx context.Context, query string) (n int64, err error) {
	l.at <- struct{}{}
	defer func() { <-l.at }()
	if l.pg != nil {
		err = l.pg.QueryRow(ctx, query).Scan(&n)
	} else {
		err = l.db.QueryRowContext(ctx, query).Scan(&n)
	}
	return n, err
}

// exec is for PostgreSQL alone.
func (l *look) exec(ctx context.Context, query string) error {
	l.at <- struct{}{}
	defer func() { <-l.at }()
	_, err := l.pg.Exec(ctx, query)
	return err
}

func (l *look) close() {
	if l == nil {
		return
	}
	if l.pg != nil {
		_ = l.pg.Close(context.Background())
	} else {
		l.db.Close()
	}
}
