package kernel

import (
	"cmp"
	"encoding/json"
	"errors"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// MailKind is the kind of request that a mail carries.
type MailKind string

// MailSubmit asks for a job to be created. The recipient is that job, and the body is its definition.
const MailSubmit MailKind = "submit"

// MailKinds are the kinds that this program applies. Mail of other kinds is left to the newer programs that send it.
var MailKinds = []string{string(MailSubmit)}

// MailID identifies a mail; it is unique for each recipient. The sender derives it from the request, so that a request
// that is sent twice is one mail. A submission has the id "submit", because a job is submitted once.
type MailID struct {
	To perdure.JobID // the recipient
	ID string
}

// Compare orders by recipient, then by id.
func (m MailID) Compare(o MailID) int { return cmp.Or(m.To.Compare(o.To), cmp.Compare(m.ID, o.ID)) }

// Mail is a request to a job that another transaction handles, because a transaction never locks one job for the sake of
// another. It is stored if, and only if, the sender's transaction commits. The courier applies it exactly once.
type Mail struct {
	MailID
	Kind MailKind

	// The other fields are set for a submission.
	Key  string   // the job's key; empty: none. It is not in Body, and is not a template
	Hash [32]byte // the definition's fingerprint; zero: not known, because SQL alone wrote the mail
	Body []byte   // the definition, in JSON
}

// ClosedMail is the outcome of a mail.
type ClosedMail struct {
	MailID
	Job     perdure.JobID   // of a submission: the new job, or an existing job with the same key and definition
	Refusal json.RawMessage // why it was refused, see RefusalJSON; nil: it was applied
}

// MailWaiting is how much mail waits to be applied, and for how long the oldest has waited.
type MailWaiting struct {
	Number int
	Oldest time.Duration
}

// DefaultMaxMail is how many mails may wait unless the operator sets another number. At this bound, further mail is
// refused (CodeBacklogFull).
const DefaultMaxMail = 1_000_000

// MaxMaxMail is the largest bound that an operator may set.
const MaxMaxMail = 1_000_000_000

// MaxPosted returns how many submissions may wait if max mails may wait.
func MaxPosted(max int) int { return min(perdure.MaxPosted, max) }

// ErrTooManyPosted returns the error for a submission that is refused because too many are waiting.
func ErrTooManyPosted(waiting int) error {
	e := perdure.Refuse(perdure.CodeBacklogFull, "%d submissions are waiting for a node, and no more are accepted", waiting)
	e.Hint = "check that a node is running, and try again later"
	return e
}

// Post returns the mail that submits a plan as the job with this id.
func Post(id perdure.JobID, plan *Plan) (Mail, error) {
	if err := plan.checkNotNil(); err != nil {
		return Mail{}, err
	}
	d := *plan.Definition
	d.Key = ""
	body, err := json.Marshal(&d)
	return Mail{MailID: SubmissionOf(id), Kind: MailSubmit, Key: plan.Definition.Key, Hash: plan.Hash, Body: body}, err
}

// SubmissionOf returns the id of the mail that submits a job.
func SubmissionOf(id perdure.JobID) MailID { return MailID{To: id, ID: string(MailSubmit)} }

// Delivery is a submission that the courier is turning into a job. It has the plan that was compiled from the mail, or
// the error of the compilation.
type Delivery struct {
	ID      MailID
	Plan    *Plan
	Refused error

	Job perdure.JobID // the result: the new job, or the existing job that is the same; zero: none (see Err)
	Err error         // why there is no job. Unless Waiting, it is a refusal by the rules, and was recorded
	// Waiting means that the mail still waits: the backlog is full, the store does not answer, or another node has taken
	// the mail.
	Waiting bool
}

// CheckPlans returns an error if a plan is nil. The caller then has ignored the error that was returned instead of the
// plan.
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
		return perdure.Refuse(perdure.CodeInvalid, "there is no plan: the definition was refused; check the error that was returned with it")
	}
	return nil
}

// ErrNoTx is returned if the caller's transaction is nil.
var ErrNoTx = perdure.Refuse(perdure.CodeInvalid, "the transaction is nil: begin one first")

// Submission is the state of a submission that was posted.
type Submission struct {
	ID       perdure.JobID
	Job      perdure.JobID // zero: not applied yet, or refused
	Refusal  json.RawMessage
	PostedAt time.Time
	ClosedAt time.Time // zero: not closed
}

// refusal is the stored form of a refusal: {"code","message","hint"?,"errors"?}.
type refusal struct {
	Code    perdure.Code         `json:"code"`
	Message string               `json:"message"`
	Hint    string               `json:"hint,omitempty"`
	Errors  []perdure.FieldError `json:"errors,omitempty"`
}

// RefusalJSON returns an error in the form in which a closed submission keeps it.
func RefusalJSON(err error) json.RawMessage {
	r := refusal{Code: perdure.CodeInvalid, Message: err.Error()}
	if e := (*perdure.Error)(nil); errors.As(err, &e) {
		r = refusal{e.Code, e.Message, e.Hint, e.Fields}
	}
	r.Message = plain.Clip(plain.Text(r.Message), perdure.MaxReasonBytes)
	b, err := json.Marshal(&r)
	if err != nil { // cannot happen: it consists of texts
		return json.RawMessage(`{"code":"invalid","message":"refused"}`)
	}
	return b
}

// Refused returns why a submission was refused; nil if it was not.
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
