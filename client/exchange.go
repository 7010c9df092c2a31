package client

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// maxCall is how much one call carries; what is more goes in several. A server takes 32 MiB.
const maxCall = 16 << 20

type claim struct {
	Agent     string `json:"agent,omitempty"`
	Holder    string `json:"holder,omitempty"`
	Max       int    `json:"max,omitempty"`
	Wait      string `json:"wait,omitempty"`
	Heartbeat string `json:"heartbeat,omitempty"`
	RequestID string `json:"requestId,omitempty"`
}

// Claim implements protocol.Exchange. When ctx ends first, the server takes back what it has let out.
func (c *Client) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	body, err := encode(claim{Holder: req.Holder, Max: req.Max, Wait: duration(req.Wait), Heartbeat: duration(req.Heartbeat), RequestID: req.RequestID})
	if err != nil {
		return nil, err
	}
	var out work
	path := "/v1/agents/" + segment(req.Agent) + "/claim"
	_, err = c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: path, body: body, wait: max(req.Wait, 0)}, &out)
	return out.Runs, err
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Report implements protocol.Exchange.
func (c *Client) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) (results []protocol.ReportResult, runs []perdure.Run, err error) {
	call := func(list []byte, last bool) ([]protocol.ReportResult, error) {
		var with *claim
		if next != nil && last {
			with = &claim{Agent: next.Agent, Max: next.Max, Heartbeat: duration(next.Heartbeat), RequestID: next.RequestID}
		}
		body, err := encodeSet(holder, "reports", list, with)
		if err != nil {
			return nil, err
		}
		var out work
		_, err = c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: "/v1/reports", body: body}, &out)
		runs = out.Runs
		return out.Results, err
	}
	if len(reports) == 0 && next != nil {
		_, err = call(nil, true)
		return nil, runs, err
	}
	results, err = inCalls(reports, call)
	return results, runs, err
}

// Heartbeat implements protocol.Exchange.
func (c *Client) Heartbeat(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return inCalls(beats, func(list []byte, _ bool) ([]protocol.HeartbeatResult, error) {
		body, err := encodeSet(holder, "runs", list, nil)
		if err != nil {
			return nil, err
		}
		var out struct {
			Runs []protocol.HeartbeatResult `json:"runs"`
		}
		_, err = c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: "/v1/heartbeats", body: body}, &out)
		return out.Runs, err
	})
}

// inCalls sends many in sets that a server takes, each as a list without its brackets. An error of one set is an error
// of all: each is safe to send again.
func inCalls[In, Out any](all []In, call func(list []byte, last bool) ([]Out, error)) ([]Out, error) {
	var out []Out
	for rest := all; len(rest) > 0; {
		list, n, err := encodeList(rest)
		if err != nil {
			return nil, err
		}
		answers, err := call(list, n == len(rest))
		if err != nil {
			return nil, err
		}
		if len(answers) != n {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "%d answers came to %d questions", len(answers), n)
		}
		out, rest = append(out, answers...), rest[n:]
	}
	return out, nil
}

// encodeList encodes as many as go in one call.
func encodeList[T any](all []T) (list []byte, n int, err error) {
	var b bytes.Buffer
	enc := encoder(&b)
	for n < len(all) && n < perdure.MaxBatch {
		end := b.Len()
		if n > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(&all[n]); err != nil {
			return nil, 0, unsendable(err)
		}
		if n > 0 && b.Len() > maxCall {
			b.Truncate(end)
			break
		}
		n++
	}
	return b.Bytes(), n, nil
}

// encodeSet is the body of a call with a list.
func encodeSet(holder, name string, list []byte, with *claim) ([]byte, error) {
	head, err := encode(holder)
	if err != nil {
		return nil, err
	}
	body := append(append(make([]byte, 0, len(list)+len(head)+100), `{"holder":`...), head...)
	body = append(append(append(body, `,"`...), name...), `":[`...)
	body = append(append(body, list...), ']')
	if with != nil {
		claim, err := encode(with)
		if err != nil {
			return nil, err
		}
		body = append(append(body, `,"claim":`...), claim...)
	}
	return append(body, '}'), nil
}
