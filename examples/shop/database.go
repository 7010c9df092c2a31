package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "modernc.org/sqlite"
)

// Database is the shop's own database: requests of customers, orders, and the jobs that are needed for them. Several
// processes may have it open.
type Database struct{ db *sql.DB }

const schema = `
create table if not exists queue (        -- what customers sent, in the order in which it came
  place integer primary key autoincrement,
  id    text not null unique,
  body  text not null
);
create table if not exists orders (       -- what the shop has taken on
  id   text primary key,
  body text not null
);
create table if not exists outbox (       -- the job that each order needs
  key        text primary key,            -- of the job: the same key is the same job, however often it is sent
  definition text not null,
  job        text,                        -- its id, once a node has acknowledged it
  refused    text,                        -- why no node will ever take it
  looks      integer not null default 0,  -- how often we have asked how it stands
  ended      text                         -- how it ended: what the customer is shown
);
create index if not exists unsent on outbox (key) where job is null and refused is null;
create index if not exists open on outbox (looks, key) where job is not null and ended is null;`

// OpenDatabase opens or creates the database.
func OpenDatabase(path string) (*Database, error) {
	// Writers wait for each other from the start of a transaction, and COMMIT waits for the disk.
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), db.Close())
	}
	return &Database{db}, nil
}

// Close closes the database.
func (d *Database) Close() error { return d.db.Close() }

// inTx runs fn in one transaction.
func (d *Database) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
