package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// BulkAct is the row of a bulk act: an act on many jobs (operate.Bulk). The role courier carries it out. Each
// transaction acts on some jobs and moves the cursor behind the last of them, so that no job is skipped or acted on
// twice, whenever a node dies.
type BulkAct struct {
	ID      string // bulk_ and 32 hexadecimal digits; ids grow with time
	Key     string // makes a repeated start safe; "": none
	Request []byte // what is done to which jobs, as EncodeBulk writes it
	Author  string
	Reason  string
	Listed  int // how many jobs the request lists; 0: it has a filter
	// Below bounds the ids of its jobs, so that it ends although jobs are submitted meanwhile.
	Below    perdure.JobID
	Expected int // how many jobs there were at the start, up to perdure.MaxListCount
	Capped   bool

	State     operate.BulkState
	StoppedBy string
	Cursor    perdure.JobID // all jobs up to this one were met
	Done      int           // jobs on which the act was performed
	Unchanged int           // jobs for which its result already held
	Refused   int           // jobs on which the rules refused it

	StartedAt, UpdatedAt, EndedAt time.Time
	// ResumedAt is when it began to run, and MatchedBefore how many jobs it had met then: the rate is counted from there.
	ResumedAt     time.Time
	MatchedBefore int
}

// Matched returns how many jobs were met.
func (b *BulkAct) Matched() int { return b.Done + b.Unchanged + b.Refused }

// BulkRefusal is a job on which a bulk act was refused.
type BulkRefusal struct {
	Number  int // from 1, in the order in which the jobs were met
	Job     perdure.JobID
	Key     string // of the job; set when it is read, and ignored by SaveBulkAct
	Code    perdure.Code
	Message string
}

// storedRequest is what a bulk act's row has of its request. A hash stands for the jobs that it lists, so that requests with
// the same key can be compared.
type storedRequest struct {
	operate.BulkRequest
	Listed string `json:"listed,omitempty"`
}

// EncodeBulk writes what a bulk act does, and to which jobs. Equal requests give equal texts.
func EncodeBulk(r *operate.BulkRequest, listed []perdure.JobID) ([]byte, error) {
	stored := storedRequest{BulkRequest: *r}
	stored.IDs, stored.Reason, stored.Key = nil, "", ""
	if len(listed) > 0 {
		hash := sha256.New()
		for _, id := range listed {
			hash.Write(id[:])
		}
		stored.Listed = hex.EncodeToString(hash.Sum(nil))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(&stored)
	return bytes.TrimSpace(b.Bytes()), err
}

// Decode returns the request of a bulk act, without the jobs that it lists.
func (b *BulkAct) Decode() (*operate.BulkRequest, error) {
	r := new(operate.BulkRequest)
	if err := json.Unmarshal(b.Request, r); err != nil {
		return nil, err
	}
	r.Author, r.Reason, r.Key = b.Author, b.Reason, b.Key
	return r, nil
}

// BulkTx is what transactions do with bulk acts. A transaction that starts or resumes one has locked the role courier
// (Locker.LockRoles): so no other one starts or resumes a bulk act at the same time, and RunningBulkActs is exact.
type BulkTx interface {
	// LockBulkAct locks the row of a bulk act, and waits for a lock that another transaction holds. It returns nil if
	// there is none.
	LockBulkAct(id string) (*BulkAct, error)
	// BulkActByKey returns the bulk act with this key; nil if there is none. RunningBulkActs counts those that run.
	BulkActByKey(key string) (*BulkAct, error)
	RunningBulkActs() (int, error)
	// AddBulkAct stores a new bulk act, and the jobs that it lists, in the order of their ids. It returns ErrStale if the
	// id or the key is taken. ListedJobs returns these jobs.
	AddBulkAct(b *BulkAct, listed []perdure.JobID) error
	// SaveBulkAct writes a row that this transaction has locked, and adds refusals. Id, key, request, author, reason,
	// the jobs and the time of the start never change.
	SaveBulkAct(*BulkAct, []BulkRefusal) error
}

// BulkPage is a part of the jobs of a bulk act, in the order of their ids.
type BulkPage struct {
	Jobs []perdure.JobID
	End  perdure.JobID // the page has all jobs up to this one
	Last bool          // there are no jobs after it
	// Filter is compared again with each job when it is locked; nil: the jobs were listed. Alerts are not compared again.
	Filter *JobFilter
}

// BulkResult is what one transaction of a bulk act did.
type BulkResult struct {
	Act  *BulkAct      // the row after the transaction; nil if it did nothing, because the row has changed meanwhile
	Took time.Duration // how long a writer worked on it
}

// BulkReader reads bulk acts.
type BulkReader interface {
	// BulkAct returns a bulk act; nil if there is none.
	BulkAct(ctx context.Context, id string) (*BulkAct, error)
	// BulkActs returns bulk acts, newest first.
	BulkActs(context.Context, BulkFilter) ([]*BulkAct, error)
	// ListedJobs returns the jobs that a bulk act lists, in the order of their ids: at most max of those after one.
	ListedJobs(ctx context.Context, id string, after perdure.JobID, max int) ([]perdure.JobID, error)
	// BulkRefusals returns at most max refusals of a bulk act in the order of their numbers, beginning after a number.
	BulkRefusals(ctx context.Context, id string, after, max int) ([]BulkRefusal, error)
	// ForgetBulkActs deletes at most max bulk acts that ended, or were stopped and not changed since, before a time, with
	// their refusals.
	ForgetBulkActs(ctx context.Context, before time.Time, max int) (int, error)
	// Busy reports whether another connection works on the database now, of whatever node or program. It is always false
	// for a store that has no connections.
	Busy(context.Context) (bool, error)
}

// BulkFilter selects bulk acts, newest first.
type BulkFilter struct {
	State  operate.BulkState // "": all
	Before string            // only ids below; "": from the newest
	Limit  int               // 0: perdure.DefaultListLimit
}

// BulkPace bounds how many jobs a bulk act meets within any second. The zero value with PerSecond has met none.
type BulkPace struct {
	PerSecond int

	used []pacedJobs // within the last second, the oldest first
	next time.Time   // no jobs before this time, so that they do not all come at the beginning of a second
}

type pacedJobs struct {
	at time.Time // when the transaction had ended, or later: so no second has more of them than it seems
	n  int
}

// parts is how many parts the jobs of a second are divided into, if there are enough of them.
const parts = 10

// Room returns how many jobs may be met now. If there are none, wait is how long until there may be some.
func (p *BulkPace) Room(now time.Time) (n int, wait time.Duration) {
	for len(p.used) > 0 && now.Sub(p.used[0].at) >= time.Second {
		p.used = p.used[1:]
	}
	left := p.PerSecond
	for _, u := range p.used {
		left -= u.n
	}
	switch {
	case left <= 0:
		return 0, p.used[0].at.Add(time.Second).Sub(now)
	case now.Before(p.next):
		return 0, p.next.Sub(now)
	}
	return min(left, max(1, p.PerSecond/parts)), 0
}

// Use records that up to n jobs were met by now.
func (p *BulkPace) Use(now time.Time, n int) {
	p.used = append(p.used, pacedJobs{now, n})
	if interval := time.Second * time.Duration(n) / time.Duration(p.PerSecond); p.next.Before(now.Add(-interval)) {
		p.next = now.Add(interval)
	} else {
		p.next = p.next.Add(interval)
	}
}
