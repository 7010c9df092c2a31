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

// Follow implements perdure.Jobs over server-sent events. If a stream breaks before the job was at rest, Follow opens
// another one, and see is called with the whole job again. If the server cannot be reached for too long (see Patience),
// Follow returns an error.
func (c *Client) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	var lost outage
	rests := false
	for {
		err := c.stream(ctx, &request{method: http.MethodGet, path: jobPath(ref) + "/events"}, func(e *event) (bool, error) {
			return deliver(e.name, e.data, func(job *perdure.JobView) error {
				lost, rests = outage{}, job.AtRest()
				return see(job)
			})
		})
		gone := awayIn(err)
		switch {
		case gone == nil:
			return err
		case rests:
			return nil // only the end of the stream was missing
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

// stream reads one stream. handle reports whether an event was the last one. If the stream breaks before that, the error
// is *away.
func (c *Client) stream(ctx context.Context, req *request, handle func(*event) (last bool, err error)) error {
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silentTimeout, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	resp, at, err := c.send(reading, req)
	broken := func(err error) error {
		return c.unreachable(ctx, at, cmp.Or(context.Cause(reading), err), silentTimeout)
	}
	if err != nil {
		return broken(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refused(at, resp)
	}
	body := &io.LimitedReader{R: resp.Body}
	in := bufio.NewReaderSize(body, 64<<10)
	for {
		body.N = maxAnswer
		e, err := readEvent(in, func() { silent.Reset(silentTimeout) })
		switch {
		case err == nil:
		case body.N <= 0:
			return tooLong()
		default:
			return broken(fmt.Errorf("the stream ended early: %w", err))
		}
		if last, err := handle(e); last || err != nil {
			return err
		}
	}
}

// deliver handles one event. rest reports whether it was the last one.
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

// event is a server-sent event.
type event struct {
	name, id string
	data     []byte
}

// readEvent reads the next event. heard is called after every line, including comments.
func readEvent(in *bufio.Reader, heard func()) (*event, error) {
	e := &event{}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err // an event ends with an empty line
		}
		heard()
		line = bytes.TrimRight(line, "\r\n")
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && e.name != "":
			return e, nil
		case len(line) == 0:
			e.data = nil
		case string(field) == "event":
			e.name = string(value)
		case string(field) == "id":
			e.id = string(value)
		case string(field) == "data" && e.data == nil:
			e.data = value
		case string(field) == "data":
			e.data = append(append(e.data, '\n'), value...)
		}
	}
}
