package rest

import (
	"context"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// maxListStreams bounds the streams of lists of a node. Each keeps a number for every row of its page.
const maxListStreams = 1000

// liveDoc documents the streams of lists.
const liveDoc = "With `Accept: text/event-stream` the answer is a stream of server-sent events, at most one of each kind a second. " +
	"`page` is the first page: at the beginning, after an interruption, and when an empty page is no longer empty. " +
	"`changed` has rows of the page that have changed (`items`), `gone` those that no longer match (`ids`). " +
	"`newer` is the number of rows that match and are not on the page, up to 100 (`n`, `capped`). " +
	"`problem` says why the list is not read at present. A comment is sent every 15 seconds. A stream has no `cursor`, and at most 100 rows. A node serves 1,000 streams."

// changedRows, goneRows are the data of events.
type (
	changedRows[T any] struct {
		Items []T `json:"items"`
	}
	goneRows[ID any] struct {
		IDs []ID `json:"ids"`
	}
)

func (c *call) liveJobs(q perdure.JobQuery) error {
	return liveList(c, func(ctx context.Context, s *stream) error {
		return c.Service.FollowJobs(ctx, q, func(change *operate.JobsChange) error {
			out := *change
			if out.Page != nil {
				out.Page = utcJobs(out.Page)
			}
			out.Changed = make([]perdure.JobView, len(change.Changed))
			for i := range change.Changed {
				out.Changed[i] = *utcJob(&change.Changed[i])
			}
			return sendChange(ctx, s, &out)
		})
	})
}

func (c *call) liveAlerts(q perdure.AlertQuery) error {
	return liveList(c, func(ctx context.Context, s *stream) error {
		return c.Service.FollowAlerts(ctx, q, func(change *operate.AlertsChange) error {
			out := *change
			if out.Page != nil {
				out.Page = utcAlertPage(out.Page)
			}
			out.Changed = utcAlerts(change.Changed)
			return sendChange(ctx, s, &out)
		})
	})
}

// liveList answers with the stream of a list.
func liveList(c *call, run func(context.Context, *stream) error) error {
	if c.r.Method == http.MethodHead || c.shuttingDown() {
		streamHeaders(c.w)
		return nil
	}
	release, err := c.lists.take("streams of lists")
	if err != nil {
		return err
	}
	defer release()
	return c.stream(run)
}

// sendChange sends the change of a list as an event.
func sendChange[T, ID any](ctx context.Context, s *stream, change *operate.ListChange[T, ID]) error {
	switch {
	case change.Page != nil:
		return s.event(ctx, "page", change.Page)
	case len(change.Changed) > 0:
		return s.event(ctx, "changed", &changedRows[T]{change.Changed})
	case len(change.Gone) > 0:
		return s.event(ctx, "gone", &goneRows[ID]{change.Gone})
	case change.Newer != nil:
		return s.event(ctx, "newer", change.Newer)
	case change.Problem != nil && ctx.Err() != nil: // the end of the stream has interrupted the list
		return orRevoked(ctx, change.Problem)
	case change.Problem != nil:
		return s.event(ctx, "problem", problemOf(s.r, change.Problem))
	}
	return nil
}
