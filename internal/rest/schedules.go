package rest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/operate"
)

// The types of the bodies, for the OpenAPI description. The bodies are read field by field.
type (
	scheduleBody struct {
		Cron       cronText         `json:"cron,omitempty" doc:"One text of five fields (minute, hour, day of the month, month, day of the week), a word such as @daily, or a list of them. L is the last day, 5L the last Friday, 5#2 the second one. Exactly one of cron, every and at is given"`
		Every      perdure.Duration `json:"every,omitempty" doc:"Whole seconds, 1s at least, counted from from; without it, from the beginning of 1970 in UTC"`
		At         []time.Time      `json:"at,omitempty" maxItems:"1000" doc:"Single times, in whole seconds"`
		Timezone   string           `json:"timezone,omitempty" doc:"Of cron: a name of the IANA database; default: UTC"`
		Job        scheduleJobBody  `json:"job" doc:"The job that is submitted. ${schedule.time}, ${schedule.previous} and ${schedule.name} in its texts are replaced"`
		Overlap    overlapWord      `json:"overlap,omitempty" doc:"What happens while an earlier job has not settled; default: skip"`
		CatchUp    *catchUpBody     `json:"catchUp,omitempty" doc:"Which times that passed without a job still get one; default: the latest one of the last hour"`
		Jitter     perdure.Duration `json:"jitter,omitempty" doc:"Each job starts late by a part of it, at most 24h"`
		PauseAfter int              `json:"pauseAfter,omitempty" minimum:"0" maximum:"1000" doc:"After so many jobs in a row that were undone, given up or parked, the schedule is paused; 0: never"`
		From       *time.Time       `json:"from,omitempty" doc:"No job starts for an earlier time"`
		Until      *time.Time       `json:"until,omitempty" doc:"All jobs are for earlier times"`
		Paused     *bool            `json:"paused,omitempty" doc:"Pauses or resumes the schedule; without it, an existing schedule stays as it is"`
	}
	scheduleJobBody struct {
		Definition jobDefinition     `json:"definition" doc:"The definition, as in a submission: an object, or the text of a job file, without a key; or the name of a stored one: order, or order@7"`
		Input      json.RawMessage   `json:"input,omitempty" doc:"In place of the definition's"`
		Priority   *int              `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"In place of the definition's"`
		Labels     map[string]string `json:"labels,omitempty" doc:"In place of the definition's"`
	}
	catchUpBody struct {
		Within perdure.Duration `json:"within,omitempty" doc:"Only times that passed so long ago at most; default: 1h"`
		Max    int              `json:"max,omitempty" minimum:"0" maximum:"1000" doc:"Of these, only so many: the latest; default: 1"`
	}
	pauseBody struct {
		Reason string `json:"reason,omitempty" doc:"Why, for other operators and the audit log"`
	}
	resumeScheduleBody struct {
		CatchUp bool `json:"catchUp,omitempty" doc:"Catch up the times that have passed meanwhile, as after an outage. Without it they are left out"`
	}
	triggerBody struct {
		At time.Time `json:"at,omitempty" doc:"The nominal time, in whole seconds; default: now"`
	}
	backfillBody struct {
		From     time.Time `json:"from" doc:"The first time"`
		To       time.Time `json:"to" doc:"All times are earlier; not later than now"`
		Parallel int       `json:"parallel,omitempty" minimum:"1" maximum:"100" doc:"How many of its jobs may be unsettled at once; default: 4"`
		DryRun   bool      `json:"dryRun,omitempty" doc:"Store nothing"`
		Again    bool      `json:"again,omitempty" doc:"All times get a new job, also those that have one"`
	}
	cronText      []string
	jobDefinition json.RawMessage
	overlapWord   string
	scheduleState string
	firingState   string
	firingReason  string
)

func (overlapWord) Schema(huma.Registry) *huma.Schema   { return words(operate.ScheduleOverlaps...) }
func (scheduleState) Schema(huma.Registry) *huma.Schema { return words(operate.ScheduleStates...) }

func (cronText) Schema(huma.Registry) *huma.Schema {
	text := &huma.Schema{Type: huma.TypeString}
	return &huma.Schema{AnyOf: []*huma.Schema{text, {Type: huma.TypeArray, Items: text}}}
}

func (jobDefinition) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{}}, {Type: huma.TypeString}}}
}

func (firingState) Schema(huma.Registry) *huma.Schema  { return words(operate.FiringStates...) }
func (firingReason) Schema(huma.Registry) *huma.Schema { return words(operate.FiringReasons...) }

var scheduleFields = []string{"cron", "every", "at", "timezone", "job", "overlap", "catchUp", "jitter", "pauseAfter", "from", "until", "paused"}

func (a *api) scheduleRoutes() []route {
	view := reflect.TypeFor[operate.ScheduleView]()
	const one = "/v1/schedules/{name}"
	bodyProblems := []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	actProblems := append([]int{http.StatusNotFound}, bodyProblems...)
	return []route{
		{
			method: http.MethodGet, path: "/v1/schedules", id: "listSchedules", tag: "schedules", do: (*call).listSchedules,
			summary: "List schedules", doc: "In the order of their names.",
			params:  append([]param{{name: "state", doc: "active, paused or ended", example: "paused"}}, pageParams...),
			results: []result{{status: http.StatusOK, doc: "A page of schedules", of: reflect.TypeFor[perdure.Page[operate.ScheduleView]](), example: `{"items":[` + scheduleExample + `]}`}},
		},
		{
			method: http.MethodGet, path: one, id: "getSchedule", tag: "schedules", do: (*call).getSchedule,
			summary: "Get a schedule", results: []result{{status: http.StatusOK, doc: "The schedule", of: view, example: scheduleExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: one, id: "putSchedule", tag: "schedules", do: (*call).putSchedule,
			summary: "Create or replace a schedule",
			doc: "A schedule that exists keeps its state and its history. If its rule of times changes, the new one begins now. " +
				"The job of each time has the key @schedule:NAME:TIME, so that there is never a second one. At most 10,000 schedules; another is a conflict.",
			headers: authorParam, body: &media{of: reflect.TypeFor[scheduleBody](), example: scheduleBodyExample},
			params: []param{{name: "dryRun", doc: "true: apply the rules, store nothing, and answer what the schedule would be", example: "true"}},
			results: []result{
				{status: http.StatusOK, doc: "The schedule was replaced; with dryRun, what it would be", of: view, example: scheduleExample},
				{status: http.StatusCreated, doc: "The schedule was created", of: view, example: scheduleExample},
			},
			problems: append([]int{http.StatusForbidden}, bodyProblems...),
		},
		{
			method: http.MethodDelete, path: one, id: "deleteSchedule", tag: "schedules", do: (*call).deleteSchedule,
			summary: "Delete a schedule", doc: "With its history. Its jobs stay.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The schedule was deleted"}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPost, path: one + "/pause", id: "pauseSchedule", tag: "schedules", do: (*call).pauseSchedule,
			summary: "Pause a schedule", doc: "It starts no jobs, not those of a backfill either. Jobs that run go on.",
			headers: authorParam, body: &media{of: reflect.TypeFor[pauseBody](), optional: true, example: `{"reason":"the warehouse moves"}`},
			results:  []result{{status: http.StatusOK, doc: "The schedule", of: view, example: scheduleExample}},
			problems: actProblems,
		},
		{
			method: http.MethodPost, path: one + "/resume", id: "resumeSchedule", tag: "schedules", do: (*call).resumeSchedule,
			summary: "Resume a schedule", doc: "The times that have passed meanwhile are left out, unless catchUp is set. The alert of the schedule is closed.",
			headers: authorParam, body: &media{of: reflect.TypeFor[resumeScheduleBody](), optional: true, example: `{"catchUp":true}`},
			results:  []result{{status: http.StatusOK, doc: "The schedule", of: view, example: scheduleExample}},
			problems: actProblems,
		},
		{
			method: http.MethodPost, path: one + "/trigger", id: "triggerSchedule", tag: "schedules", do: (*call).triggerSchedule,
			summary: "Start a job of a schedule now", doc: "Whatever the overlap rule says, and also while the schedule is paused. If the time has a job already, the answer is that one.",
			headers: authorParam, body: &media{of: reflect.TypeFor[triggerBody](), optional: true, example: `{"at":"2026-12-01T01:30:00Z"}`},
			results: []result{
				{status: http.StatusOK, doc: "The time had a job already", of: reflect.TypeFor[operate.ScheduleFired](), example: firedExample},
				{status: http.StatusCreated, doc: "The job was submitted", of: reflect.TypeFor[operate.ScheduleFired](), example: firedExample},
			},
			problems: actProblems,
		},
		{
			method: http.MethodPost, path: one + "/backfill", id: "backfillSchedule", tag: "schedules", do: (*call).backfillSchedule,
			summary: "Start the jobs of past times", doc: "Those that have no job. At most 10,000 times. Only one backfill of a schedule runs at a time; another is a conflict.",
			headers: authorParam, body: &media{of: reflect.TypeFor[backfillBody](), example: `{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","parallel":4}`},
			results:  []result{{status: http.StatusOK, doc: "How many times get a job, and the first of them", of: reflect.TypeFor[operate.BackfillView](), example: backfillExample}},
			problems: actProblems,
		},
		{
			method: http.MethodGet, path: one + "/next", id: "nextTimes", tag: "schedules", do: (*call).nextTimes,
			summary: "List the next times of a schedule", params: []param{{name: "n", doc: "How many, 1 to 100; default: 5", example: "20"}},
			results: []result{{status: http.StatusOK, doc: "The nominal times", of: reflect.TypeFor[list[time.Time]](), example: `{"items":["2026-12-01T01:30:00Z","2026-12-02T01:30:00Z"]}`}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: one + "/firings", id: "listFirings", tag: "schedules", do: (*call).listFirings,
			summary: "List the history of a schedule", doc: "Newest first: each nominal time with its job, or the times that got none, with the reason. Kept for 90 days.",
			params:  pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of the history", of: reflect.TypeFor[perdure.Page[operate.Firing]](), example: firingsExample}}, problems: []int{http.StatusNotFound},
		},
	}
}

// maxScheduleBody bounds the body of a schedule.
const maxScheduleBody = 4 * operate.MaxScheduleBytes

func utcSchedule(v *operate.ScheduleView) *operate.ScheduleView {
	out := *v
	utc(&out.CreatedAt, &out.UpdatedAt)
	out.At, out.Next, out.Waiting = utcTimes(v.At), listOf(utcTimes(v.Next)), utcTimes(v.Waiting)
	out.Running = listOf(v.Running)
	for _, t := range []**time.Time{&out.From, &out.Until} {
		if *t != nil {
			*t = new((*t).UTC())
		}
	}
	if v.Last != nil {
		out.Last = new(*v.Last)
		utc(&out.Last.Time)
	}
	if v.Backfill != nil {
		out.Backfill = utcBackfill(v.Backfill)
	}
	return &out
}

func utcBackfill(b *operate.BackfillView) *operate.BackfillView {
	out := *b
	utc(&out.From, &out.To, &out.Next)
	out.First = utcTimes(b.First)
	return &out
}

func utcFiring(f *operate.Firing) *operate.Firing {
	out := *f
	utc(&out.Time, &out.To, &out.At)
	return &out
}

func utcTimes(times []time.Time) (out []time.Time) {
	for _, t := range times {
		out = append(out, t.UTC())
	}
	return out
}

func (c *call) listSchedules() error {
	q := reader{query: c.query}
	query := operate.ScheduleQuery{State: operate.ScheduleState(q.word("state", operate.Texts(operate.ScheduleStates)...)), Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListSchedules(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcSchedule))
}

func (c *call) getSchedule() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	v, err := c.Service.GetSchedule(c.ctx(), name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcSchedule(v))
}

// act returns the name in the path, the author, and the body of a call that changes a schedule.
func (c *call) scheduleAct(max int64, mayBeEmpty bool) (name, author string, doc *document, err error) {
	if name, err = c.path("name"); err != nil {
		return "", "", nil, err
	}
	if author, err = c.author(); err != nil {
		return "", "", nil, err
	}
	doc, err = c.document(max, mayBeEmpty)
	return name, author, doc, err
}

func (c *call) putSchedule() error {
	q := reader{query: c.query}
	dryRun := q.flag("dryRun")
	if q.err != nil {
		return q.err
	}
	name, author, doc, err := c.scheduleAct(maxScheduleBody, false)
	if err != nil {
		return err
	}
	r := operate.ScheduleRequest{Name: name, Author: author, DryRun: dryRun, ScheduleSettings: readSchedule(doc.root(), nil)}
	if err := doc.err(); err != nil {
		return err
	}
	v, created, err := c.Service.PutSchedule(c.ctx(), r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created && !dryRun {
		status = http.StatusCreated
	}
	return c.json(status, utcSchedule(v))
}

// ReadSchedule reads a schedule of JSON: the body of putSchedule, and the name. The error is a *perdure.Error with all faults,
// each with its pointer.
func ReadSchedule(text []byte) (operate.ScheduleRequest, error) {
	doc := parse(text)
	var r operate.ScheduleRequest
	r.ScheduleSettings = readSchedule(doc.root(), &r.Name)
	return r, doc.err()
}

// readSchedule reads the settings of a schedule, and its name if named is not nil.
func readSchedule(root value, named *string) (s operate.ScheduleSettings) {
	hasJob := false
	for name, field := range root.fields() {
		if field.null() {
			continue
		}
		switch name := string(name); name {
		case "cron":
			s.Cron = field.cron()
		case "every":
			s.Every = perdure.Duration(field.duration(operate.MinSchedulePeriod, perdure.MaxDuration))
		case "at":
			s.At = field.times(operate.MaxScheduleTimes)
		case "timezone":
			s.Timezone = field.name(perdure.MaxNameLength)
		case "job":
			s.Job, hasJob = readScheduleJob(field), true
		case "overlap":
			s.Overlap = operate.ScheduleOverlap(field.word(operate.Texts(operate.ScheduleOverlaps)))
		case "catchUp":
			s.CatchUp = readCatchUp(field)
		case "jitter":
			s.Jitter = perdure.Duration(field.duration(0, operate.MaxScheduleJitter))
		case "pauseAfter":
			s.PauseAfter = int(field.integer(0, operate.MaxScheduleFailures))
		case "from":
			s.From = new(field.time())
		case "until":
			s.Until = new(field.time())
		case "paused":
			s.Paused = new(field.boolean())
		case "type", "steps":
			field.faultAt(field.pointer(), "it belongs to the job: put it below job.definition", "is not a field of a schedule")
		default:
			if name == "name" && named != nil {
				*named = field.name(perdure.MaxNameLength)
			} else {
				field.unknown(scheduleFields...)
			}
		}
	}
	root.need("job", hasJob)
	if named != nil {
		root.need("name", *named != "")
	}
	return s
}

// cron reads a text, or a list of texts.
func (v value) cron() operate.ScheduleCron {
	if v.kind() != jsontext.List {
		return operate.ScheduleCron{v.text(perdure.MaxExpressionBytes)}
	}
	list := operate.ScheduleCron{}
	for i, item := range v.items() {
		if i == operate.MaxScheduleRules {
			v.fault("has more than %d texts", operate.MaxScheduleRules)
		}
		if s := item.text(perdure.MaxExpressionBytes); i < operate.MaxScheduleRules {
			list = append(list, s)
		}
	}
	return list
}

// times reads a list of times.
func (v value) times(most int) []time.Time {
	list := []time.Time{}
	for i, item := range v.items() {
		if i == most {
			v.fault("has more than %d times", most)
		}
		if t := item.time(); i < most {
			list = append(list, t)
		}
	}
	return list
}

func readScheduleJob(v value) (job operate.ScheduleJob) {
	for name, field := range v.fields() {
		if field.null() {
			continue
		}
		switch string(name) {
		case "definition":
			if k := field.kind(); k != jsontext.Object && k != jsontext.String {
				field.fault("must be an object, the text of a job file, or the name of a stored definition")
				continue
			}
			job.Definition = field.raw()
		case "input":
			job.Input = field.raw()
		case "priority":
			job.Priority = new(int(field.integer(0, perdure.MaxPriority)))
		case "labels":
			job.Labels = field.labels()
		default:
			field.unknown("definition", "input", "priority", "labels")
		}
	}
	v.need("definition", job.Definition != nil)
	return job
}

func readCatchUp(v value) *operate.ScheduleCatchUp {
	c := &operate.ScheduleCatchUp{}
	for name, field := range v.fields() {
		if field.null() {
			continue
		}
		switch string(name) {
		case "within":
			c.Within = new(perdure.Duration(field.duration(0, perdure.MaxDuration)))
		case "max":
			c.Max = new(int(field.integer(0, operate.MaxCatchUp)))
		default:
			field.unknown("within", "max")
		}
	}
	return c
}

func (c *call) deleteSchedule() error {
	name, author, err := c.actOn("name")
	if err != nil {
		return err
	}
	if err := c.Service.DeleteSchedule(c.ctx(), name, author); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) pauseSchedule() error {
	name, author, doc, err := c.scheduleAct(maxSmallBody, true)
	if err != nil {
		return err
	}
	r := operate.SchedulePause{Name: name, Author: author}
	for field, v := range doc.root().fields() {
		if string(field) != "reason" {
			v.unknown("reason")
			continue
		}
		r.Reason = v.prose(perdure.MaxReasonBytes)
	}
	if err := doc.err(); err != nil {
		return err
	}
	return c.changedSchedule(c.Service.PauseSchedule(c.ctx(), r))
}

func (c *call) resumeSchedule() error {
	name, author, doc, err := c.scheduleAct(maxSmallBody, true)
	if err != nil {
		return err
	}
	r := operate.ScheduleResume{Name: name, Author: author}
	for field, v := range doc.root().fields() {
		if string(field) != "catchUp" {
			v.unknown("catchUp")
			continue
		}
		r.CatchUp = v.boolean()
	}
	if err := doc.err(); err != nil {
		return err
	}
	return c.changedSchedule(c.Service.ResumeSchedule(c.ctx(), r))
}

func (c *call) changedSchedule(v *operate.ScheduleView, err error) error {
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcSchedule(v))
}

func (c *call) triggerSchedule() error {
	name, author, doc, err := c.scheduleAct(maxSmallBody, true)
	if err != nil {
		return err
	}
	r := operate.ScheduleTrigger{Name: name, Author: author}
	for field, v := range doc.root().fields() {
		switch {
		case string(field) != "at":
			v.unknown("at")
		case !v.null():
			r.At = v.time()
		}
	}
	if err := doc.err(); err != nil {
		return err
	}
	fired, err := c.Service.TriggerSchedule(c.ctx(), r)
	if err != nil {
		return err
	}
	out, status := *fired, http.StatusOK
	utc(&out.Time)
	if fired.Created {
		status = http.StatusCreated
	}
	return c.json(status, &out)
}

func (c *call) backfillSchedule() error {
	name, author, doc, err := c.scheduleAct(maxSmallBody, false)
	if err != nil {
		return err
	}
	r := operate.ScheduleBackfill{Name: name, Author: author}
	root := doc.root()
	for field, v := range root.fields() {
		if v.null() {
			continue
		}
		switch string(field) {
		case "from":
			r.From = v.time()
		case "to":
			r.To = v.time()
		case "parallel":
			r.Parallel = int(v.integer(1, operate.MaxParallel))
		case "dryRun":
			r.DryRun = v.boolean()
		case "again":
			r.Again = v.boolean()
		default:
			v.unknown("from", "to", "parallel", "dryRun", "again")
		}
	}
	root.need("from", !r.From.IsZero())
	root.need("to", !r.To.IsZero())
	if err := doc.err(); err != nil {
		return err
	}
	v, err := c.Service.BackfillSchedule(c.ctx(), r)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcBackfill(v))
}

func (c *call) nextTimes() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	n := 0
	q := reader{query: c.query}
	if s, given := q.value("n", 20); given {
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > operate.MaxNextTimes {
			q.refuse("n", "must be from 1 to "+itoa(operate.MaxNextTimes))
		}
	}
	if q.err != nil {
		return q.err
	}
	times, err := c.Service.NextTimes(c.ctx(), name, n)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, &list[time.Time]{Items: listOf(utcTimes(times))})
}

func (c *call) listFirings() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	q := reader{query: c.query}
	query := operate.FiringQuery{Name: name, Limit: q.limit(), Cursor: q.cursor()}
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListFirings(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcFiring))
}

const (
	scheduleBodyExample = `{"cron":"30 2 * * *","timezone":"Europe/Warsaw","job":{"definition":{"type":"report","steps":{"make":{"agent":"http","with":{"url":"https://reports.example/make"}}}},"input":{"day":"${schedule.time}"}},"overlap":"skip","catchUp":{"within":"6h","max":1},"jitter":"5m","pauseAfter":3}`
	scheduleExample     = `{"name":"nightly","version":4,"cron":"30 2 * * *","timezone":"Europe/Warsaw","job":{"definition":{"type":"report","steps":{"make":{"agent":"http","with":{"url":"https://reports.example/make"}}}},"input":{"day":"${schedule.time}"}},"overlap":"skip","catchUp":{"within":"6h","max":1},"jitter":"5m","pauseAfter":3,"paused":false,"state":"active","next":["2026-12-01T01:30:00Z","2026-12-02T01:30:00Z"],"last":{"time":"2026-11-30T01:30:00Z","job":"job_0195fa3b6e1d7c4c8b6e0a1b2c3d4e5f"},"running":[],"fired":31,"skipped":{"overlap":2,"catchUp":0},"createdAt":"2026-10-30T12:00:00Z","updatedAt":"2026-11-30T01:33:12Z"}`
	firedExample        = `{"time":"2026-12-01T01:30:00Z","job":"job_0195fa3b6e1d7c4c8b6e0a1b2c3d4e5f","created":true}`
	backfillExample     = `{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","parallel":4,"times":30,"ready":2,"first":["2026-11-07T01:30:00Z","2026-11-08T01:30:00Z"],"next":"2026-11-07T01:30:00Z"}`
	firingsExample      = `{"items":[{"time":"2026-11-30T01:30:00Z","state":"done","job":"job_0195fa3b6e1d7c4c8b6e0a1b2c3d4e5f","at":"2026-11-30T01:33:12Z"},{"time":"2026-11-29T01:30:00Z","state":"skipped","reason":"overlap","at":"2026-11-29T01:33:12Z"}]}`
)
