package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"reflect"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/negotiate"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

const (
	mediaText        = "text/plain; charset=utf-8"
	nextOffsetHeader = "Perdure-Next-Offset"
	maxLogBody       = protocol.MaxLogBytes*4/3 + perdure.MaxBatch*(1<<10) // data in base64, and the other fields
)

type logChunkBody struct {
	Job    string `json:"job" doc:"Id of the job"`
	Step   string `json:"step" doc:"Name of the step"`
	Run    int64  `json:"run" minimum:"1" doc:"Number of the run"`
	Stream string `json:"stream" doc:"stdout or stderr"`
	Offset int64  `json:"offset" minimum:"0" doc:"Offset of the first byte of data, counted from the start of the stream"`
	Data   string `json:"data,omitempty" doc:"At most 64 KiB, in base64"`
	Skips  bool   `json:"skips,omitempty" doc:"The bytes before offset that were not yet sent will not be sent: readers see how many are missing"`
	Last   bool   `json:"last,omitempty" doc:"Nothing follows in this stream"`
}

type logsBody struct {
	Holder string         `json:"holder" doc:"The holder of the runs"`
	Chunks []logChunkBody `json:"chunks" doc:"At most 1,000, with 4 MiB of data together"`
}

type logResult struct {
	Accepted     bool   `json:"accepted"`
	Reason       string `json:"reason,omitempty" doc:"full: the node has reached its bound on bytes a second, and has room after retryAfterMs. gap: bytes before the chunk are missing; send from next on, or with skips. late: the run is over and the holder had no log of it, or the stream was ended by last. forbidden, unknown, invalid: as for reports"`
	Message      string `json:"message,omitempty"`
	Next         int64  `json:"next" doc:"Offset of the next byte that the log needs"`
	RetryAfterMs int64  `json:"retryAfterMs,omitempty" doc:"With full: when there is room"`
}

type logsAnswer struct {
	Results []logResult `json:"results"`
}

func (a *api) logRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/v1/logs", id: "appendLogs", tag: "agents", do: (*call).appendLogs,
			summary: "Add to logs",
			doc: "Stores what runs have written. Each chunk has its own result, in the same order. Bytes that the log already has are accepted again. " +
				"The holder begins the log while the run is its own, with a chunk that may be empty, and may add to it after the report. " +
				"A log keeps its first and its last 8 MiB.",
			body:    &media{of: reflect.TypeFor[logsBody](), example: logsExample},
			results: []result{{status: http.StatusOK, doc: "The result of each chunk", of: reflect.TypeFor[logsAnswer](), example: logsAnswerExample}}, problems: []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusTooManyRequests},
		},
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/steps/{name}/logs", id: "getLogs", tag: "jobs", do: (*call).readLogs,
			summary: "Read the log of a run",
			doc: "The bytes that the run has written, and a line such as `… 312 MiB left out …` where some are not stored. With `follow=true` the answer ends when the log is complete. " +
				"With `Accept: text/event-stream` the answer is a stream of events `part`, each with `run`, `offset`, `leftOut` (bytes before offset that are not stored), `size` (the present end of the log), `data` in base64 and, if the run or its log has ended, `end`; after the last part it has the event `end`. " +
				"A node serves 500 streams of single jobs, to which these belong.",
			params: []param{
				{name: "run", doc: "Number of the run; default: the latest run of the step", example: "3"},
				{name: "stream", doc: "stdout or stderr; default: stdout", example: "stderr"},
				{name: "offset", doc: "Offset of the first byte; default: 0", example: "65536"},
				{name: "tail", doc: "At most so many bytes before the present end, such as 64KiB", example: "64KiB"},
				{name: "follow", doc: "true: go on until the log is complete", example: "true"},
			},
			results: []result{
				{status: http.StatusPartialContent, types: []string{mediaText}, of: reflect.TypeFor[string](), doc: "The log as it is stored now", headers: map[string]string{nextOffsetHeader: "Offset of the byte after the answer. With follow it is a trailer"}},
				{status: http.StatusOK, types: []string{mediaEvents}, of: reflect.TypeFor[string]()},
			},
			problems: []int{http.StatusNotFound, http.StatusTooManyRequests},
		},
	}
}

func (c *call) appendLogs() error {
	doc, err := c.document(maxLogBody, false)
	if err != nil {
		return err
	}
	var results []logResult
	var chunks []protocol.LogChunk
	var indexes []int // of chunks: which of results answers it
	holder := readSet(doc, "chunks", nil, func(item value) {
		var res logResult
		if chunk, err := readLogChunk(item); err != nil {
			res.Reason, res.Message = string(protocol.RefusedInvalid), err.Error()
		} else {
			chunks, indexes = append(chunks, chunk), append(indexes, len(results))
		}
		results = append(results, res)
	})
	if err := doc.err(); err != nil {
		return err
	}
	if len(chunks) > 0 {
		answers, err := c.Service.AppendLogs(c.ctx(), holder, chunks)
		if err != nil {
			return err
		}
		for i, at := range indexes {
			a := &answers[i]
			results[at] = logResult{Accepted: a.Accepted, Reason: string(a.Reason), Message: a.Message, Next: a.Next, RetryAfterMs: a.RetryAfter.Milliseconds()}
		}
	}
	return c.json(http.StatusOK, &logsAnswer{Results: listOf(results)})
}

func readLogChunk(v value) (chunk protocol.LogChunk, err error) {
	before := len(v.doc.faults)
	for name, field := range v.fields() {
		switch string(name) {
		case "job":
			chunk.Job, _ = field.jobID()
		case "step":
			chunk.Step = field.name(perdure.MaxNameLength)
		case "run":
			chunk.Run = field.integer(0, maxRun)
		case "stream":
			chunk.Stream = operate.LogStream(field.string())
		case "offset":
			chunk.Offset = field.integer(0, maxRun)
		case "data":
			var err error
			if chunk.Data, err = base64.StdEncoding.DecodeString(field.string()); err != nil {
				field.fault("is not base64")
			}
		case "skips":
			chunk.Skips = field.boolean()
		case "last":
			chunk.Last = field.boolean()
		default:
			field.unknown("job", "step", "run", "stream", "offset", "data", "skips", "last")
		}
	}
	v.need("job", !chunk.Job.IsZero())
	v.need("step", chunk.Step != "")
	v.need("run", chunk.Run > 0)
	v.need("stream", chunk.Stream != "")
	if err := v.ownFaults(before); err != nil {
		return chunk, err
	}
	return chunk, chunk.Check()
}

// size reads a number of bytes, with or without a unit.
func (q *reader) size(name string) int64 {
	s, given := q.value(name, 20)
	if !given {
		return 0
	}
	n, err := operate.ParseSize(s)
	if err != nil {
		q.refuse(name, "must be a number of bytes, such as 65536 or 64KiB")
	}
	return n
}

// number reads an integer that is not below 0.
func (q *reader) number(name string) int64 {
	s, given := q.value(name, 20)
	if !given {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > maxRun {
		q.refuse(name, "must be an integer from 0 to "+strconv.FormatInt(maxRun, 10))
	}
	return n
}

func (c *call) readLogs() error {
	r := reader{query: c.query}
	q := operate.LogQuery{Run: r.number("run"), Stream: operate.LogStream(r.word("stream", string(operate.Stdout), string(operate.Stderr))),
		Offset: r.number("offset"), Tail: r.size("tail"), Follow: r.flag("follow")}
	if r.err != nil {
		return r.err
	}
	var err error
	if q.Job, err = c.path("id"); err != nil {
		return err
	}
	if q.Step, err = c.path("name"); err != nil {
		return err
	}
	q.Follow = q.Follow && !c.shuttingDown()
	release, err := c.streams.take("event streams and readers of logs")
	if err != nil {
		return err
	}
	defer release()
	if negotiate.Names(c.r.Header, mediaEvents) {
		if c.r.Method == http.MethodHead {
			streamHeaders(c.w)
			return nil
		}
		return c.stream(func(ctx context.Context, s *stream) error {
			if err := c.Service.ReadLog(ctx, q, func(p *operate.LogPart) error { return s.event(ctx, "part", p) }); err != nil {
				return err
			}
			return s.send("end", struct{}{})
		})
	}
	return c.textLog(q)
}

// errHead ends the reading of a log of which only the headers are requested.
var errHead = errors.New("no body is requested")

// textLog answers with the bytes of a log. The status is sent with the first part, so that the reader knows that it
// follows a log that is still empty.
func (c *call) textLog(q operate.LogQuery) error {
	ctx, cancel, err := c.longPoll(0)
	if err != nil {
		return err
	}
	defer cancel()
	s := &stream{call: c}
	ctx = admission.With(ctx, admission.Gate{Admit: s.admit, Room: s.outbound.room})
	next := int64(0)
	err = orRevoked(ctx, c.Service.ReadLog(ctx, q, func(p *operate.LogPart) error {
		if !s.begun {
			s.begun = true
			s.logHeaders(q, p)
		}
		next = p.Next()
		if c.r.Method == http.MethodHead {
			return errHead
		}
		return s.write(func(b *bytes.Buffer) error {
			if p.LeftOut > 0 {
				b.WriteString("\n" + operate.LeftOutText(p.LeftOut) + "\n")
			}
			b.Write(p.Data)
			return nil
		})
	}))
	switch {
	case errors.Is(err, errHead):
		return nil
	case err != nil && !s.begun:
		return c.unidentified(err)
	case ctxEnded(err) || s.isBroken():
		if q.Follow {
			c.w.Header().Set(nextOffsetHeader, strconv.FormatInt(next, 10))
		}
		return nil
	}
	// The answer has begun. Its reader must not take it for complete.
	panic(http.ErrAbortHandler)
}

func (s *stream) logHeaders(q operate.LogQuery, first *operate.LogPart) {
	h := s.w.Header()
	h.Set("Content-Type", mediaText)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	if q.Follow {
		h.Set("Trailer", nextOffsetHeader)
	} else {
		h.Set(nextOffsetHeader, strconv.FormatInt(max(first.Size, q.Offset), 10))
	}
	s.w.WriteHeader(http.StatusPartialContent)
}
