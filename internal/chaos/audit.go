package chaos

import (
	"bytes"
	"context"
	"time"

	"github.com/perdure/perdure"
)

// Jobs is the part of a server that the audit needs.
type Jobs interface {
	ListJobs(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error)
}

// Found are the final states of the jobs that were submitted meanwhile.
type Found struct {
	Jobs   int      `json:"jobs"`
	Done   int      `json:"done"`
	Undone int      `json:"undone"`
	Parked []string `json:"parked"` // by id: they need an operator
	Open   []string `json:"open"`   // by id: neither settled nor parked
	Others int      `json:"others"` // given up by an operator
}

// Latest returns the newest job. Jobs after it were submitted meanwhile.
func Latest(ctx context.Context, jobs Jobs) (id perdure.JobID, err error) {
	page, err := jobs.ListJobs(ctx, perdure.JobQuery{Limit: 1})
	if err == nil && len(page.Items) > 0 {
		id = page.Items[0].ID
	}
	return id, err
}

const auditPage = 500

// Audit polls until all jobs after the given one are settled or parked, or ctx ends.
func Audit(ctx context.Context, jobs Jobs, after perdure.JobID) (found Found, err error) {
	for {
		// This is completed even if ctx has just ended: ctx bounds the wait, not the query.
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
