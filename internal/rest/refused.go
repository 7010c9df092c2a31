package rest

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// logRefusal logs a refused change of jobs, limits or alerts. Calls that only read, and agents' calls, are not logged
// here: agents repeat theirs.
func (c *call) logRefusal(rt *route, err error) {
	if rt.tag == "agents" || rt.method == "" || rt.method == http.MethodGet {
		return
	}
	p := problemOf(c.r, err)
	if p.Status >= http.StatusInternalServerError { // see fail
		return
	}
	attrs := []slog.Attr{slog.String("method", rt.method), slog.String("path", printable(c.r.URL.Path)),
		slog.Int("status", p.Status), slog.String("code", string(p.Code)), slog.String("error", printable(p.Detail))}
	if strings.HasPrefix(rt.path, "/v1/jobs/{id}") {
		for _, name := range [][2]string{{"job", "id"}, {"step", "name"}} {
			if value := c.r.PathValue(name[1]); value != "" && misnamed(value, perdure.MaxKeyLength) == "" {
				attrs = append(attrs, slog.String(name[0], value))
			}
		}
	}
	if c.Access == nil || operate.IdentityOf(c.r.Context()) != nil { // otherwise the caller is not known
		if author, err := c.author(); err == nil {
			attrs = append(attrs, slog.String("author", author))
		}
	}
	c.Log.LogAttrs(c.r.Context(), slog.LevelInfo, "request refused", attrs...)
}

// logRefusedReports logs one line with the number of refused reports of a call, and the first of them. reportOf returns the
// report of a result; nil if the report could not be read.
func (c *call) logRefusedReports(holder string, results []protocol.ReportResult, reportOf func(int) *protocol.Report) {
	refused, first := 0, -1
	for i := range results {
		if results[i].Accepted {
			continue
		}
		if refused++; first < 0 {
			first = i
		}
	}
	if refused == 0 {
		return
	}
	attrs := []slog.Attr{slog.String("holder", holder), slog.Int("refused", refused), slog.Int("of", len(results))}
	if r := reportOf(first); r != nil {
		attrs = append(attrs, slog.String("job", r.Job.String()), slog.String("step", printable(r.Step)), slog.Int64("run", r.Run))
	}
	attrs = append(attrs, slog.String("reason", string(results[first].Reason)), slog.String("error", printable(results[first].Message)))
	c.Log.LogAttrs(c.r.Context(), slog.LevelInfo, "reports refused", attrs...)
}
