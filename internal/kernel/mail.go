package kernel

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// MailKind is what a mail wants of its recipient.
type MailKind string

// MailSubmit wants a job to be made: its body is the definition. The recipient is that job.
const MailSubmit MailKind = "submit"

// MailKinds are the kinds that this program applies. Mail of other kinds is left to the newer programs that send it.
var MailKinds = []string{string(MailSubmit)}

// MailID names a mail: at most one of a recipient has it. It is made from what the sender wants, so that a mail that is
// sent twice is one. A submission has the id "submit": a job is submitted once.
type MailID struct {
	To perdure.JobID // the recipient
	ID string
}

// Compare orders ids by recipient.
func (m MailID) Compare(o MailID) int { return cmp.Or(m.To.Compare(o.To), cmp.Compare(m.ID, o.ID)) }

// Mail is what one transaction wants of a job that another transaction will apply: a transaction never locks two jobs for
// the sake of each other. It is stored if, and only if, the sender's transaction was committed. The courier applies it once.
type Mail struct {
	MailID
	Kind MailKind

	// Of a submission:
	Key  string   // the job's; empty: none. It is not in Body, and is no template
	Hash [32]byte // the definition's fingerprint; zero: not known, it came by SQL alone
	Body []byte   // the definition, in JSON
}

// ClosedMail is what became of a mail.
type ClosedMail struct {
	MailID
	Job     perdure.JobID   // of a submission: the job that was made of it, or has its key and is the same
	Refusal json.RawMessage // why it was refused, see RefusalJSON; nil: it was applied
}

// MailWaiting is how much mail waits to be applied, and for how long the oldest has waited.
type MailWaiting struct {
	Number int
	Oldest time.Duration
}

// DefaultMaxMail is how many mails may wait unless the operator sets another number. At the bound, who would send another
// one is refused (CodeBacklogFull).
const DefaultMaxMail = 1_000_000

// MaxMaxMail is the largest bound that an operator may set.
const MaxMaxMail = 1_000_000_000

// MaxPosted is how many submissions may wait where max mails may.
func MaxPosted(max int) int { return min(perdure.MaxPosted, max) }

// ErrPosted refuses a submission since so many wait already.
func ErrPosted(waiting int) error {
	e := perdure.Refuse(perdure.CodeBacklogFull, "%d submissions wait to be taken by a node, and no more may", waiting)
	e.Hint = "is a node running? try again later"
	return e
}

// Post makes the mail that submits a plan as a job of this id.
func Post(id perdure.JobID, plan *Plan) (Mail, error) {
	if err := plan.checkNotNil(); err != nil {
		return Mail{}, err
	}
	d := *plan.Definition
	d.Key = ""
	body, err := json.Marshal(&d)
	return Mail{MailID: SubmissionOf(id), Kind: MailSubmit, Key: plan.Definition.Key, Hash: plan.Hash, Body: body}, err
}

// SubmissionOf names the submission of a job.
func SubmissionOf(id perdure.JobID) MailID { return MailID{To: id, ID: string(MailSubmit)} }

// Delivery is a submission among the mail on its way to be a job: with the plan that was made of it, or why none could be.
type Delivery struct {
	ID      MailID
	Plan    *Plan
	Refused error

	Job perdure.JobID // the answer: the job that was made, or is the same. Zero: none (see Err)
	Err error         // why it is none: the rules' refusal, which was written down, unless Left
	// Left says that it still waits: there is no room, or the store does not answer; or that another
	// node has taken it.
	Left bool
}

// CheckPlans refuses plans of which one is nil: what came instead of it was an error, that nobody has looked at.
func CheckPlans(plans ...*Plan) error {
	for _, p := range plans {
		if err := p.checkNotNil(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) checkNotNil() error {
	if p == nil || p.Definition == nil {
		return perdure.Refuse(perdure.CodeInvalid, "there is no plan: the definition was refused, as its error says")
	}
	return nil
}

// ErrNoTx is returned if the caller's transaction is nil.
var ErrNoTx = perdure.Refuse(perdure.CodeInvalid, "the transaction is nil: begin one first")

// Submission is the state of a submission that was posted.
type Submission struct {
	ID       perdure.JobID
	Job      perdure.JobID // zero: not taken, or refused
	Refusal  json.RawMessage
	PostedAt time.Time
	ClosedAt time.Time // zero: it waits
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
