package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"perdure"
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

// Claim implements perdure.Exchange. When ctx ends first, the server takes back what it has let out.
func (c *Client) Claim(ctx context.Context, req perdure.ClaimRequest) ([]perdure.Run, error) {
	body, err := encode(claim{Holder: req.Holder, Max: req.Max, Wait: duration(req.Wait), Heartbeat: duration(req.Heartbeat), RequestID: req.RequestID})
	if err != nil {
		return nil, err
	}
	var out work
	path := "/v1/agents/" + segment(req.Agent) + "/claim"
	_, err = c.ask(ctx, &request{method: http.MethodPost, path: path, body: body, wait: max(req.Wait, 0)}, &out)
	return out.Runs, err
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Report implements perdure.Exchange.
func (c *Client) Report(ctx context.Context, holder string, reports []perdure.Report, next *perdure.ClaimRequest) (results []perdure.ReportResult, runs []perdure.Run, err error) {
	call := func(set []json.RawMessage, last bool) ([]perdure.ReportResult, error) {
		said := struct {
			Holder  string            `json:"holder"`
			Reports []json.RawMessage `json:"reports"`
			Claim   *claim            `json:"claim,omitempty"`
		}{Holder: holder, Reports: set}
		if next != nil && last {
			said.Claim = &claim{Agent: next.Agent, Max: next.Max, Heartbeat: duration(next.Heartbeat), RequestID: next.RequestID}
		}
		body, err := encode(said)
		if err != nil {
			return nil, err
		}
		var out work
		_, err = c.ask(ctx, &request{method: http.MethodPost, path: "/v1/reports", body: body}, &out)
		runs = out.Runs
		return out.Results, err
	}
	if len(reports) == 0 && next != nil {
		_, err = call([]json.RawMessage{}, true)
		return nil, runs, err
	}
	results, err = inCalls(reports, call)
	return results, runs, err
}

// Heartbeat implements perdure.Exchange.
func (c *Client) Heartbeat(ctx context.Context, holder string, beats []perdure.Beat) ([]perdure.BeatResult, error) {
	return inCalls(beats, func(set []json.RawMessage, _ bool) ([]perdure.BeatResult, error) {
		body, err := encode(struct {
			Holder string            `json:"holder"`
			Runs   []json.RawMessage `json:"runs"`
		}{holder, set})
		if err != nil {
			return nil, err
		}
		var out struct {
			Runs []perdure.BeatResult `json:"runs"`
		}
		_, err = c.ask(ctx, &request{method: http.MethodPost, path: "/v1/heartbeats", body: body}, &out)
		return out.Runs, err
	})
}

// inCalls sends many in sets that a server takes. An error of one set is an error of all: each is
// safe to send again.
func inCalls[In, Out any](all []In, call func(set []json.RawMessage, last bool) ([]Out, error)) ([]Out, error) {
	var out []Out
	for rest := all; len(rest) > 0; {
		set, size := make([]json.RawMessage, 0, min(len(rest), perdure.MaxBatch)), 0
		for i := range rest {
			b, err := encode(&rest[i])
			if err != nil {
				return nil, err
			}
			if size += len(b); i > 0 && (i == perdure.MaxBatch || size > maxCall) {
				break
			}
			set = append(set, b)
		}
		answers, err := call(set, len(set) == len(rest))
		if err != nil {
			return nil, err
		}
		if len(answers) != len(set) {
			return nil, perdure.Refuse(perdure.CodeUnavailable, "%d answers came to %d questions", len(answers), len(set))
		}
		out, rest = append(out, answers...), rest[len(set):]
	}
	return out, nil
}
