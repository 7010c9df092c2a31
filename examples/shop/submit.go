package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// Submission takes orders from the queue, makes sure that each becomes a job, and records how it ends.
//
// It works in three stages, because the shop's database and the node's store are two databases:
//
//	take   in one transaction: the order leaves the queue, becomes a row of orders, and the job that it
//	       needs becomes a row of the outbox
//	send   submits the rows of the outbox under the order's key until a node acknowledges them
//	close  queries the state of the jobs, and records how each has ended
//
// After a crash at any moment it continues where it was. Sending twice is harmless, because the same key is the same
// job. If shop and node share a PostgreSQL database, or one process, SubmitTx makes one stage of take and send.
type Submission struct {
	DB       *Database
	Jobs     jobs
	Template string // order.yaml, with the addresses of the services
	Log      *log.Logger
}

// jobs is the part of perdure.Service that this process needs.
type jobs interface {
	Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error)
	Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error)
}

// templateOrder is replaced in order.yaml by the id of an order.
const templateOrder = "order-0001"

const (
	atOnce = 50 // orders taken, jobs sent, or jobs queried at once
	pause  = 200 * time.Millisecond
)

// Run continues until ctx ends.
func (s *Submission) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, stroke := range []func(context.Context) (int, error){s.take, s.send, s.close} {
			if _, err := stroke(ctx); err != nil && ctx.Err() == nil {
				s.Log.Printf("%v; again soon", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// take moves orders from the queue to the outbox, in one transaction.
func (s *Submission) take(ctx context.Context) (taken int, err error) {
	err = s.DB.inTx(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `delete from queue where place in (select place from queue order by place limit ?)
			returning id, body`, atOnce)
		if err != nil {
			return err
		}
		defer rows.Close()
		var orders []Order
		for rows.Next() {
			var id, body string
			var o Order
			if err := rows.Scan(&id, &body); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(body), &o); err != nil {
				return fmt.Errorf("order %s: %w", id, err)
			}
			orders = append(orders, o)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, o := range orders {
			body, err := json.Marshal(o)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `insert into orders (id, body) values (?, ?)`, o.ID, body); err != nil {
				return err
			}
			definition := strings.ReplaceAll(s.Template, templateOrder, o.ID)
			if _, err := tx.ExecContext(ctx, `insert into outbox (key, definition) values (?, ?)`, o.ID, definition); err != nil {
				return err
			}
		}
		taken = len(orders)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("taking orders: %w", err)
	}
	return taken, nil
}

// send submits rows of the outbox that no node has acknowledged.
func (s *Submission) send(ctx context.Context) (sent int, err error) {
	unsent, err := s.DB.list(ctx, fmt.Sprintf(`select key from outbox where job is null and refused is null order by key limit %d`, atOnce))
	if err != nil {
		return 0, err
	}
	for _, key := range unsent {
		var definition string
		if err := s.DB.db.QueryRowContext(ctx, `select definition from outbox where key = ?`, key).Scan(&definition); err != nil {
			return sent, err
		}
		job, _, err := s.Jobs.Submit(ctx, []byte(definition), "application/yaml")
		if refusedForGood(err) {
			// An operator has to look at this one; the others continue.
			s.Log.Printf("submitting %s: refused for good: %v", key, err)
			if _, err := s.DB.db.ExecContext(ctx, `update outbox set refused = ? where key = ?`, err.Error(), key); err != nil {
				return sent, err
			}
			continue
		}
		if err != nil {
			// It may be stored, and only the answer lost. It stays in the outbox: a second submission under the same key
			// finds out.
			return sent, fmt.Errorf("submitting %s: %w", key, err)
		}
		if _, err := s.DB.db.ExecContext(ctx, `update outbox set job = ? where key = ?`, job.ID.String(), key); err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

// close records how jobs have ended. Jobs that were queried least often come first, so that one that takes long does not
// delay the others.
func (s *Submission) close(ctx context.Context) (closed int, err error) {
	open, err := s.DB.list(ctx, fmt.Sprintf(`select key from outbox where job is not null and ended is null order by looks, key limit %d`, atOnce))
	if err != nil {
		return 0, err
	}
	for _, key := range open {
		job, err := s.Jobs.Job(ctx, key, 0)
		if err != nil {
			return closed, fmt.Errorf("asking for %s: %w", key, err)
		}
		var ended *string
		if job.Phase == perdure.Settled {
			state := job.Current.String()
			ended = &state
			closed++
		}
		if _, err := s.DB.db.ExecContext(ctx, `update outbox set looks = looks + 1, ended = ? where key = ?`, ended, key); err != nil {
			return closed, err
		}
	}
	return closed, nil
}

// refusedForGood reports whether a definition will never be accepted, as opposed to a node that cannot be reached now.
func refusedForGood(err error) bool {
	switch perdure.CodeOf(err) {
	case perdure.CodeInvalid, perdure.CodeMalformed, perdure.CodeConflict, perdure.CodeTooLarge, perdure.CodeForbidden:
		return true
	}
	return false
}
