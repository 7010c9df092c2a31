package rest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// describe makes the OpenAPI document from the table of routes. huma makes the schemas from the types of the bodies and
// answers.
func describe(routes []route, version string) []byte {
	schemas := newSchemas()
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Perdure", Version: orElse(version, "dev"),
			Description: "A durable job orchestrator. A job is a set of steps against things that fail; it ends with all of them done, or all of them undone.",
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
		Servers:  []*huma.Server{{URL: "/"}},
		Security: []map[string][]string{}, // there is no authentication
		Tags: []*huma.Tag{
			{Name: "jobs", Description: "Submit jobs and follow what becomes of them"},
			{Name: "acts", Description: "What an operator can do to a job or step"},
			{Name: "agents", Description: "All that an agent is: three calls, in any language"},
			{Name: "operations", Description: "Limits, alerts, nodes"},
			{Name: "process", Description: "This process"},
		},
		Components: &huma.Components{Schemas: schemas},
	}
	for i := range routes {
		doc.AddOperation(routes[i].operation(schemas))
	}
	noNulls(schemas)
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err) // only a mistake in the table can cause it
	}
	return b
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (rt *route) operation(schemas huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: rt.method, Path: rt.path, OperationID: rt.id, Tags: []string{rt.tag},
		Summary: rt.summary, Description: rt.doc,
		Parameters: rt.parameters(), Responses: map[string]*huma.Response{},
	}
	if rt.body != nil {
		op.RequestBody = &huma.RequestBody{Required: !rt.body.optional,
			Content: content(schemas, rt.body.types, rt.body.of, rt.body.example)}
	}
	for _, res := range rt.results {
		r := &huma.Response{Description: res.doc}
		if res.of != nil {
			r.Content = content(schemas, res.types, res.of, res.example)
			if other := op.Responses[strconv.Itoa(res.status)]; other != nil { // the same status has answers of several types
				for mediaType, m := range r.Content {
					if of := other.Content[mediaType]; of != nil {
						m.Schema, m.Example = &huma.Schema{AnyOf: []*huma.Schema{of.Schema, m.Schema}}, of.Example
					}
				}
				for mediaType, m := range other.Content {
					if r.Content[mediaType] == nil {
						r.Content[mediaType], r.Description = m, other.Description
					}
				}
			}
		}
		for name, says := range res.headers {
			r.Headers = map[string]*huma.Header{name: {Description: says, Schema: &huma.Schema{Type: huma.TypeString}}}
		}
		op.Responses[strconv.Itoa(res.status)] = r
	}
	problem := content(schemas, []string{problemType}, reflect.TypeFor[Problem](), "")
	always := []int{http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if rt.body != nil {
		always = append(always, http.StatusRequestTimeout)
	}
	if rt.path != healthPath {
		always = append(always, http.StatusMisdirectedRequest)
	}
	if !permissions[rt.id].public {
		always = append(always, http.StatusUnauthorized, http.StatusForbidden)
	}
	for _, status := range append(always, rt.problems...) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: problem}
	}
	return op
}

func content(schemas huma.Registry, types []string, of reflect.Type, example string) map[string]*huma.MediaType {
	if len(types) == 0 {
		types = []string{mediaJSON}
	}
	m := &huma.MediaType{Schema: schemas.Schema(of, true, "")}
	if example != "" {
		m.Example = json.RawMessage(example)
	}
	out := map[string]*huma.MediaType{}
	for _, t := range types {
		out[t] = m
	}
	return out
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// pathDocs document the parts of paths, by tag if the same word has several meanings.
var pathDocs = map[string]param{
	"id":               {doc: "The job: its id, its key, the start of an id, or @latest", example: "order-1042"},
	"operations/id":    {doc: "The alert's number", example: "12"},
	"name":             {doc: "The step", example: "charge"},
	"hash":             {doc: "The hash of a definition, as a drawing has it", example: "9f2c6b0e4d1a8c7730b5e2f1a4d6c8e9"},
	"agent":            {doc: "The agent", example: "payments"},
	"access/id":        {doc: "The id of the token or session", example: "8XkqT2mWc0Za"},
	"operations/name":  {doc: "The limit: job:TYPE, agent:NAME, or a name of your own", example: "agent:payments"},
	"agents/name":      {doc: "The role", example: "importer"},
	"bulk/id":          {doc: "The id of the bulk act", example: "bulk_0190a6b7c8d97e0f8123456789abcdef"},
	"definitions/name": {doc: "The definition: NAME, or NAME@VERSION", example: "order@7"},
	"hosts/name":       {doc: "The host", example: "h1"},
	"schedules/name":   {doc: "The schedule", example: "nightly"},
	"webhooks/name":    {doc: "The receiver", example: "shop"},
}

func (rt *route) parameters() []*huma.Param {
	var params []*huma.Param
	add := func(in string, p param, schema *huma.Schema) {
		out := &huma.Param{Name: p.name, In: in, Description: p.doc, Required: in == "path", Schema: schema}
		if p.example != "" {
			out.Example = p.example
		}
		params = append(params, out)
	}
	text := &huma.Schema{Type: huma.TypeString}
	for _, m := range pathParam.FindAllStringSubmatch(rt.path, -1) {
		p, ok := pathDocs[rt.tag+"/"+m[1]]
		if !ok {
			p = pathDocs[m[1]]
		}
		p.name = m[1]
		add("path", p, text)
	}
	for _, p := range rt.params {
		if p.repeated {
			add("query", p, &huma.Schema{Type: huma.TypeArray, Items: text})
			params[len(params)-1].Example = []string{p.example}
			continue
		}
		add("query", p, text)
	}
	for _, p := range rt.headers {
		add("header", p, text)
	}
	return params
}

// newSchemas returns a registry in which types that are written as words have the schema of a string.
func newSchemas() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		return strings.ReplaceAll(huma.DefaultSchemaNamer(t, hint), "View", "")
	})
	for noun, alias := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[perdure.State]():           reflect.TypeFor[stateWord](),
		reflect.TypeFor[perdure.NodeState]():       reflect.TypeFor[nodeWord](),
		reflect.TypeFor[perdure.Phase]():           reflect.TypeFor[phaseWord](),
		reflect.TypeFor[perdure.Direction]():       reflect.TypeFor[directionWord](),
		reflect.TypeFor[perdure.Outcome]():         reflect.TypeFor[outcomeWord](),
		reflect.TypeFor[protocol.RefusalReason]():  reflect.TypeFor[refusalWord](),
		reflect.TypeFor[perdure.ReasonKind]():      reflect.TypeFor[whyWord](),
		reflect.TypeFor[[]perdure.Phase]():         reflect.TypeFor[[]phaseWord](), // not bytes in base 64
		reflect.TypeFor[operate.BulkState]():       reflect.TypeFor[bulkState](),
		reflect.TypeFor[operate.EventKind]():       reflect.TypeFor[eventKind](),
		reflect.TypeFor[operate.WebhookFormat]():   reflect.TypeFor[format](),
		reflect.TypeFor[operate.DeliveryState]():   reflect.TypeFor[deliveryState](),
		reflect.TypeFor[operate.WebhookState]():    reflect.TypeFor[webhookState](),
		reflect.TypeFor[operate.RoleKind]():        reflect.TypeFor[roleKind](),
		reflect.TypeFor[operate.UserRole]():        reflect.TypeFor[userRoleWord](),
		reflect.TypeFor[operate.Via]():             reflect.TypeFor[viaWord](),
		reflect.TypeFor[operate.AuditOutcome]():    reflect.TypeFor[auditWord](),
		reflect.TypeFor[perdure.JobID]():           reflect.TypeFor[jobIDWord](),
		reflect.TypeFor[perdure.Duration]():        reflect.TypeFor[durationWord](),
		reflect.TypeFor[operate.HostState]():       reflect.TypeFor[hostState](),
		reflect.TypeFor[operate.ScheduleCron]():    reflect.TypeFor[cronText](),
		reflect.TypeFor[operate.ScheduleOverlap](): reflect.TypeFor[overlapWord](),
		reflect.TypeFor[operate.ScheduleState]():   reflect.TypeFor[scheduleState](),
		reflect.TypeFor[operate.FiringState]():     reflect.TypeFor[firingState](),
		reflect.TypeFor[operate.FiringReason]():    reflect.TypeFor[firingReason](),
		reflect.TypeFor[perdure.Amounts]():         reflect.TypeFor[amountsOf](),
		reflect.TypeFor[perdure.Requires]():        reflect.TypeFor[requiresOf](),
		reflect.TypeFor[perdure.StepViews]():       reflect.TypeFor[map[string]perdure.StepView](),
	} {
		r.RegisterTypeAlias(noun, alias)
	}
	return r
}

type (
	stateWord      string
	nodeWord       string
	phaseWord      string
	directionWord  string
	outcomeWord    string
	refusalWord    string
	whyWord        string
	jobIDWord      string
	durationWord   string
	definitionBody struct{}
)

func words[T ~string](list ...T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, w := range list {
		s.Enum = append(s.Enum, string(w))
	}
	return s
}

func (stateWord) Schema(huma.Registry) *huma.Schema { return words("undone", "done", "unsure") }
func (nodeWord) Schema(huma.Registry) *huma.Schema  { return words(perdure.NodeAlive, perdure.NodeDead) }
func (phaseWord) Schema(huma.Registry) *huma.Schema {
	return words("settled", "waiting", "ready", "running", "parked")
}
func (directionWord) Schema(huma.Registry) *huma.Schema { return words("do", "undo") }
func (outcomeWord) Schema(huma.Registry) *huma.Schema {
	return words("done", "failed", "rejected", "returned", "expired")
}
func (refusalWord) Schema(huma.Registry) *huma.Schema {
	return words(protocol.RefusedLate, protocol.RefusedStale, protocol.RefusedConflict, protocol.RefusedUnknown, protocol.RefusedInvalid, protocol.RefusedForbidden)
}
func (whyWord) Schema(huma.Registry) *huma.Schema { return words(operate.Reasons()...) }

func (jobIDWord) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: "^job_[0-9a-f]{32}$"}
}
func (durationWord) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "Go's syntax, and d for days", Examples: []any{"1m30s"}}
}
func (definitionBody) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Required: []string{"steps", "type"},
		Description: "A definition, as /v1/schema/job.json has it",
		Properties: map[string]*huma.Schema{
			"type":  {Type: huma.TypeString},
			"steps": {Type: huma.TypeObject, AdditionalProperties: true},
		}}
}

// noNulls removes null from the types of lists, which huma adds for Go's slices: here an empty list is [].
func noNulls(schemas huma.Registry) {
	for _, s := range schemas.Map() {
		for _, p := range s.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
		}
	}
}
