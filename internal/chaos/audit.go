package chaos

import (
	"bytes"
	"context"
	"time"

	"github.com/perdure/perdure"
)

// Jobs is what the audit asks of a server.
type Jobs interface {
	ListJobs(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error)
}

// Found is what has become of the jobs that were submitted meanwhile.
type Found struct {
	Jobs   int      `json:"jobs"`
	Done   int      `json:"done"`
	Undone int      `json:"undone"`
	Parked []string `json:"parked"` // by id: a person is needed
	Open   []string `json:"open"`   // by id: still not at rest
	Others int      `json:"others"` // given up by a person: neither
}

// Latest is the newest job; what comes after it was submitted meanwhile.
func Latest(ctx context.Context, jobs Jobs) (id perdure.JobID, err error) {
	page, err := jobs.ListJobs(ctx, perdure.JobQuery{Limit: 1})
	if err == nil && len(page.Items) > 0 {
		id = page.Items[0].ID
	}
	return id, err
}

const auditPage = 500

// Audit looks until all jobs that came after the one named are at rest, or ctx ends.
func Audit(ctx context.Context, jobs Jobs, after perdure.JobID) (found Found, err error) {
	for {
		// Looked at in full even where ctx has just ended: it bounds the waiting, not the look.
		look, err := lookAt(context.WithoutCancel(ctx), jobs, after)
		if err == nil {
			found = look
		}
		if ctx.Err() != nil || err == nil && len(found.Open) == 0 {
			return found, err
		}
		sleep(ctx, time.Second)
	}
}

func lookAt(ctx context.Context, jobs Jobs, after perdure.JobID) (Found, error) {
	found := Found{Parked: []string{}, Open: []string{}}
	q := perdure.JobQuery{Limit: auditPage}
	for {
		page, err := jobs.ListJobs(ctx, q)
		if err != nil {
			return found, err
		}
		for i := range page.Items {
			j := &page.Items[i]
			if bytes.Compare(j.ID[:], after[:]) <= 0 {
				return found, nil
			}
			found.add(j)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			return found, nil
		}
	}
}

func (f *Found) add(j *perdure.JobView) {
	f.Jobs++
	switch {
	case j.Phase == perdure.Parked:
		f.Parked = append(f.Parked, j.ID.String())
	case j.Phase != perdure.Settled:
		f.Open = append(f.Open, j.ID.String())
	case j.Current == perdure.Done:
		f.Done++
	case j.Current == perdure.Undone:
		f.Undone++
	default:
		f.Others++
	}
}
