package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store/postgres"
	"github.com/perdure/perdure/store/storetest"
)

func TestMail(t *testing.T) {
	storetest.Mail(t, func(t *testing.T) (kernel.Store, func(*kernel.Plan) (perdure.Submitted, error)) {
		url := fresh(t)
		s := open(t, url)
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return s, func(plan *kernel.Plan) (submission perdure.Submitted, err error) {
			err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				submission, err = postgres.SubmitTx(t.Context(), tx, plan)
				return err
			})
			return submission, err
		}
	})
}

func keyedPlan(key string, hash byte) *kernel.Plan {
	return &kernel.Plan{Shape: &kernel.Shape{}, Hash: [32]byte{hash}, Definition: &kernel.Definition{Type: "t", Key: key}}
}

// Without the schema, SubmitTx returns an error that says what to do.
func TestSubmitTxWithoutSchemaIsRefused(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.SubmitTx(t.Context(), tx, keyedPlan("k", 1)); perdure.CodeOf(err) != perdure.CodeSchema {
		t.Error(err)
	}
}

// Two nodes that take mail at the same time take each mail once (F018).
func TestTakeMailSkipsLockedMail(t *testing.T) {
	url := fresh(t)
	one, two := open(t, url), open(t, url)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var ids []kernel.MailID
	for range 20 {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		submission, err := postgres.SubmitTx(t.Context(), tx, keyedPlan("", 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, kernel.SubmissionOf(submission.ID))
	}
	err = one.Update(t.Context(), func(tx kernel.Tx) error {
		taken, err := tx.TakeMail(ids[:12])
		if err != nil || len(taken) != 12 {
			t.Errorf("the first transaction takes %d mails, %v", len(taken), err)
		}
		return two.Update(t.Context(), func(tx kernel.Tx) error {
			others, err := tx.TakeMail(ids)
			if err != nil || len(others) != 8 {
				t.Errorf("the second transaction takes %d mails, %v", len(others), err)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// If the snapshot of a transaction is older than the first submission of a key, a second submission is not accepted
// unseen, even after the first was applied. The database returns a serialization failure, and the caller must retry
// (F101).
func TestSubmitTxInAnOldSnapshotMustBeRetried(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	old, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.Background())
	if _, err := old.Exec(t.Context(), "select 1 from perdure.clock"); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	var submission perdure.Submitted
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		submission, err = postgres.SubmitTx(t.Context(), tx, keyedPlan("k", 1))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(tx kernel.Tx) error {
		if _, err := tx.TakeMail([]kernel.MailID{kernel.SubmissionOf(submission.ID)}); err != nil {
			return err
		}
		return tx.CloseMail([]kernel.ClosedMail{{MailID: kernel.SubmissionOf(submission.ID), Job: submission.ID}})
	}); err != nil {
		t.Fatal(err)
	}
	var pe *pgconn.PgError
	if again, err := postgres.SubmitTx(t.Context(), old, keyedPlan("k", 1)); !errors.As(err, &pe) || pe.Code != "40001" {
		t.Errorf("a second submission: %+v, %v; want error 40001", again, err)
	}
}

// A transaction that submits a key waits for another one that has submitted it. Then it returns that job, or creates one
// if the other was rolled back (I2).
func TestSubmitTxWaitsForTheKey(t *testing.T) {
	url := fresh(t)
	open(t, url)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, commit := range []bool{false, true} {
		first, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		submission, err := postgres.SubmitTx(t.Context(), first, keyedPlan("k", 1))
		if err != nil || !submission.Created {
			t.Fatal(submission, err)
		}
		var wg sync.WaitGroup
		var second perdure.Submitted
		wg.Go(func() {
			tx, err := pool.Begin(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback(context.Background())
			if second, err = postgres.SubmitTx(context.Background(), tx, keyedPlan("k", 1)); err != nil {
				t.Error(err)
			}
		})
		for waits := false; !waits; { // until it waits
			if err := pool.QueryRow(t.Context(), "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')").Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		if commit {
			err = first.Commit(t.Context())
		} else {
			err = first.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if second.Created == commit || commit && second.ID != submission.ID {
			t.Errorf("committed %v: %+v, the first was %s", commit, second, submission.ID)
		}
	}
}

// A nil transaction or plan is an error, not a crash.
func TestMisuseOfSubmitTxIsRefused(t *testing.T) {
	_, pgxErr := postgres.SubmitTx(t.Context(), nil, keyedPlan("k", 1))
	_, sqlErr := postgres.SubmitSQLTx(t.Context(), nil, keyedPlan("k", 1))
	for _, err := range []error{pgxErr, sqlErr} {
		if !errors.Is(err, kernel.ErrNoTx) {
			t.Error(err)
		}
	}
	var tx struct{ pgx.Tx }
	if _, err := postgres.SubmitTx(t.Context(), tx, nil); perdure.CodeOf(err) != perdure.CodeInvalid {
		t.Error(err)
	}
}

// Mail of a kind that only newer programs know does not block other mail.
func TestUnknownMailDoesNotBlockOtherMail(t *testing.T) {
	url := fresh(t)
	s := open(t, url)
	ids := []perdure.JobID{{1}, {2}}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, id := range ids {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "insert into perdure.mail (recipient, id, kind, body, posted_at) values ($1, 'submit', $2, '{}', now())",
				[16]byte(id), map[byte]string{1: "telegram", 2: "submit"}[id[0]])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mail, err := s.Mail(t.Context(), 1, 1<<20)
	if err != nil || len(mail) != 1 || mail[0].To != ids[1] {
		t.Errorf("waiting mail: %+v, %v; want that of job %v", mail, err, ids[1])
	}
}
