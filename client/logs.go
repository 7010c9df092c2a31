package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// ReadLog implements operate.Logs over server-sent events. If a stream breaks, ReadLog opens another one, which goes on
// after the last part. If the server cannot be reached for too long (see Patience), it returns an error.
func (c *Client) ReadLog(ctx context.Context, q operate.LogQuery, see func(*operate.LogPart) error) error {
	var lost outage
	for {
		req := &request{method: http.MethodGet, path: jobPath(q.Job) + "/steps/" + segment(q.Step) + "/logs", query: logValues(&q), events: true}
		err := c.stream(ctx, req, func(e *event) (last bool, err error) {
			lost = outage{}
			switch e.name {
			case "part":
				p := new(operate.LogPart)
				if err := json.Unmarshal(e.data, p); err != nil {
					return false, perdure.Refuse(perdure.CodeUnavailable, "an event cannot be read: %v", err)
				}
				if err := see(p); err != nil {
					return false, err
				}
				q.Run, q.Offset, q.Tail = p.Run, p.Next(), 0
			case "problem":
				_, err := deliver(e.name, e.data, nil)
				return false, err
			}
			return e.name == "end", nil
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

func logValues(q *operate.LogQuery) url.Values {
	v := url.Values{}
	for name, n := range map[string]int64{"run": q.Run, "offset": q.Offset, "tail": q.Tail} {
		if n != 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	if q.Stream != "" {
		v.Set("stream", string(q.Stream))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	return v
}

// AppendLogs implements protocol.LogWriter.
func (c *Client) AppendLogs(ctx context.Context, holder string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	body, err := json.Marshal(struct {
		Holder string              `json:"holder"`
		Chunks []protocol.LogChunk `json:"chunks"`
	}{holder, chunks})
	if err != nil {
		return nil, err
	}
	var out struct {
		Results []struct {
			protocol.LogResult
			RetryAfterMs int64 `json:"retryAfterMs"`
		} `json:"results"`
	}
	if _, err := c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: "/v1/logs", body: body}, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != len(chunks) {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the server's answer has %d results for %d chunks", len(out.Results), len(chunks))
	}
	results := make([]protocol.LogResult, len(chunks))
	for i, r := range out.Results {
		r.RetryAfter = time.Duration(r.RetryAfterMs) * time.Millisecond
		results[i] = r.LogResult
	}
	return results, nil
}
