package rest

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/negotiate"
	"github.com/perdure/perdure/operate"
)

type limitBody struct {
	Max    *int                    `json:"max,omitempty" minimum:"0" maximum:"1000000000" doc:"How many permits may be held at once; 0: none. Missing: no bound on all of them"`
	Rate   string                  `json:"rate,omitempty" doc:"How many permits may be taken in a time, whether they are given back or not: N/s, N/m, N/h or N/d, N from 1 to 100000. Missing: no bound"`
	Burst  int                     `json:"burst,omitempty" minimum:"1" maximum:"100000" doc:"How many permits the rate lets through at once after a pause. Missing: what comes in a tenth of a second, and at least 1"`
	PerKey *keyLimitBody           `json:"perKey,omitempty" doc:"The bounds of each key: max, rate, or both. Missing: none"`
	Order  string                  `json:"order,omitempty" enum:"submitted" doc:"submitted: the jobs of a key get its permit in the order in which they were submitted. While one is ready, or waits to be tried again, those behind it wait. It needs a perKey.max of 1. Missing: in the order in which their steps become ready, by priority"`
	Keys   map[string]keyLimitBody `json:"keys,omitempty" doc:"The bounds of single keys, at most 1,000: what is given here replaces that of perKey"`
}

type keyLimitBody struct {
	Max   *int   `json:"max,omitempty" minimum:"0" maximum:"1000000000" doc:"How many permits of one key may be held at once; 0: none"`
	Rate  string `json:"rate,omitempty" doc:"How many permits of one key may be taken in a time, such as 5/s"`
	Burst int    `json:"burst,omitempty" minimum:"1" maximum:"100000" doc:"As burst of the limit"`
}

type agentBody struct {
	Ageing   perdure.Duration `json:"ageing,omitempty" doc:"The head start of one level of priority: 1s to 10 years, which is the default"`
	Patience perdure.Duration `json:"patience,omitempty" doc:"How long a step waits for room on a host before it reserves one: 1s to 30d, default 1m"`
	FairBy   string           `json:"fairBy,omitempty" doc:"An expression of the job, such as job.labels.customer: runs are dispatched in turn from the shares of jobs with the same value"`
	Weights  map[string]int   `json:"weights,omitempty" doc:"The weights of shares, by their values: 1 to 1,000, and 1 for those that are not named. At most 1,000"`
}

func (a *api) operationRoutes() []route {
	limit, alert := reflect.TypeFor[perdure.LimitView](), reflect.TypeFor[perdure.AlertView]()
	const name, agent = "/v1/limits/{name}", "/v1/agents/{agent}"
	return []route{
		{
			method: http.MethodGet, path: "/v1/stats", id: "getStats", tag: "operations", do: (*call).getStats,
			summary: "Get the numbers of an overview",
			doc:     "They are computed every few seconds, at the time asOf: the call counts nothing, and is as fast on a full store as on an empty one. Each count reads a bounded number of rows. A count that has reached its bound is marked as capped.",
			results: []result{{status: http.StatusOK, doc: "The statistics", of: reflect.TypeFor[operate.Stats](), example: statsExample}},
		},
		{
			method: http.MethodGet, path: "/v1/limits", id: "listLimits", tag: "operations", do: (*call).listLimits,
			summary: "List limits", results: []result{{status: http.StatusOK, doc: "All limits", of: reflect.TypeFor[list[perdure.LimitView]](), example: limitsExample}},
		},
		{
			method: http.MethodGet, path: name, id: "getLimit", tag: "operations", do: (*call).getLimit,
			summary: "Get a limit", doc: "With its first hundred holders.",
			results: []result{{status: http.StatusOK, doc: "The limit", of: limit, example: limitExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: name + "/keys", id: "listLimitKeys", tag: "operations", do: (*call).listLimitKeys,
			summary: "List the keys of a limit for which steps wait",
			doc:     "Those with the most steps first. A key is known to be full once a search for runs has met it: while all slots of an agent are taken, nothing is searched. A step that waits for several limits counts for one of them. With key, this key alone, whether steps wait for it or not, and with its first hundred holders.",
			params: []param{
				{name: "key", doc: "Only this key", example: "acct-7"},
				{name: "limit", doc: fmt.Sprintf("How many at most, 1 to %d, which is the default", operate.MaxKeysShown), example: "10"},
			},
			results: []result{{status: http.StatusOK, doc: "The keys", of: reflect.TypeFor[list[operate.LimitKeyView]](), example: limitKeysExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: name, id: "putLimit", tag: "operations", do: (*call).putLimit,
			summary: "Set a limit",
			doc:     "job:TYPE bounds the jobs of a type, agent:NAME the runs of an agent, and any other name the runs of the steps that name it in `limits`. At least one bound must be given; what is missing is no bound. It takes effect at once; runs that hold permits keep them.",
			headers: authorParam, body: &media{of: reflect.TypeFor[limitBody](), example: maxExample},
			results:  []result{{status: http.StatusOK, doc: "The limit", of: limit, example: limitExample}},
			problems: []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodDelete, path: name, id: "deleteLimit", tag: "operations", do: (*call).deleteLimit,
			summary: "Remove a limit", headers: authorParam, results: []result{{status: http.StatusNoContent, doc: "The limit was removed"}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/alerts", id: "listAlerts", tag: "operations", do: (*call).listAlerts,
			summary: "List alerts", doc: "Newest first. " + liveDoc,
			params: append([]param{
				{name: "job", doc: "Of this job: an id, a key, the start of an id, or @latest", example: "order-1042"},
				{name: "closed", doc: "true: closed ones too", example: "true"},
				{name: "kind", doc: "Of this kind", example: "parked"},
				{name: "type", doc: "Of jobs of this type", example: "order"},
				{name: "step", doc: "Of a step with this name", example: "charge"},
				{name: "code", doc: "With this error code", example: "card_declined"},
			}, pageParams...),
			results: []result{
				{status: http.StatusOK, doc: "A page of alerts", of: reflect.TypeFor[perdure.Page[perdure.AlertView]](), example: alertsExample},
				{status: http.StatusOK, types: []string{mediaEvents}, of: reflect.TypeFor[string]()},
			},
		},
		{
			method: http.MethodPost, path: "/v1/alerts/{id}/close", id: "closeAlert", tag: "operations", do: (*call).closeAlert,
			summary: "Close an alert", doc: "The alert of a parked step cannot be closed: it is closed when the step is no longer parked.",
			headers: authorParam, body: &media{of: reflect.TypeFor[reasonBody](), optional: true, example: reasonExample},
			results:  []result{{status: http.StatusOK, doc: "The alert", of: alert, example: alertExample}},
			problems: []int{http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodGet, path: "/v1/agents", id: "listAgents", tag: "operations", do: (*call).listAgents,
			summary: "List agents", doc: "Those that have settings, have claimed runs in the last day, or had ready steps when the statistics were computed (asOf).",
			results: []result{{status: http.StatusOK, doc: "All agents", of: reflect.TypeFor[list[perdure.AgentView]](), example: `{"items":[` + agentExample + `]}`}},
		},
		{
			method: http.MethodGet, path: agent, id: "getAgent", tag: "operations", do: (*call).getAgent,
			summary: "Get an agent", doc: "Its settings, the holders that claim its runs, and its numbers of the statistics.",
			results: []result{{status: http.StatusOK, doc: "The agent", of: reflect.TypeFor[perdure.AgentView](), example: agentExample}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodPut, path: agent, id: "putAgent", tag: "operations", do: (*call).putAgent,
			summary: "Set an agent's settings",
			doc:     "ageing is the head start that one level of priority gives: with 10m, a job of priority 9 goes before all jobs of priority 0 that were submitted in the 90 minutes before it. A change holds for steps that become ready afterwards. patience is how long a step waits for room on a host before it reserves one. fairBy divides the ready steps into shares, and weights are those of single shares; without fairBy there are none. A setting that is missing gets its default.",
			headers: authorParam, body: &media{of: reflect.TypeFor[agentBody](), example: ageingExample},
			results:  []result{{status: http.StatusOK, doc: "The agent", of: reflect.TypeFor[perdure.AgentView](), example: agentExample}},
			problems: []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodDelete, path: agent, id: "deleteAgent", tag: "operations", do: (*call).deleteAgent,
			summary: "Remove an agent's settings", doc: "The agent has the defaults then. Steps that are ready keep their shares.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "The settings were removed"}}, problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/nodes", id: "listNodes", tag: "operations", do: (*call).listNodes,
			summary: "List nodes", doc: "With the roles that each leads or stands by for.",
			results: []result{{status: http.StatusOK, doc: "The processes of the grid", of: reflect.TypeFor[list[perdure.NodeView]](), example: nodesExample}},
		},
	}
}

func (c *call) getStats() error {
	s, err := c.Service.Stats(c.ctx())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcStats(s))
}

func utcStats(s *operate.Stats) *operate.Stats {
	out := *s
	utc(&out.AsOf)
	utc(&out.Series.From)
	out.Types, out.Reasons, out.Alerts, out.Agents = make([]operate.TypeStats, len(s.Types)), make([]operate.ReasonStats, len(s.Reasons)), make([]operate.AlertStats, len(s.Alerts)), make([]operate.AgentStats, len(s.Agents))
	for i, t := range s.Types {
		utc(&t.OldestWaiting)
		out.Types[i] = t
	}
	for i, r := range s.Reasons {
		utc(&r.Oldest)
		utc(&r.LastClaim)
		utc(&r.Next)
		out.Reasons[i] = r
	}
	for i, a := range s.Alerts {
		utc(&a.Oldest)
		out.Alerts[i] = a
	}
	for i, a := range s.Agents {
		utc(&a.OldestReady)
		utc(&a.LastClaim)
		out.Agents[i] = a
	}
	for _, list := range []*[]int{&out.Series.Submitted, &out.Series.Done, &out.Series.Undone, &out.Series.Parked, &out.Series.Failed} {
		*list = listOf(*list)
	}
	return &out
}

func (c *call) listLimits() error {
	limits, err := c.Service.ListLimits(c.ctx())
	if err != nil {
		return err
	}
	out := list[perdure.LimitView]{Items: make([]perdure.LimitView, len(limits))}
	for i := range limits {
		out.Items[i] = shownLimit(&limits[i])
	}
	return c.json(http.StatusOK, &out)
}

func (c *call) getLimit() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	limit, err := c.Service.GetLimit(c.ctx(), name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, shownLimit(limit))
}

func (c *call) listLimitKeys() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	q := reader{query: c.query}
	query := operate.LimitKeyQuery{Name: name, Key: q.text("key", perdure.MaxLimitKeyBytes), Limit: q.limitTo(operate.MaxKeysShown)}
	if q.err != nil {
		return q.err
	}
	keys, err := c.Service.LimitKeys(c.ctx(), query)
	if err != nil {
		return err
	}
	for i := range keys {
		utc(&keys[i].RoomAt)
	}
	return c.json(http.StatusOK, &list[operate.LimitKeyView]{Items: listOf(keys)})
}

func (c *call) putLimit() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	kind, owner, ok := kernel.SplitLimit(name)
	if !ok || len(owner) > perdure.MaxNameLength {
		return badPart("path", "name", "must be job:TYPE, agent:NAME, or a name of your own of letters, digits, `.`, `_` and `-`")
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	settings := readLimit(doc, kind)
	if err := doc.err(); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestLimit)
	limit, err := c.Service.PutLimit(c.ctx(), name, settings)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestLimitAnswer)
	c.Log.InfoContext(c.ctx(), "limit set", append([]any{"limit", name, "author", author}, limitAttrs(settings)...)...)
	err = c.json(http.StatusOK, shownLimit(limit))
	if perdure.CodeOf(err) != perdure.CodeTooManyRequests {
		return err
	}
	shortened := *limit // a 429 would mean that the limit was not set
	shortened.Holders = nil
	return c.json(http.StatusOK, shownLimit(&shortened))
}

func readLimit(doc *document, kind kernel.LimitKind) (settings perdure.LimitSettings) {
	root := doc.root()
	order := root // its field
	var all perdure.KeyLimit
	ofKeys := false
	for name, field := range root.fields() {
		switch name := string(name); {
		case readBound(name, field, &all):
		case name == "perKey" && kind == kernel.LimitNamed:
			if !field.null() {
				settings.PerKey, ofKeys = new(readKeyLimit(field)), true
			}
		case name == "keys" && kind == kernel.LimitNamed:
			if !field.null() {
				settings.Keys = readKeys(field)
				ofKeys = ofKeys || len(settings.Keys) > 0
			}
		case name == "order" && kind == kernel.LimitNamed:
			if !field.null() {
				order = field
				if settings.Order = field.string(); settings.Order != kernel.OrderSubmitted {
					field.fault("must be %s", kernel.OrderSubmitted)
				}
			}
		case kind == kernel.LimitNamed:
			field.unknown("max", "rate", "burst", "perKey", "order", "keys")
		default:
			field.unknown("max", "rate", "burst")
		}
	}
	checkRate(root, all)
	if err := kernel.CheckOrder(&settings); err != nil && len(doc.faults) == 0 {
		order.faultAt(root.child("order"), err.Hint, "%s", strings.TrimPrefix(err.Message, "order "))
	}
	if all == (perdure.KeyLimit{}) && !ofKeys && len(doc.faults) == 0 {
		hint := "give max, rate, or both"
		if kind == kernel.LimitNamed {
			hint = "give max, rate, perKey or keys"
		}
		root.faultAt(root.child("max"), hint, "is required where there is no other bound")
	}
	settings.Max, settings.Rate, settings.Burst = all.Max, all.Rate, all.Burst
	return settings
}

// readKeyLimit reads the bounds of keys.
func readKeyLimit(v value) (set perdure.KeyLimit) {
	for name, field := range v.fields() {
		if !readBound(string(name), field, &set) {
			field.unknown("max", "rate", "burst")
		}
	}
	if checkRate(v, set); set == (perdure.KeyLimit{}) {
		v.faultAt(v.child("max"), "give max, rate, or both", "is required where there is no rate")
	}
	return set
}

// readKeys reads the bounds of single keys.
func readKeys(v value) map[string]perdure.KeyLimit {
	keys := map[string]perdure.KeyLimit{}
	for name, field := range v.fields() {
		key := string(name)
		if err := kernel.CheckLimitKey(key); err != nil {
			field.fault("the key %s", err)
			continue
		}
		if keys[key] = readKeyLimit(field); len(keys) > perdure.MaxLimitKeys {
			v.fault("has more than %d keys", perdure.MaxLimitKeys)
			break
		}
	}
	return keys
}

// readBound reads a field of a bound; ok is false if it is another field.
func readBound(name string, field value, set *perdure.KeyLimit) (ok bool) {
	switch name {
	case "max":
		if !field.null() {
			set.Max = new(int(field.integer(0, perdure.MaxLimit)))
		}
	case "rate":
		if !field.null() {
			set.Rate = field.string()
		}
	case "burst":
		if !field.null() {
			set.Burst = int(field.integer(1, kernel.MaxBurst))
		}
	default:
		return false
	}
	return true
}

// checkRate checks the rate and burst of a bound.
func checkRate(v value, set perdure.KeyLimit) {
	if set.Rate == "" {
		if set.Burst != 0 {
			v.faultAt(v.child("rate"), "give a rate such as 5/s, or leave out burst", "is required where there is a burst")
		}
		return
	}
	if _, err := kernel.ParseRate(set.Rate, set.Burst); err != nil {
		field, wrong, _ := strings.Cut(err.Error(), " ")
		v.faultAt(v.child(field), "", "%s", wrong)
	}
}

func limitAttrs(settings perdure.LimitSettings) (attrs []any) {
	add := func(prefix string, set perdure.KeyLimit) {
		if set.Max != nil {
			attrs = append(attrs, prefix+"max", *set.Max)
		}
		if set.Rate != "" {
			attrs = append(attrs, prefix+"rate", set.Rate)
		}
	}
	add("", perdure.KeyLimit{Max: settings.Max, Rate: settings.Rate})
	if settings.Order != "" {
		attrs = append(attrs, "order", settings.Order)
	}
	if settings.PerKey != nil {
		add("perKey.", *settings.PerKey)
	}
	if len(settings.Keys) > 0 {
		attrs = append(attrs, "keys", len(settings.Keys))
	}
	return attrs
}

func (c *call) deleteLimit() error {
	name, author, err := c.actOn("name")
	if err != nil {
		return err
	}
	if err := c.Service.DeleteLimit(c.ctx(), name); err != nil {
		return err
	}
	c.Log.InfoContext(c.ctx(), "limit removed", "limit", name, "author", author)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func shownLimit(l *perdure.LimitView) perdure.LimitView {
	shown := *l
	shown.Holders = listOf(l.Holders)
	return shown
}

func (c *call) listAlerts() error {
	q := reader{query: c.query}
	query := perdure.AlertQuery{
		Job: q.name("job", perdure.MaxKeyLength), Closed: q.flag("closed"),
		Kind: perdure.AlertKind(q.word("kind", operate.Texts(append(operate.AlertKinds(), operate.StoreAlertKinds()...))...)),
		Type: q.name("type", perdure.MaxNameLength), Step: q.name("step", perdure.MaxNameLength), Code: q.name("code", perdure.MaxCodeLength),
		Limit: q.limit(), Cursor: q.cursor(),
	}
	if q.err != nil {
		return q.err
	}
	if negotiate.Names(c.r.Header, mediaEvents) {
		return c.liveAlerts(query)
	}
	page, err := c.Service.ListAlerts(c.ctx(), query)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcAlertPage(page))
}

func utcAlertPage(page *perdure.Page[perdure.AlertView]) *perdure.Page[perdure.AlertView] {
	return &perdure.Page[perdure.AlertView]{Items: utcAlerts(page.Items), NextCursor: page.NextCursor}
}

func (c *call) closeAlert() error {
	id, err := strconv.ParseInt(c.r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return badPart("path", "id", "must be an alert's number")
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, true)
	if err != nil {
		return err
	}
	why := ""
	for name, field := range doc.root().fields() {
		if string(name) != "reason" {
			field.unknown("reason")
		} else if reason := field.prose(perdure.MaxReasonBytes); reason != "" {
			why = reason
		}
	}
	if err := doc.err(); err != nil {
		return err
	}
	by := author
	if why != "" {
		by += ": " + why // an alert has one field for both
	}
	alert, err := c.Service.CloseAlert(c.ctx(), id, by)
	if err != nil {
		return err
	}
	attrs := []any{"alert", id, "kind", string(alert.Kind)}
	if !alert.Job.IsZero() {
		attrs = append(attrs, "job", alert.Job.String())
	}
	if alert.Step != "" {
		attrs = append(attrs, "step", alert.Step)
	}
	c.Log.InfoContext(c.ctx(), "alert closed", append(attrs, "author", author, "reason", why)...)
	return c.json(http.StatusOK, utcAlert(*alert))
}

func (c *call) listNodes() error {
	nodes, err := c.Service.ListNodes(c.ctx())
	if err != nil {
		return err
	}
	out := list[perdure.NodeView]{Items: make([]perdure.NodeView, len(nodes))}
	for i, n := range nodes {
		out.Items[i] = utcNode(n)
	}
	return c.json(http.StatusOK, &out)
}

func (c *call) listAgents() error {
	agents, err := c.Service.ListAgents(c.ctx())
	if err != nil {
		return err
	}
	out := list[perdure.AgentView]{Items: make([]perdure.AgentView, len(agents))}
	for i := range agents {
		out.Items[i] = utcAgent(&agents[i])
	}
	return c.json(http.StatusOK, &out)
}

func (c *call) getAgent() error {
	name, err := c.path("agent")
	if err != nil {
		return err
	}
	agent, err := c.Service.GetAgent(c.ctx(), name)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcAgent(agent))
}

func (c *call) putAgent() error {
	name, author, err := c.actOn("agent")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	settings := readSettings(doc)
	if err := doc.err(); err != nil {
		return err
	}
	agent, err := c.Service.PutAgent(c.ctx(), name, settings)
	if err != nil {
		return err
	}
	c.Log.InfoContext(c.ctx(), "agent set", "agent", name, "ageing", settings.Ageing, "patience", settings.Patience, "fairBy", settings.FairBy, "weights", len(settings.Weights), "author", author)
	return c.json(http.StatusOK, utcAgent(agent))
}

func readSettings(doc *document) (settings perdure.AgentSettings) {
	settings = perdure.AgentSettings{Ageing: perdure.Duration(perdure.DefaultAgeing), Patience: perdure.Duration(perdure.DefaultPatience)}
	root, present := doc.root(), false
	for name, field := range root.fields() {
		switch string(name) {
		case "ageing":
			settings.Ageing = perdure.Duration(field.duration(perdure.MinAgeing, perdure.DefaultAgeing))
		case "patience":
			settings.Patience = perdure.Duration(field.duration(perdure.MinPatience, perdure.MaxPatience))
		case "fairBy":
			settings.FairBy = field.text(perdure.MaxFairByBytes)
		case "weights":
			settings.Weights = readWeights(field)
		default:
			field.unknown("ageing", "patience", "fairBy", "weights")
			continue
		}
		present = present || !field.null()
	}
	if !present {
		root.need("ageing", false)
	}
	return settings
}

// readWeights reads the weights of shares.
func readWeights(v value) map[string]int {
	weights := map[string]int{}
	for name, field := range v.fields() {
		weights[string(name)] = int(field.integer(1, perdure.MaxFairWeight))
		if len(weights) > perdure.MaxFairWeights {
			v.fault("has more than %d values", perdure.MaxFairWeights)
			break
		}
	}
	return weights
}

func (c *call) deleteAgent() error {
	name, err := c.path("agent")
	if err != nil {
		return err
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	if err := c.Service.DeleteAgent(c.ctx(), name); err != nil {
		return err
	}
	c.Log.InfoContext(c.ctx(), "settings of agent removed", "agent", name, "author", author)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func utcAgent(a *perdure.AgentView) perdure.AgentView {
	shown := *a
	utc(&shown.SeenAt)
	utc(&shown.AsOf)
	utc(&shown.OldestReady)
	return shown
}
