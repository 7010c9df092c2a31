package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/protocol"
)

// maxCall is the most bytes of reports or heartbeats in one call. More of them go in several calls. A server takes 32 MiB.
const maxCall = 16 << 20

// Claim implements protocol.Exchange. If ctx ends before the answer has arrived, the server takes back the runs that it
// has dispatched, unless the claim has a RequestID.
func (c *Client) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	path := "/v1/agents/" + segment(req.Agent) + "/claim"
	sent := req
	sent.Agent = ""
	body := jsontext.NewAppender(nil)
	appendClaim(&body, &sent)
	var out work
	_, err := c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: path, body: body.Bytes(), wait: max(req.Wait, 0)}, &out)
	return out.Runs, err
}

// Report implements protocol.Exchange. Many reports go in several calls; next goes with the last.
func (c *Client) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) (results []protocol.ReportResult, runs []perdure.Run, err error) {
	call := func(list []byte, last bool) ([]protocol.ReportResult, error) {
		var with *protocol.Claim
		if next != nil && last {
			with = &protocol.Claim{Agent: next.Agent, Max: next.Max, Heartbeat: next.Heartbeat, RequestID: next.RequestID, Secrets: next.Secrets, Host: next.Host, Free: next.Free}
		}
		body := encodeSet(holder, "reports", list, with)
		var out work
		_, err := c.ask(ctx, &request{ofAgent: true, method: http.MethodPost, path: "/v1/reports", body: body}, &out)
		runs = out.Runs
		return out.Results, err
	}
	if len(reports) == 0 && next != nil {
		_, err = call([]byte("[]"), true)
		return nil, runs, err
	}
	results, err = inCalls(reports, appendReport, call)
	return results, runs, err
}

// Heartbeat implements protocol.Exchange.
func (c *Client) Heartbeat(ctx context.Context, holder string, sent []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return inCalls(sent, appendBeat, func(list []byte, _ bool) ([]protocol.HeartbeatResult, error) {
		body := encodeSet(holder, "runs", list, nil)
		var out heartbeatAnswer
		_, err := c.ask(ctx, &request{ofAgent: true, signOfLife: true, method: http.MethodPost, path: "/v1/heartbeats", body: body}, &out)
		return out.Runs, err
	})
}

// HeartbeatAll implements protocol.Completer.
func (c *Client) HeartbeatAll(ctx context.Context, h protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	list, n, err := encodeList(h.Runs, appendBeat)
	if err != nil {
		return nil, time.Time{}, err
	}
	if n < len(h.Runs) {
		return nil, time.Time{}, perdure.Refuse(perdure.CodeTooLarge, "a complete heartbeat has at most %d runs, and fits in one call", perdure.MaxBatch)
	}
	var out heartbeatAnswer
	_, err = c.ask(ctx, &request{ofAgent: true, signOfLife: true, method: http.MethodPost, path: "/v1/heartbeats", body: encodeComplete(&h, list)}, &out)
	return out.Runs, out.AsOf, err
}

// encodeComplete returns the body of a complete heartbeat with a list of runs.
func encodeComplete(h *protocol.CompleteHeartbeat, list []byte) []byte {
	a := jsontext.NewAppender(nil)
	a.BeginObject()
	a.TextField("holder", h.Holder)
	a.BoolField("complete", true)
	if len(h.OpenClaims) > 0 {
		open, _ := json.Marshal(h.OpenClaims) // texts never fail
		a.RawField("openClaims", open)
	}
	if !h.AsOf.IsZero() {
		a.TimeField("asOf", h.AsOf.UTC())
	}
	a.RawField("runs", list)
	a.EndObject()
	return a.Bytes()
}

// inCalls sends all items in calls of as many as a server takes. If one call fails, its error is returned for all of
// them: each item is safe to send again.
func inCalls[In, Out any](all []In, encode func(*jsontext.Appender, *In) error, call func(list []byte, last bool) ([]Out, error)) ([]Out, error) {
	var out []Out
	for rest := all; len(rest) > 0; {
		list, n, err := encodeList(rest, encode)
		if err != nil {
			return nil, err
		}
		answers, err := call(list, n == len(rest))
		if err != nil {
			return nil, err
		}
		if len(answers) != n {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "the server's answer has %d results for %d items", len(answers), n)
		}
		out, rest = append(out, answers...), rest[n:]
	}
	return out, nil
}

// itemRoom is about how long a report or heartbeat is.
const itemRoom = 200

// encodeList writes as many items as fit in one call, as a list. n is their number.
func encodeList[T any](all []T, encode func(*jsontext.Appender, *T) error) (list []byte, n int, err error) {
	a := jsontext.NewAppender(make([]byte, 0, min(len(all), perdure.MaxBatch)*itemRoom))
	a.BeginList()
	for n < len(all) && n < perdure.MaxBatch {
		end := len(a.Bytes())
		if err := encode(&a, &all[n]); err != nil {
			return nil, 0, err
		}
		if n > 0 && len(a.Bytes()) > maxCall {
			a.Truncate(end)
			break
		}
		n++
	}
	a.EndList()
	return a.Bytes(), n, nil
}

// encodeSet is the body of a call with a list, and with a claim if there is one.
func encodeSet(holder, name string, list []byte, claim *protocol.Claim) []byte {
	a := jsontext.NewAppender(make([]byte, 0, len(list)+len(holder)+200))
	a.BeginObject()
	a.TextField("holder", holder)
	a.RawField(name, list)
	if claim != nil {
		a.Name("claim")
		appendClaim(&a, claim)
	}
	a.EndObject()
	return a.Bytes()
}
