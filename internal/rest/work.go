package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/protocol"
)

// work answers with reportsAnswer or, without results, with claimAnswer: as encoding/json would have it, but for spaces
// in inputs. These two come with a thousand runs at a time, and took a server a tenth of its time.
func (c *call) work(results []protocol.ReportResult, runs []perdure.Run) error {
	return c.written(http.StatusOK, sizeOf(results, runs), func(b *bytes.Buffer) error {
		body, err := appendWork(b.AvailableBuffer(), results, inUTC(runs))
		b.Write(body)
		return err
	})
}

// sizeOf estimates the length of the answer.
func sizeOf(results []protocol.ReportResult, runs []perdure.Run) int {
	const each = 64 // of a result; a run takes ten times as much, without its values
	size := each * len(results)
	for i := range runs {
		size += 10*each + len(runs[i].Input) + len(runs[i].Output)
	}
	return size
}

func appendWork(b []byte, results []protocol.ReportResult, runs []perdure.Run) ([]byte, error) {
	b = append(b, '{')
	if results != nil {
		b = append(b, `"results":[`...)
		for i := range results {
			b = appendResult(b, &results[i])
		}
		b = append(closed(b), ']', ',')
	}
	if results == nil || len(runs) > 0 {
		b = append(b, `"runs":[`...)
		for i := range runs {
			var err error
			if b, err = appendRun(b, &runs[i]); err != nil {
				return nil, err
			}
		}
		b = append(closed(b), ']', ',')
	}
	return append(closed(b), '}', '\n'), nil
}

// closed is b without the comma at its end.
func closed(b []byte) []byte { return bytes.TrimSuffix(b, []byte{','}) }

func appendResult(b []byte, r *protocol.ReportResult) []byte {
	b = append(b, '{')
	b = strconv.AppendBool(append(b, `"accepted":`...), r.Accepted)
	b = appendMember(b, "reason", string(r.Reason))
	b = appendMember(b, "message", r.Message)
	return append(b, '}', ',')
}

func appendRun(b []byte, r *perdure.Run) ([]byte, error) {
	id, err := r.Job.MarshalText()
	if err != nil {
		return nil, err
	}
	direction, err := r.Direction.MarshalText()
	if err != nil {
		return nil, err
	}
	b = append(append(append(b, `{"job":"`...), id...), `","step":`...)
	b = append(appendText(b, r.Step), `,"action":`...)
	b = append(appendText(b, r.Action), `,"run":`...)
	b = append(strconv.AppendInt(b, r.Number, 10), `,"direction":"`...)
	b = append(append(b, direction...), `","input":`...)
	b = appendRaw(b, r.Input)
	if len(r.Output) > 0 {
		b = appendRaw(append(b, `,"output":`...), r.Output)
	}
	b = appendMember(b, "doKey", r.DoKey)
	b = append(appendText(append(b, `,"key":`...), r.Key), `,"lockedUntil":"`...)
	b = append(r.LockedUntil.AppendFormat(b, time.RFC3339Nano), `","completeBy":"`...)
	b = append(r.CompleteBy.AppendFormat(b, time.RFC3339Nano), `","remainingMs":`...)
	b = strconv.AppendInt(b, r.RemainingMs, 10)
	if r.WaitedMs != 0 {
		b = strconv.AppendInt(append(b, `,"waitedMs":`...), r.WaitedMs, 10)
	}
	b = strconv.AppendInt(append(b, `,"priority":`...), int64(r.Priority), 10)
	b = appendMember(b, "traceparent", r.Traceparent)
	return append(b, '}', ','), nil
}

// appendMember adds a member that is left out where it is empty.
func appendMember(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return appendText(append(append(append(b, ',', '"'), name...), '"', ':'), text)
}

// appendRaw adds JSON that was read, or rendered, and is whole; or there is none.
func appendRaw(b []byte, raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return appendEscaped(b, text)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

func appendEscaped(b []byte, text string) []byte {
	var quoted bytes.Buffer
	_ = encodeJSON(&quoted, text) // a string's always succeeds
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte{'\n'})...)
}
