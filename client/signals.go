package client

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/perdure/perdure/operate"
)

// SendSignal implements operate.Signals. A signal without an ID gets a random one, so that the client can repeat the request.
func (c *Client) SendSignal(ctx context.Context, s operate.Signal) (*operate.SignalResult, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if s.ID == "" {
		s.ID = rand.Text()
	}
	body, err := encode(&s)
	if err != nil {
		return nil, err
	}
	path := "/v1/signals"
	if s.Job != "" {
		path = jobPath(s.Job) + "/signals"
	}
	out := new(operate.SignalResult)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: path, body: body, author: s.Author, repeatable: true}, out); err != nil {
		return nil, err
	}
	return out, nil
}
