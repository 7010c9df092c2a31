package rest

import (
	"net/http"
	"reflect"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func (a *api) runRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/v1/jobs/{id}/runs", id: "getRuns", tag: "jobs", do: (*call).runs,
		summary: "Get a job's recorded runs",
		doc:     "Every run that was dispatched, in the order of their starts: those that have ended, and those in flight. A value that was not recorded is missing: the holder of a run that is done and has no log, the time at which a step became ready for an earlier run that is done, and turn, direction and start of a run that ended under an older version.",
		params:  pageParams,
		results: []result{{status: http.StatusOK, doc: "A page of runs, in the order of their starts", of: reflect.TypeFor[perdure.Page[operate.RunRecord]](), example: runsOfJobExample}}, problems: []int{http.StatusNotFound},
	}}
}

func (c *call) runs() error {
	q := reader{query: c.query}
	query := operate.RunsQuery{Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	var err error
	if query.Job, err = c.path("id"); err != nil {
		return err
	}
	page, err := c.Service.Runs(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcRun))
}

func utcRun(r *operate.RunRecord) *operate.RunRecord {
	out := *r
	utc(&out.ReadyAt, &out.StartedAt, &out.EndedAt)
	return &out
}
