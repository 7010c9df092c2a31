package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// Runs implements operate.Service.
//
// The history has the runs that have ended, except for the latest run of a step that has succeeded. That one, and the
// runs in flight, are in the rows of the steps. The rows are read first: a run that ends meanwhile is then found twice,
// and not missed.
func (svc *Service) Runs(ctx context.Context, q operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
	after, err := runPlace(q.Cursor)
	if err != nil {
		return nil, err
	}
	limit := pageSize(q.Limit)
	return onceMade(ctx, svc, q.Job, 0, func(ctx context.Context, id perdure.JobID) (*perdure.Page[operate.RunRecord], error) {
		p, err := svc.look(ctx, id)
		if err != nil {
			return nil, Unreachable(err)
		}
		if err := admission.Ask(ctx, limit*entryRoom+len(p.shape.Steps)*stepRoom); err != nil {
			return nil, err
		}
		_, steps, err := p.reread(ctx, time.Time{})
		if err != nil {
			return nil, err
		}
		entries, err := svc.Store.Runs(ctx, id, after, limit+1)
		if err != nil {
			return nil, Unreachable(err)
		}
		page := runsPage(steps, entries, after, limit)
		if err := svc.addHolders(ctx, id, page.Items); err != nil {
			return nil, Unreachable(err)
		}
		return page, nil
	})
}

// addHolders adds the holders of runs that are done. Neither their rows nor the history have them, but the logs that they
// have begun. So the runs of hosts have holders, because a host begins the logs of all its runs.
func (svc *Service) addHolders(ctx context.Context, id perdure.JobID, runs []operate.RunRecord) error {
	var wanted []kernel.LogRun
	records := map[kernel.LogRun]*operate.RunRecord{}
	for i := range runs {
		run := kernel.LogRun{Job: id, Step: runs[i].Step, Run: runs[i].Run}
		if runs[i].Holder == "" && records[run] == nil {
			wanted, records[run] = append(wanted, run), &runs[i]
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	logs, err := svc.Store.Logs(ctx, wanted)
	for i := range logs {
		records[logs[i].LogRun].Holder = logs[i].Holder
	}
	return err
}

// placedRun is a run, with its place in the order of starts.
type placedRun struct {
	kernel.RunPlace
	operate.RunRecord
}

// runsPage merges the runs of the rows and those of the history. Of a run that is in both, the entry is newer.
func runsPage(steps []*kernel.Step, entries []kernel.Entry, after kernel.RunPlace, limit int) *perdure.Page[operate.RunRecord] {
	runs := make([]placedRun, 0, len(entries))
	for i := range entries {
		runs = append(runs, placedRun{entries[i].Place(), runOfEntry(&entries[i])})
	}
	for _, s := range steps {
		at := kernel.RunPlace{StartedAt: s.StartedAt, Step: s.Name, Run: s.Run}
		if s.RowHasRun() && at.Compare(after) > 0 {
			runs = append(runs, placedRun{at, runOfRow(s)})
		}
	}
	slices.SortStableFunc(runs, func(a, b placedRun) int { return a.RunPlace.Compare(b.RunPlace) })
	runs = slices.CompactFunc(runs, func(a, b placedRun) bool { return a.RunPlace.Compare(b.RunPlace) == 0 })
	page := &perdure.Page[operate.RunRecord]{Items: make([]operate.RunRecord, 0, min(len(runs), limit))}
	for i := range runs {
		if i == limit {
			page.NextCursor = runCursor(runs[i-1].RunPlace)
			break
		}
		page.Items = append(page.Items, runs[i].RunRecord)
	}
	return page
}

func runOfEntry(e *kernel.Entry) operate.RunRecord {
	v := operate.RunRecord{Step: e.Step, Run: e.Run, Turn: e.Turn, Holder: e.Author, ReadyAt: e.ReadyAt, StartedAt: e.StartedAt, EndedAt: e.At, Error: e.Detail}
	if e.Turn > 0 {
		v.Direction = new(e.Direction)
	}
	_ = v.Outcome.UnmarshalText([]byte(e.Event)) // the event of a run is its outcome
	return v
}

func runOfRow(s *kernel.Step) operate.RunRecord {
	return operate.RunRecord{Step: s.Name, Run: s.Run, Turn: s.Turn, Direction: new(s.Direction), Holder: s.LockedBy,
		ReadyAt: s.RunReadyAt(), StartedAt: s.StartedAt, EndedAt: s.EndedAt, Outcome: s.Outcome}
}

// runCursor and runPlace convert a place to a cursor and back. The zero place is the empty cursor.
func runCursor(p kernel.RunPlace) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d %s", p.StartedAt.UnixMicro(), p.Run, p.Step))
}

func runPlace(cursor string) (p kernel.RunPlace, err error) {
	if cursor == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(text), " ", 3)
	if err != nil || len(parts) != 3 {
		return p, errCursor
	}
	micros, bad := strconv.ParseInt(parts[0], 10, 64)
	run, alsoBad := strconv.ParseInt(parts[1], 10, 64)
	if cmp.Or(bad, alsoBad) != nil || run <= 0 || !isStepName(parts[2]) || micros < 0 {
		return p, errCursor
	}
	p = kernel.RunPlace{StartedAt: time.UnixMicro(micros).UTC(), Step: parts[2], Run: run}
	if runCursor(p) != cursor {
		return kernel.RunPlace{}, errCursor
	}
	return p, nil
}

// isStepName reports whether a step may have this name, as far as a store must be able to compare it.
func isStepName(s string) bool {
	return s != "" && len(s) <= perdure.MaxNameLength && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
