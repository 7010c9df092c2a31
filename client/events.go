package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/perdure/perdure"
)

// Follow implements perdure.Jobs over server-sent events. A stream that breaks is opened again, and see gets the
// whole job once more, unless it has seen it at rest; a server that stays away (Patience) is an error.
func (c *Client) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	var lost outage
	rests := false
	for {
		err := c.stream(ctx, ref, func(job *perdure.JobView) error {
			lost, rests = outage{}, job.AtRest()
			return see(job)
		})
		gone := awayIn(err)
		switch {
		case gone == nil:
			return err
		case rests:
			return nil // nothing but the end was missing
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

// stream follows for as long as one stream lasts. Where it has not come to its end, the error is *away.
func (c *Client) stream(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silentTimeout, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	broken := func(err error) error {
		return c.unreachable(ctx, cmp.Or(context.Cause(reading), err), silentTimeout)
	}

	resp, err := c.send(reading, &request{method: http.MethodGet, path: jobPath(ref) + "/events"})
	if err != nil {
		return broken(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refused(resp)
	}
	event := &io.LimitedReader{R: resp.Body}
	in := bufio.NewReaderSize(event, 64<<10)
	for {
		event.N = maxAnswer
		name, data, err := readEvent(in, func() { silent.Reset(silentTimeout) })
		switch {
		case err == nil:
		case event.N <= 0:
			return tooLong()
		default:
			return broken(fmt.Errorf("the stream ended early: %w", err))
		}
		if rest, err := deliver(name, data, see); rest || err != nil {
			return err
		}
	}
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
		return false, passing(p.err(), 0)
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
