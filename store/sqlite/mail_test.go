package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/store/storetest"
)

// poster is a store whose file a caller shares.
type poster struct {
	*Store
	db *sql.DB
}

func newPoster(t *testing.T, opts ...Option) *poster {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perdure.db")
	s := open(t, path, opts...)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &poster{s, db}
}

func (p *poster) commit(submit func(*sql.Tx) (perdure.Submitted, error)) (perdure.Submitted, error) {
	tx, err := p.db.Begin()
	if err != nil {
		return perdure.Submitted{}, err
	}
	defer tx.Rollback()
	submission, err := submit(tx)
	if err == nil {
		err = tx.Commit()
	}
	return submission, err
}

func (p *poster) Post(ctx context.Context, id perdure.JobID, plan *kernel.Plan) (perdure.Submitted, error) {
	m, err := kernel.Post(id, plan)
	if err != nil {
		return perdure.Submitted{}, err
	}
	return p.commit(func(tx *sql.Tx) (perdure.Submitted, error) { return post(ctx, tx, m) })
}

func TestMail(t *testing.T) {
	storetest.Mail(t, func(t *testing.T) (kernel.Store, func(*kernel.Plan) (perdure.Submitted, error)) {
		p := newPoster(t)
		return p, func(plan *kernel.Plan) (perdure.Submitted, error) {
			return p.commit(func(tx *sql.Tx) (perdure.Submitted, error) { return SubmitTx(t.Context(), tx, plan) })
		}
	})
}

// SubmitTx returns an error that says what to do if Perdure has never opened the file, or if there is no transaction or
// no plan.
func TestMisuseOfSubmitTxIsRefused(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	plan, err := definition.FromDefinition(perdure.Define("t").Key("k").Step("s", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SubmitTx(t.Context(), tx, plan); perdure.CodeOf(err) != perdure.CodeSchema || !strings.Contains(err.Error(), "with sqlite.Open first") {
		t.Errorf("no tables: %v", err)
	}
	if _, err := SubmitTx(t.Context(), nil, plan); !errors.Is(err, kernel.ErrNoTx) {
		t.Errorf("no transaction: %v", err)
	}
	if _, err := SubmitTx(t.Context(), tx, nil); perdure.CodeOf(err) != perdure.CodeInvalid || !strings.Contains(err.Error(), "there is no plan") {
		t.Errorf("no plan: %v", err)
	}
}

// Mail of a kind that only newer programs know does not block other mail.
func TestUnknownMailDoesNotBlockOtherMail(t *testing.T) {
	p := newPoster(t)
	plan := &kernel.Plan{Shape: &kernel.Shape{}, Definition: &kernel.Definition{Type: "t"}}
	ids := []perdure.JobID{{1}, {2}}
	for _, id := range ids {
		if _, err := p.Post(t.Context(), id, plan); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.db.Exec("UPDATE perdure_mail SET kind = 'telegram' WHERE recipient = ?", ids[0][:]); err != nil {
		t.Fatal(err)
	}
	mail, err := p.Mail(t.Context(), 1, 1<<20)
	if err != nil || len(mail) != 1 || mail[0].To != ids[1] {
		t.Errorf("waiting mail: %+v, %v; want that of job %v", mail, err, ids[1])
	}
}
