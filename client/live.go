package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// FollowJobs implements operate.Service over server-sent events. If a stream breaks, FollowJobs opens another one, and see
// is called with a page again. If the server cannot be reached for too long (see Patience), it returns an error.
func (c *Client) FollowJobs(ctx context.Context, q perdure.JobQuery, see func(*operate.JobsChange) error) error {
	return followList(ctx, c, &request{method: http.MethodGet, path: jobsPath, query: jobsQuery(&q), events: true}, see)
}

// FollowAlerts is FollowJobs for a list of alerts.
func (c *Client) FollowAlerts(ctx context.Context, q perdure.AlertQuery, see func(*operate.AlertsChange) error) error {
	return followList(ctx, c, &request{method: http.MethodGet, path: alertsPath, query: alertsQuery(&q), events: true}, see)
}

func followList[T, ID any](ctx context.Context, c *Client, req *request, see func(*operate.ListChange[T, ID]) error) error {
	var lost outage
	for {
		err := c.stream(ctx, req, func(e *event) (last bool, err error) {
			change, err := readChange[T, ID](e.name, e.data)
			if change == nil || err != nil {
				return false, err
			}
			lost = outage{}
			return false, see(change)
		})
		gone := awayIn(err)
		if gone == nil {
			return err
		}
		again, err := lost.pause(gone, c.patience)
		if err != nil {
			return err
		}
		if err := sleep(ctx, again); err != nil {
			return err
		}
	}
}

// readChange reads an event; nil if its name is not known. A problem that may pass is a change: the stream goes on after
// it, or ends, and is opened again.
func readChange[T, ID any](name string, data []byte) (change *operate.ListChange[T, ID], err error) {
	change = new(operate.ListChange[T, ID])
	switch name {
	case "page":
		err = json.Unmarshal(data, &change.Page)
	case "changed":
		var rows struct{ Items []T }
		err = json.Unmarshal(data, &rows)
		change.Changed = rows.Items
	case "gone":
		var rows struct{ IDs []ID }
		err = json.Unmarshal(data, &rows)
		change.Gone = rows.IDs
	case "newer":
		err = json.Unmarshal(data, &change.Newer)
	case "problem":
		var p problem
		if err = json.Unmarshal(data, &p); err == nil {
			if refusal := p.err(); errors.As(passing(refusal, 0), new(*away)) {
				errors.As(refusal, &change.Problem)
			} else {
				return nil, refusal
			}
		}
	default:
		return nil, nil
	}
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "an event cannot be read: %v", err)
	}
	return change, nil
}
