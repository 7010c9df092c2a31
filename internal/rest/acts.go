package rest

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// verb is a call that performs an operator's act.
type verb struct {
	perdure.Verb
	step    bool     // the act is on a step
	fields  []string // the fields of its body
	of      reflect.Type
	summary string
	doc     string
	example string
}

// The types of the bodies, for the documentation. They are read field by field.
type (
	reasonBody struct {
		Reason string `json:"reason,omitempty" maxLength:"4096" doc:"For the history"`
	}
	inputBody struct {
		Reason string `json:"reason,omitempty" maxLength:"4096" doc:"For the history"`
		Input  any    `json:"input,omitempty" doc:"Replaces the step's input; the key stays the same"`
		NewKey bool   `json:"newKey,omitempty" doc:"true: no earlier run had an effect, so the step starts again under a new key"`
	}
	settleBody struct {
		Reason string `json:"reason,omitempty" maxLength:"4096" doc:"For the history"`
		As     string `json:"as" enum:"done,undone" doc:"The state that the step has"`
		Output any    `json:"output,omitempty" doc:"Stored as the output of the step; only with as: done"`
	}
	approveBody struct {
		Reason string `json:"reason,omitempty" maxLength:"4096" doc:"For the history, and the output of the step"`
		Data   any    `json:"data,omitempty" doc:"For the output of the step: any JSON up to 64 KiB"`
	}
)

var (
	onlyReason = []string{"reason"}
	withInput  = []string{"reason", "input", "newKey"}
	withOutput = []string{"reason", "as", "output"}
	withData   = []string{"reason", "data"}
)

var verbs = []verb{
	{Verb: perdure.VerbUndo, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Undo a job", doc: "Sets the desired state to undone: every step that may have had an effect is undone.", example: reasonExample},
	{Verb: perdure.VerbRedo, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Redo a job", doc: "Sets the desired state to done again.", example: reasonExample},
	{Verb: perdure.VerbResume, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Resume a job", doc: "All of its steps that are parked, or wait for a retry, are tried again now.", example: reasonExample},
	{Verb: perdure.VerbGiveUp, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Give up a job", doc: "Settles it as it is. Only undo or redo opens it again.", example: reasonExample},
	{Verb: perdure.VerbResume, step: true, fields: withInput, of: reflect.TypeFor[inputBody](), summary: "Resume a step", doc: "A step that is parked, or waits for a retry, is tried again now.", example: inputExample},
	{Verb: perdure.VerbSettle, step: true, fields: withOutput, of: reflect.TypeFor[settleBody](), summary: "Settle a step", doc: "Records the state of the step that an operator has found out.", example: settleExample},
	{Verb: perdure.VerbSkip, step: true, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Skip a step", doc: "Settles the step without doing it.", example: reasonExample},
	{Verb: perdure.VerbEdit, step: true, fields: withInput, of: reflect.TypeFor[inputBody](), summary: "Edit a step", doc: "Gives the step another input.", example: inputExample},
	{Verb: perdure.VerbApprove, step: true, fields: withData, of: reflect.TypeFor[approveBody](), summary: "Approve a step", doc: "A member of the step's group approves it, whatever the user role; without a group, an operator does. The step is done once as many different members as its quorum have approved.", example: approveExample},
	{Verb: perdure.VerbReject, step: true, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Reject a step", doc: "The step has failed with the code rejected, and its escalation ladder follows. Who may approve may reject.", example: reasonExample},
	{Verb: perdure.VerbStop, step: true, fields: onlyReason, of: reflect.TypeFor[reasonBody](), summary: "Stop a run", doc: "Tells the holder of the step's run with its next heartbeat to stop. The run ends failed with the code stopped, and what the definition says of failures follows.", example: reasonExample},
}

var dryRunParam = []param{{name: "dryRun", doc: "true: apply the rules, store nothing, and answer what the act would do to the job as it is now", example: "true"}}

func (a *api) actRoutes() []route {
	routes := make([]route, len(verbs))
	for i, v := range verbs {
		rt := route{
			method: http.MethodPost, path: "/v1/jobs/{id}/" + string(v.Verb), id: string(v.Verb) + "Job", tag: "acts",
			summary: v.summary, doc: v.doc + " An act whose result already holds changes and records nothing, and its answer has `unchanged`.", headers: authorParam,
			params: dryRunParam,
			body:   &media{of: v.of, optional: v.Verb != perdure.VerbSettle, example: v.example},
			results: []result{
				{status: http.StatusOK, doc: "The job after the act; with dryRun, a preview", of: reflect.TypeFor[perdure.JobView](), example: jobExample},
				{status: http.StatusOK, doc: "The job after the act; with dryRun, a preview", of: reflect.TypeFor[operate.Preview](), example: previewExample},
			},
			problems: []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge,
				http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
			do: func(c *call) error { return c.act(&v) },
		}
		rt.act = string(v.Verb)
		if v.step {
			rt.path, rt.id = "/v1/jobs/{id}/steps/{name}/"+string(v.Verb), string(v.Verb)+"Step"
		}
		routes[i] = rt
	}
	return routes
}

func (c *call) act(v *verb) error {
	q := reader{query: c.query}
	dryRun := q.flag("dryRun")
	if q.err != nil {
		return q.err
	}
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	act := perdure.Act{Verb: v.Verb}
	if v.step {
		if act.Step, err = c.path("name"); err != nil {
			return err
		}
	}
	if act.Author, err = c.author(); err != nil {
		return err
	}
	doc, err := c.document(maxActBody, true)
	if err != nil {
		return err
	}
	v.read(doc, &act)
	if err := doc.err(); err != nil {
		return err
	}
	if dryRun {
		return c.preview(ref, act)
	}
	crashpoint.Here(crashpoint.RestAct)
	job, err := c.Service.Act(c.ctx(), ref, act)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestActAnswer)
	return c.stored(http.StatusOK, job)
}

func (v *verb) read(doc *document, act *perdure.Act) {
	root := doc.root()
	for name, field := range root.fields() {
		if !slices.Contains(v.fields, string(name)) {
			field.unknown(v.fields...)
			continue
		}
		switch string(name) {
		case "reason":
			act.Reason = field.prose(perdure.MaxReasonBytes)
		case "as":
			act.As = field.pole()
		case "output":
			act.Output = field.payload()
		case "input":
			act.Input = field.payload()
		case "newKey":
			act.NewKey = field.boolean()
		case "data":
			act.Data = field.payload()
		}
	}
	if v.Verb == perdure.VerbSettle {
		root.need("as", act.As != nil)
	}
}

// pole reads a state that a step can be settled as: done or undone.
func (v value) pole() *perdure.State {
	if v.null() {
		return nil
	}
	var s perdure.State
	if err := s.UnmarshalText([]byte(v.string())); err != nil || s == perdure.Unsure {
		v.fault("must be done or undone")
	}
	return &s
}

// payload returns a value that is stored byte for byte.
func (v value) payload() []byte {
	text := v.raw()
	if err := plain.CheckJSON(text); err != nil {
		v.fault("is %v", err)
	}
	return text
}
