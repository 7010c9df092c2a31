package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Inbox is a store into which others write submissions, in transactions of their own: what they wrote
// lies there until a node takes it, and makes a job of it by the rules. It is there if, and only if, the
// transaction was committed.
type Inbox interface {
	// Posted are submissions that lie there, oldest first: at most max of them, and no more after those
	// read have maxBytes.
	Posted(ctx context.Context, max, maxBytes int) ([]Posted, error)
	// Submission is what became of a submission that was posted; nil of one that was not, or is forgotten.
	Submission(context.Context, perdure.JobID) (*Submission, error)
	// Mail gives a token when something may have been posted. A token may be lost; one may come of nothing.
	Mail() <-chan struct{}
	// ForgetPosted deletes submissions that were closed before these times, at most max.
	ForgetPosted(ctx context.Context, taken, refused time.Time, max int) (int, error)
}

// InboxTx is the part of a store's Tx that an Inbox has.
type InboxTx interface {
	// TakePosted locks those that still lie there, and leaves out what another transaction has locked.
	TakePosted([]perdure.JobID) ([]perdure.JobID, error)
	// ClosePosted writes what became of submissions that this transaction took.
	ClosePosted([]ClosedPost) error
}

// Posted is a submission that lies in an inbox.
type Posted struct {
	ID   perdure.JobID // the job's, if one is made of it
	Key  string        // the job's; empty: none. It is not in Body, and is no template
	Hash [32]byte      // the definition's fingerprint; zero: not known, it came by SQL alone
	Body []byte        // the definition, in JSON
}

// Post makes a submission of a plan.
func Post(id perdure.JobID, plan *Plan) (Posted, error) {
	if err := plan.there(); err != nil {
		return Posted{}, err
	}
	d := *plan.Definition
	d.Key = ""
	body, err := json.Marshal(&d)
	return Posted{ID: id, Key: plan.Definition.Key, Hash: plan.Hash, Body: body}, err
}

// CheckPlans refuses plans of which one is nil: what came instead of it was an error, that nobody has looked at.
func CheckPlans(plans ...*Plan) error {
	for _, p := range plans {
		if err := p.there(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) there() error {
	if p == nil || p.Definition == nil {
		return perdure.Refuse(perdure.CodeInvalid, "there is no plan: the definition was refused, as its error says")
	}
	return nil
}

// ErrNoTx is what those are told who submit, or use package guard, in a transaction that is nil.
var ErrNoTx = perdure.Refuse(perdure.CodeInvalid, "the transaction is nil: begin one first")

// ClosedPost is what became of a submission: the job that was made of it, or has its key and is the same;
// or why there is none.
type ClosedPost struct {
	ID      perdure.JobID
	Job     perdure.JobID   // zero: it was refused
	Refusal json.RawMessage // see RefusalJSON
}

// Submission is one that was posted, as those see it who wait for it.
type Submission struct {
	ID       perdure.JobID
	Job      perdure.JobID // zero: not taken, or refused
	Refusal  json.RawMessage
	PostedAt time.Time
	ClosedAt time.Time // zero: it still lies in the inbox
}

// refusal is how a refusal is kept: {"code","message","hint"?,"errors"?}.
type refusal struct {
	Code    perdure.Code         `json:"code"`
	Message string               `json:"message"`
	Hint    string               `json:"hint,omitempty"`
	Errors  []perdure.FieldError `json:"errors,omitempty"`
}

// RefusalJSON is an error as a closed submission keeps it.
func RefusalJSON(err error) json.RawMessage {
	r := refusal{Code: perdure.CodeInvalid, Message: err.Error()}
	if e := (*perdure.Error)(nil); errors.As(err, &e) {
		r = refusal{e.Code, e.Message, e.Hint, e.Fields}
	}
	r.Message = plain.Clip(plain.Text(r.Message), perdure.MaxReasonBytes)
	b, err := json.Marshal(&r)
	if err != nil { // of texts alone: cannot be
		return json.RawMessage(`{"code":"invalid","message":"refused"}`)
	}
	return b
}

// Refused is why a submission was refused; nil where it was not.
func (s *Submission) Refused() error {
	if len(s.Refusal) == 0 {
		return nil
	}
	var r refusal
	if err := json.Unmarshal(s.Refusal, &r); err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "the submission was refused: %s", s.Refusal)
	}
	return &perdure.Error{Code: r.Code, Message: r.Message, Hint: r.Hint, Fields: r.Errors}
}
