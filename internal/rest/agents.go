package rest

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/crashpoint"
	"github.com/perdure/perdure/protocol"
)

// The types of the bodies of the calls that agents make, for the documentation. They are read field by field.
type (
	claimBody struct {
		Holder    string    `json:"holder" minLength:"1" maxLength:"200" pattern:"^[^@]" doc:"The name of the process that will hold the runs. Each process needs a name of its own. Names that start with @ are reserved for nodes"`
		Max       int       `json:"max,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"How many runs at most"`
		Wait      string    `json:"wait,omitempty" default:"0s" doc:"How long to wait for work, at most 60s"`
		Heartbeat string    `json:"heartbeat,omitempty" doc:"The promised interval: a run is locked for so long after each heartbeat. Missing: until completeBy"`
		RequestID string    `json:"requestId,omitempty" maxLength:"128" doc:"Repeated, it returns the same runs while they are valid and unreported"`
		Host      string    `json:"host,omitempty" maxLength:"64" doc:"The host that will carry out the runs; the holder is that of its registration. Without it, steps that require a host are not granted"`
		Free      amountsOf `json:"free,omitempty" doc:"What is free of the host: the runs fit into it together"`
		Secrets   bool      `json:"secrets,omitempty" doc:"The caller resolves the references to secrets at the JSON Pointers in secrets of a run. A step with secrets that is claimed without this fails, code secretUnsupported"`
	}
	claimAnswer struct {
		Runs []perdure.Run `json:"runs"`
	}
	reportsBody struct {
		Holder  string            `json:"holder" minLength:"1" maxLength:"200" pattern:"^[^@]"`
		Reports []protocol.Report `json:"reports" maxItems:"1000"`
		Claim   *nextBody         `json:"claim,omitempty" doc:"A claim that does not wait and is granted together with the reports: steps that the reports make ready come with the answer. If the answer is lost, a claim with the same requestId returns its runs"`
	}
	nextBody struct {
		Agent     string    `json:"agent" minLength:"1" maxLength:"128"`
		Max       int       `json:"max,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"How many runs at most"`
		Heartbeat string    `json:"heartbeat,omitempty" doc:"As of a claim"`
		RequestID string    `json:"requestId" minLength:"1" maxLength:"128" doc:"As of a claim"`
		Secrets   bool      `json:"secrets,omitempty" doc:"As of a claim"`
		Host      string    `json:"host,omitempty" maxLength:"64" doc:"As of a claim"`
		Free      amountsOf `json:"free,omitempty" doc:"As of a claim"`
	}
	reportsAnswer struct {
		Results []protocol.ReportResult `json:"results" doc:"One for each report, in the same order"`
		Runs    []perdure.Run           `json:"runs,omitempty" doc:"The runs granted to the claim"`
	}
	beatsBody struct {
		Holder     string               `json:"holder" minLength:"1" maxLength:"200" pattern:"^[^@]"`
		Runs       []protocol.Heartbeat `json:"runs" maxItems:"1000"`
		Complete   bool                 `json:"complete,omitempty" doc:"runs has every run of the holder that was not reported, or whose report was not answered. The node expires any other run of the holder that was dispatched before asOf, except those of openClaims"`
		OpenClaims []string             `json:"openClaims,omitempty" maxItems:"1000" doc:"The requestIds of the holder's claims that were sent, and that it repeats until they are answered"`
		AsOf       time.Time            `json:"asOf,omitzero" doc:"The asOf of the latest answer to a complete heartbeat of this process. Missing: no run expires"`
	}
	beatsAnswer struct {
		Runs []beatResult `json:"runs" doc:"One for each heartbeat, in the same order"`
		AsOf time.Time    `json:"asOf,omitzero" doc:"Of a complete heartbeat: the time of the answer, for the next one"`
	}
)

const minHeartbeat = 100 * time.Millisecond

func (a *api) agentRoutes() []route {
	problems := []int{http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	return []route{
		{
			method: http.MethodPost, path: "/v1/agents/{agent}/claim", id: "claim", tag: "agents", do: (*call).claim,
			summary: "Claim runs", doc: "Waits for work if wait is given. An empty list means that there was no work.",
			body:    &media{of: reflect.TypeFor[claimBody](), example: claimExample},
			results: []result{{status: http.StatusOK, doc: "The runs granted to the holder", of: reflect.TypeFor[claimAnswer](), example: runsExample}}, problems: problems,
		},
		{
			method: http.MethodPost, path: "/v1/reports", id: "report", tag: "agents", do: (*call).report,
			summary: "Report how runs ended", doc: "Each report has a result of its own. A report that was accepted before is accepted again.",
			body:    &media{of: reflect.TypeFor[reportsBody](), example: reportsExample},
			results: []result{{status: http.StatusOK, doc: "The result of each report", of: reflect.TypeFor[reportsAnswer](), example: resultsExample}}, problems: problems,
		},
		{
			method: http.MethodPost, path: "/v1/heartbeats", id: "heartbeat", tag: "agents", do: (*call).heartbeat,
			summary: "Send heartbeats of runs", doc: "Extends lockedUntil, never past completeBy. The answer says which runs must be stopped.",
			body:    &media{of: reflect.TypeFor[beatsBody](), example: heartbeatsExample},
			results: []result{{status: http.StatusOK, doc: "The result of each heartbeat", of: reflect.TypeFor[beatsAnswer](), example: heartbeatResultsExample}}, problems: problems,
		},
	}
}

func (c *call) claim() error {
	agent, err := c.path("agent")
	if err != nil {
		return err
	}
	if len(agent) > perdure.MaxNameLength {
		return badPart("path", "agent", "is longer than "+itoa(perdure.MaxNameLength)+" characters")
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	req := readClaim(doc)
	if err := doc.err(); err != nil {
		return err
	}
	req.Agent = agent
	crashpoint.Here(crashpoint.RestClaim)
	runs, err := c.waitForRuns(req)
	if err != nil {
		return err
	}
	crashpoint.Here(crashpoint.RestClaimAnswer)
	if err = c.work(nil, runs); err != nil {
		c.giveBack(&req, runs)
	}
	return err
}

func inUTC(runs []perdure.Run) []perdure.Run {
	for i := range runs {
		runs[i].LockedUntil, runs[i].CompleteBy = runs[i].LockedUntil.UTC(), runs[i].CompleteBy.UTC()
	}
	return runs
}

func readClaim(doc *document) protocol.Claim {
	req := protocol.Claim{Max: 1}
	root := doc.root()
	for name, field := range root.fields() {
		switch string(name) {
		case "holder":
			req.Holder = field.holder()
		case "wait":
			req.Wait = field.duration(0, perdure.MaxClaimWait)
		case "max", "heartbeat", "requestId", "secrets", "host", "free":
			readClaimField(&req, string(name), field)
		default:
			field.unknown("holder", "max", "wait", "heartbeat", "requestId", "secrets", "host", "free")
		}
	}
	root.need("holder", req.Holder != "")
	root.needTogether(&req)
	return req
}

func readClaimField(req *protocol.Claim, name string, field value) {
	switch {
	case name == "heartbeat":
		req.Heartbeat = field.duration(minHeartbeat, perdure.MaxDuration)
	case field.null():
	case name == "secrets":
		req.Secrets = field.boolean()
	case name == "host":
		req.Host = field.name(perdure.MaxHostWord)
	case name == "free":
		req.Free = field.amounts()
	case name == "max":
		req.Max = int(field.integer(1, perdure.MaxBatch))
	default:
		req.RequestID = field.name(perdure.MaxRequestIDLength)
	}
}

// needTogether records a fault if a claim has one of host and free, and not the other.
func (v value) needTogether(c *protocol.Claim) {
	v.need("free", c.Host == "" || c.Free != nil)
	v.need("host", c.Host != "" || c.Free == nil)
}

// holder reads the name of a holder. The holders in nodes have names that start with @, which other processes cannot use.
func (v value) holder() string {
	s := v.name(perdure.MaxHolderLength)
	if strings.HasPrefix(s, "@") {
		v.fault("must not start with @")
	}
	return s
}

// waitForRuns claims runs. It returns none if the node shuts down while it waits.
func (c *call) waitForRuns(req protocol.Claim) ([]perdure.Run, error) {
	ctx := c.ctx()
	if c.shuttingDown() {
		req.Wait = 0
	} else if req.Wait > 0 {
		poll, cancel, err := c.longPoll(req.Wait)
		if err != nil {
			return nil, err
		}
		defer cancel()
		ctx = poll
	}
	runs, err := c.Service.Claim(ctx, req)
	ended := orRevoked(ctx, err)
	switch {
	case c.gone():
		c.giveBack(&req, runs)
		return nil, ctx.Err()
	case perdure.CodeOf(ended) == perdure.CodeUnauthenticated:
		return nil, c.unidentified(ended)
	case err != nil && c.shuttingDown() && req.RequestID == "": // with a requestId, runs may have been granted to it before (F019)
		return nil, nil
	case err != nil && c.shuttingDown() && storeTrouble(err): // the shutdown ended the wait
		return nil, &perdure.Error{Code: perdure.CodeUnavailable, Message: "the node is draining", Hint: "ask another node"}
	}
	return runs, err
}

const giveBackTimeout = 5 * time.Second

// giveBack returns runs whose caller has gone (F020), or whose answer the node has no room for. If the claim had a
// requestId, they are kept: the client will repeat the claim (F019).
func (c *call) giveBack(req *protocol.Claim, runs []perdure.Run) {
	if len(runs) == 0 || req.RequestID != "" {
		return
	}
	reports := make([]protocol.Report, len(runs))
	for i, run := range runs {
		reports[i] = protocol.Report{Job: run.Job, Step: run.Step, Run: run.Number, Outcome: perdure.OutcomeReturned}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx()), giveBackTimeout)
	defer cancel()
	if _, _, err := c.Service.Report(ctx, req.Holder, reports, nil); err != nil {
		c.Log.WarnContext(ctx, "runs could not be returned; they are dispatched again when their locks have expired", "agent", req.Agent, "runs", len(runs), "error", err)
	}
}
