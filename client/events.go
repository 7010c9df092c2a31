package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"perdure"
)

// idleStreams is how many streams in a row may end without having said anything.
const idleStreams = 3

// errEnded: the stream is over and the job is not at rest.
var errEnded = errors.New("the stream ended early")

// Follow implements perdure.Jobs over server-sent events. A stream that breaks is opened again, and
// see gets the whole job once more; a server that cannot be reached any more is an error.
func (c *Client) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	for idle := 0; ; {
		seen := false
		err := c.stream(ctx, ref, func(job *perdure.JobView) error {
			seen = true
			return see(job)
		})
		if !errors.Is(err, errEnded) {
			return err
		}
		if idle++; seen {
			idle = 0
		}
		if idle == idleStreams {
			return c.unreachable(ctx, err, 0)
		}
		if err := sleep(ctx, pause(max(idle, 1))); err != nil {
			return err
		}
	}
}

// stream follows for as long as one stream lasts.
func (c *Client) stream(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silentTimeout, func() { cancel(errEnded) })
	defer silent.Stop()

	resp, err := c.send(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/events"})
	if err != nil {
		return c.ended(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp)
	}
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		name, data, err := readEvent(in, func() { silent.Reset(silentTimeout) })
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		if err != nil {
			return c.ended(ctx, err)
		}
		if rest, err := deliver(name, data, see); rest || err != nil {
			return err
		}
	}
}

// ended tells the caller's own end from ours.
func (c *Client) ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errEnded) {
		return cause
	}
	return c.unreachable(ctx, err, silentTimeout)
}

// deliver acts on one event. rest: it was the last.
func deliver(name string, data []byte, see func(*perdure.JobView) error) (rest bool, err error) {
	switch name {
	case "job":
		job := new(perdure.JobView)
		if err := json.Unmarshal(data, job); err != nil {
			return false, perdure.Refuse(perdure.CodeUnavailable, "an event cannot be read: %v", err)
		}
		return false, see(job)
	case "problem":
		var p problem
		if err := json.Unmarshal(data, &p); err != nil || p.Code == "" {
			return false, perdure.Refuse(perdure.CodeUnavailable, "the stream ended with a problem that cannot be read")
		}
		return false, p.err()
	}
	return name == "rest", nil
}

// readEvent reads to the end of the next event. heard is called with every line, comments included.
func readEvent(in *bufio.Reader, heard func()) (name string, data []byte, err error) {
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return "", nil, err // what has not ended with an empty line is no event
		}
		heard()
		line = bytes.TrimRight(line, "\r\n")
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && name != "":
			return name, data, nil
		case len(line) == 0:
			data = nil
		case string(field) == "event":
			name = string(value)
		case string(field) == "data" && data == nil:
			data = value
		case string(field) == "data":
			data = append(append(data, '\n'), value...)
		}
	}
}
