package resttest

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// ID is the job that Full knows.
var ID = func() perdure.JobID {
	id, err := perdure.ParseJobID("job_0190a6b7c8d97e0f8123456789abcdef")
	if err != nil {
		panic(err)
	}
	return id
}()

// At is a time in a zone that is not UTC.
var At = time.Date(2026, 1, 2, 17, 4, 5, 123456000, time.FixedZone("there", 2*60*60))

// Job is a job with two steps, of which every field has a value.
func Job() *perdure.JobView {
	limit := 3
	done := perdure.Done
	return &perdure.JobView{
		ID: ID, Key: "order-1042", Type: "order", Priority: 5, Labels: map[string]string{"customer": "c-77"},
		States:  &perdure.StateNames{Undone: "disabled", Done: "active"},
		Current: perdure.Unsure, Desired: perdure.Undone, Phase: perdure.Running, Then: &done, Restarts: 1, Unsettled: 2,
		StartAt: At, StartBy: At, CompleteBy: At, GivenUp: &perdure.Mark{By: "anna", Reason: "lost"}, SubmittedAt: At, UpdatedAt: At, SettledAt: At,
		Input: json.RawMessage(`{"amount":12345678901234567890.10,"text":"<b>&"}`), InputBytes: 70_000,
		Output: json.RawMessage(`{"receipt":"r-1042"}`), OutputBytes: 70_000, OutputError: "no receipt", MadeFrom: "order@7", Parent: "job_0190a6b7c8d97e0f8123456789abcdef/settle",
		Definition: Definition(), DefinitionBytes: 80_000,
		Alerts:  []perdure.AlertView{Alert()},
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", TraceURL: "https://traces.example.com/4bf92f3577b34da6a3ce929d0e0e4736",
		Steps: perdure.StepViews{
			{
				Name: "reserve", Agent: "http", Action: "reserve", Current: perdure.Done, Desired: perdure.Undone, Phase: perdure.Ready,
				Skipped: true, NoUndo: true, GivenUp: true, Run: 7, Direction: perdure.Undo, Was: perdure.Done, Turn: 2, Key: "k/reserve/2",
				LockedBy: "h", LockedUntil: At, CompleteBy: At, Failures: 1, Rung: 1, Waits: 1, Returns: 1, AvailableAt: At,
				Outcome: perdure.OutcomeFailed, Output: json.RawMessage(`{"html":"<b>&</b>","n":1.50}`), OutputBytes: 90_000,
				Input: json.RawMessage(`{"n":1.50,"text":"<b>&"}`), InputBytes: 100_000,
				LastError: &perdure.RunError{Code: "503", Message: "later", RetryAfter: perdure.Duration(30 * time.Second)},
				Progress:  json.RawMessage(`{"done":3}`), ProgressAt: At, StopRequestedAt: At, ReadyAt: At, StartedAt: At, EndedAt: At,
				Children: &perdure.ChildCounts{Total: 20, Submitted: 15, Active: 5, Parked: 1, Done: 6, Undone: 2, Unsure: 1, Failed: 3, MadeFrom: "order@7"},
				Why: &perdure.Reason{Kind: perdure.WhyLimit, Text: "full", Limit: "agent:http", Max: &limit, Used: 3, Until: At, Since: At,
					Holders: []perdure.HolderView{{Job: ID, Step: "other", Run: 1}}},
			},
			{Name: "charge", Agent: "payments", Action: "charge", After: []string{"reserve"}, Turn: 1, Key: "k/charge/1"},
		},
	}
}

// Stored is a version of a stored definition.
func Stored() *operate.DefinitionView {
	return &operate.DefinitionView{Name: "order", Version: 7, Hash: "9f86d0", Current: 5, Latest: 7, CreatedAt: At, Author: "anna", UpdatedAt: At,
		Versions: []operate.DefinitionVersion{{Version: 7, Hash: "9f86d0", CreatedAt: At, Author: "anna"}}, Definition: Definition()}
}

// Definition is the definition of a job.
func Definition() json.RawMessage {
	return json.RawMessage(`{"type":"order","key":"order-1042","input":{"amount":12345678901234567890.10,"text":"<b>&"},"steps":{"reserve":{"agent":"http"}}}`)
}

// Step is one step of the job, of which every field has a value.
func Step() *perdure.StepDetail {
	return &perdure.StepDetail{Job: ID, Name: "reserve", StepView: Job().Steps[0]}
}

// Graph is a drawing of which every field has a value.
func Graph() *operate.Graph {
	return &operate.Graph{Hash: "9f2c6b0e4d1a8c7730b5e2f1a4d6c8e9", Width: 448, Height: 92, NodeWidth: 168, NodeHeight: 44,
		Nodes: []operate.GraphNode{{Name: "<reserve>", X: 24, Y: 24, Agent: "stock", Action: "hold", Undo: true}, {Name: "charge", X: 256, Y: 24, Agent: "payments"}},
		Edges: []operate.GraphEdge{{From: 0, To: 1, Points: []int{192, 46, 256, 46}}}, EdgesLeftOut: 1}
}

// Preview is a preview of which every field has a value.
func Preview() *operate.Preview {
	job := Job()
	job.Unchanged = true
	return &operate.Preview{Job: job, Effects: operate.Effects{Dispatch: []string{"<ship>"}, Settle: []string{"mail"}, Park: []string{"print"},
		WaitFor: []operate.StepWait{{Step: "charge", Until: At}, {Step: "ask"}}, WithoutUndo: []string{"notify"},
		LeftOut: &operate.EffectCounts{Dispatch: 1, Settle: 2, Park: 3, WaitFor: 4, WithoutUndo: 5}}}
}

// Validation is a validation of which every field has a value.
func Validation() *operate.Validation {
	return &operate.Validation{Graph: Graph(), Existing: &operate.ExistingJob{Job: ID, Same: true},
		Plan: operate.Plan{Steps: 2, LongestPath: operate.LongestPath{Steps: 2, Time: perdure.Duration(90 * time.Second)},
			Limits:        []operate.PlanLimit{{Name: "ads-api", Steps: 1, Amount: 2, Max: new(3), Rate: "5/s", PerKey: &perdure.KeyLimit{Max: new(1)}}},
			LimitsLeftOut: 1, Warnings: []operate.Warning{{Kind: "noUndo", Step: "charge", Text: "a <sentence>"}}, WarningsLeftOut: 2}}
}

// BulkID is a bulk act that Full knows.
const BulkID = "bulk_0190a6b7c8d97e0f8123456789abcdef"

// Bulk is a bulk act of which every field has a value.
func Bulk() *operate.BulkView {
	unsure, done := perdure.Unsure, perdure.Done
	return &operate.BulkView{ID: BulkID, Key: "<k>", Act: perdure.VerbSettle, Step: "charge", As: &done, Output: json.RawMessage(`{"html":"<b>&</b>","n":1.50}`),
		Input: json.RawMessage(`{"n":12345678901234567890.10}`), NewKey: true, PerSecond: 250,
		Filter: &operate.BulkFilter{Phase: []perdure.Phase{perdure.Parked}, Type: "order", Current: &unsure, Desired: &done, Key: "k", Label: map[string]string{"a": "b=&c"},
			Since: At, Until: At, Agent: "payments", Step: "charge", Reason: perdure.WhyParked, Error: "card&declined", Alert: perdure.AlertParked, Parent: "album-7/resize", Q: "order-"},
		Jobs: 3, Author: "Zoë", Reason: "seen <it>", State: operate.BulkStopped, StoppedBy: "anna", Expected: perdure.Count{N: 10, Capped: true},
		Matched: 6, Done: 1, Unchanged: 2, Refused: 3, StartedAt: At, UpdatedAt: At, EndedAt: At, Rate: 12.5, ExpectedEnd: At}
}

// Webhook is a receiver of which every field has a value.
func Webhook() *operate.WebhookView {
	return &operate.WebhookView{Name: "shop", WebhookSettings: WebhookSettings(), State: operate.WebhookPaused, PausedReason: "410 <Gone>", Secret: "whsec_AAAA", Pending: 3, Dead: 2,
		Oldest: &Deliveries().Items[0], Latest: &Deliveries().Items[0], CreatedAt: At, UpdatedAt: At}
}

// SignalResult is an answer to a signal, of which every field has a value.
func SignalResult() *operate.SignalResult {
	return &operate.SignalResult{ID: "evt_<9>", Matched: []string{"job_1/paid"}, Repeated: true}
}

// RoleHold is an answer to a holder of a role, of which every field has a value.
func RoleHold() *operate.RoleHold {
	return &operate.RoleHold{Leads: true, Epoch: 7, Leader: "web1/<4711>", Until: At}
}

// RoleState is a role of which every field has a value.
func RoleState() operate.RoleState {
	return operate.RoleState{Name: "courier", Kind: operate.NodeRole, Epoch: 7, Leader: "n1", LeaderHost: "h1", Until: At, Standby: "n2", StandbyHost: "h2", StandbyUntil: At.Add(time.Second)}
}

// Schedule is a schedule of which every field has a value.
func Schedule() *operate.ScheduleView {
	return &operate.ScheduleView{Name: "nightly", Version: 4, ScheduleSettings: ScheduleSettings(), State: operate.SchedulePaused, PausedReason: "paused by <anna>",
		Next: []time.Time{At, At.Add(24 * time.Hour)}, Last: &operate.ScheduleLast{Time: At, Job: ID}, Running: []perdure.JobID{ID}, Waiting: []time.Time{At}, Fired: 31, Failures: 2,
		Skipped: operate.ScheduleSkipped{Overlap: 2, CatchUp: 1}, Backfill: Backfill(), CreatedAt: At, UpdatedAt: At}
}

// ScheduleSettings are settings of a schedule.
func ScheduleSettings() operate.ScheduleSettings {
	return operate.ScheduleSettings{Cron: operate.ScheduleCron{"30 2 * * *", "@weekly"}, Timezone: "Europe/Warsaw",
		Job:     operate.ScheduleJob{Definition: json.RawMessage(`{"type":"report","steps":{"s":{"agent":"a"}}}`), Input: json.RawMessage(`{"n":12345678901234567890.10,"t":"${schedule.time}<&>"}`), Priority: new(3), Labels: map[string]string{"by": "nightly <ü>"}},
		Overlap: operate.OverlapQueue, CatchUp: &operate.ScheduleCatchUp{Within: new(perdure.Duration(6 * time.Hour)), Max: new(0)}, Jitter: perdure.Duration(5 * time.Minute), PauseAfter: 3, From: &At, Until: new(At.Add(time.Hour)), Paused: new(true)}
}

// Backfill is a backfill of which every field has a value.
func Backfill() *operate.BackfillView {
	return &operate.BackfillView{From: At, To: At.Add(time.Hour), Parallel: 4, Again: 1, Times: 30, Ready: 2, First: []time.Time{At}, Next: At}
}

// Firings are lines of the history of a schedule.
func Firings() []operate.Firing {
	return []operate.Firing{{Time: At, State: operate.FiringDone, Reason: operate.FiringTrigger, Again: 1, Job: ID, At: At},
		{Time: At, To: At.Add(time.Hour), Times: 5, State: operate.FiringSkipped, Reason: operate.FiringCatchUp, At: At}}
}

// WebhookSettings are the settings of a receiver with a URL.
func WebhookSettings() operate.WebhookSettings {
	return operate.WebhookSettings{URL: "https://x.example/a?b=<c>&d", On: []operate.EventKind{operate.EventParked, operate.EventDone}, Types: []string{"order"}, Format: operate.FormatSlack}
}

// Deliveries is a page of notifications.
func Deliveries() *perdure.Page[operate.Delivery] {
	return &perdure.Page[operate.Delivery]{Items: []operate.Delivery{{ID: "ntc_1", Type: "perdure.job.done", Job: ID, Time: At, State: operate.DeliveryPending, Attempts: 2,
		NextAttempt: At, EndedAt: At, Error: "no <room>"}}, NextCursor: "next"}
}

// BulkPreview is a preview of a bulk act of which every field has a value.
func BulkPreview() *operate.BulkPreview {
	return &operate.BulkPreview{Count: perdure.Count{N: 10, Capped: true}, Samples: []perdure.JobView{*Job()}, Refused: map[perdure.Code]int{perdure.CodeConflict: 3}, Unchanged: 2}
}

// BulkRefusals is a page of refusals of a bulk act.
func BulkRefusals() *perdure.Page[operate.BulkRefusal] {
	return &perdure.Page[operate.BulkRefusal]{Items: []operate.BulkRefusal{{Job: ID, Key: "order-1", Code: perdure.CodeConflict, Message: "not <now>"}}, NextCursor: "next"}
}

// Submitted is what becomes of the job that comes as number i of several: the first is made, the second was
// there, the third is refused.
func Submitted(i int) perdure.Submitted {
	switch i % 3 {
	case 0:
		return perdure.Submitted{ID: ID, Key: "order-1042", Created: true}
	case 1:
		return perdure.Submitted{ID: ID}
	}
	return perdure.Submitted{Err: &perdure.Error{Code: perdure.CodeInvalid, Message: "/steps/a: is a <cycle>", Hint: "break it",
		Fields: []perdure.FieldError{{Pointer: "/steps/a", Message: "is a <cycle>", Hint: "break it"}, {Message: "no place"}}}}
}

// Alert is an alert of which every field has a value.
func Alert() perdure.AlertView {
	return perdure.AlertView{ID: 12, Job: ID, Type: "order", JobKey: "order-1042", Step: "charge", Kind: perdure.AlertParked, Code: "card_declined", Attempts: 5, Name: "ops", Message: "parked", RaisedAt: At, ClosedAt: At, ClosedBy: "anna"}
}

// JobsChanges are a change of each kind of a list of jobs.
func JobsChanges() []*operate.JobsChange {
	return []*operate.JobsChange{
		{Page: &perdure.Page[perdure.JobView]{Items: []perdure.JobView{*Job()}, NextCursor: "next", ScannedBackTo: At, Count: &perdure.Count{N: 3, Capped: true}}},
		{Changed: []perdure.JobView{*Job(), *Job()}}, {Gone: []perdure.JobID{ID}}, {Newer: &operate.Newer{N: 100, Capped: true}},
		{Problem: &perdure.Error{Code: perdure.CodeUnavailable, Message: "the store is away", Hint: "wait"}}, {Newer: &operate.Newer{}},
	}
}

// AlertsChanges are a change of each kind of a list of alerts.
func AlertsChanges() []*operate.AlertsChange {
	return []*operate.AlertsChange{
		{Page: &perdure.Page[perdure.AlertView]{Items: []perdure.AlertView{Alert()}, NextCursor: "next"}},
		{Changed: []perdure.AlertView{Alert()}}, {Gone: []int64{12, 9007199254740993}}, {Newer: &operate.Newer{N: 1}},
	}
}

func each[T any](changes []T, see func(T) error) error {
	for _, c := range changes {
		if err := see(c); err != nil {
			return err
		}
	}
	return nil
}

// Run is a run of which every field has a value.
func Run() perdure.Run {
	return perdure.Run{Job: ID, Step: "charge", Action: "charge", Number: 3, Direction: perdure.Undo, Input: json.RawMessage(`{"amount":1.0,"note":"n"}`), Secrets: []string{"/note"},
		Output: json.RawMessage(`null`), DoKey: "k/1", Key: "k/2", LockedUntil: At, CompleteBy: At, RemainingMs: 30000, WaitedMs: 5, Priority: 9, Traceparent: "00-1-2-01", StopWithin: perdure.Duration(30 * time.Second),
		Requires: &perdure.Requires{Amounts: perdure.Amounts{"cpu": 500, "memory": 3 << 30}, Labels: map[string]string{"gpu": "*"}, Grid: "local"}, Labels: map[string]string{"team": "a \"b\"", "zone": "ü"}}
}

// Token is a token of which every field has a value.
func Token() operate.TokenView {
	return operate.TokenView{ID: "8XkqT2mWc0Za", Name: "ci <ü>", Rights: operate.Rights{Role: operate.Submitter, Types: []string{"order"}, Agents: []string{"payments"}, Hosts: []string{"h1"}, Groups: []string{"managers"}},
		CreatedAt: At, CreatedBy: "anna", ExpiresAt: At, LastUsedAt: At, RotatedAt: At, PreviousUntil: At}
}

// NewToken is a token with its text.
func NewToken() *operate.NewToken {
	return &operate.NewToken{TokenView: Token(), Token: "pdr_8XkqT2mWc0Za_x"}
}

// Session is a session of which every field has a value.
func Session() operate.SessionView {
	t := Token()
	return operate.SessionView{ID: "b9RtUw27LxQe", Name: t.Name, Rights: t.Rights, Token: t.ID, CreatedAt: At, ExpiresAt: At, LastUsedAt: At}
}

// AuditEntry is an entry of the audit log of which every field has a value.
func AuditEntry() operate.AuditEntry {
	return operate.AuditEntry{ID: 7, At: At, Author: "anna", OnBehalfOf: "ben", Via: operate.ViaToken, Credential: "8XkqT2mWc0Za", Address: "::1", Act: "undo", Job: ID,
		Target: "charge", Reason: "a <b>", Outcome: operate.AuditRefused, Code: perdure.CodeConflict, Count: 2}
}

// Full answers every call with as much as there can be.
func Full() *Service {
	job := func() (*perdure.JobView, error) { return Job(), nil }
	limit := func(name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
		return &perdure.LimitView{Name: name, LimitSettings: settings, Used: 1, Holders: []perdure.HolderView{{Job: ID, Step: "charge", Run: 3}}}, nil
	}
	return &Service{
		OnSubmit:      func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) { return Job(), true, nil },
		OnGraph:       func(context.Context, string) (*operate.Graph, error) { return Graph(), nil },
		OnShapeGraph:  func(context.Context, string) (*operate.Graph, error) { return Graph(), nil },
		OnPreview:     func(context.Context, string, perdure.Act) (*operate.Preview, error) { return Preview(), nil },
		OnValidate:    func(context.Context, []byte, string) (*operate.Validation, error) { return Validation(), nil },
		OnPreviewBulk: func(context.Context, operate.BulkRequest) (*operate.BulkPreview, error) { return BulkPreview(), nil },
		OnStartBulk:   func(context.Context, operate.BulkRequest) (*operate.BulkView, error) { return Bulk(), nil },
		OnListBulks: func(context.Context, operate.BulkQuery) (*perdure.Page[operate.BulkView], error) {
			return &perdure.Page[operate.BulkView]{Items: []operate.BulkView{*Bulk()}, NextCursor: "next"}, nil
		},
		OnGetBulk: func(context.Context, string) (*operate.BulkView, error) { return Bulk(), nil },
		OnBulkRefusals: func(context.Context, operate.BulkRefusalQuery) (*perdure.Page[operate.BulkRefusal], error) {
			return BulkRefusals(), nil
		},
		OnStopBulk:    func(context.Context, string, string) (*operate.BulkView, error) { return Bulk(), nil },
		OnResumeBulk:  func(context.Context, string, string) (*operate.BulkView, error) { return Bulk(), nil },
		OnCreateToken: func(context.Context, operate.TokenRequest) (*operate.NewToken, error) { return NewToken(), nil },
		OnRotateToken: func(context.Context, string, time.Duration, string) (*operate.NewToken, error) {
			return NewToken(), nil
		},
		OnDeleteToken: func(context.Context, string, string) error { return nil },
		OnListTokens: func(context.Context, operate.PageQuery) (*perdure.Page[operate.TokenView], error) {
			return &perdure.Page[operate.TokenView]{Items: []operate.TokenView{Token()}, NextCursor: "next"}, nil
		},
		OnListSessions: func(context.Context, operate.PageQuery) (*perdure.Page[operate.SessionView], error) {
			return &perdure.Page[operate.SessionView]{Items: []operate.SessionView{Session()}, NextCursor: "next"}, nil
		},
		OnDeleteSession: func(context.Context, string, string) error { return nil },
		OnAudit: func(context.Context, operate.AuditQuery) (*perdure.Page[operate.AuditEntry], error) {
			return &perdure.Page[operate.AuditEntry]{Items: []operate.AuditEntry{AuditEntry()}, NextCursor: "next"}, nil
		},
		OnReadLog: func(_ context.Context, _ operate.LogQuery, see func(*operate.LogPart) error) error {
			return each(LogParts(), see)
		},
		OnAppendLogs: func(_ context.Context, _ string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
			return LogResults()[:len(chunks)], nil
		},
		OnUploadArtifact: func(_ context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
			_, err := io.CopyN(io.Discard, u.Body, u.Length)
			return &operate.ArtifactState{Artifact: u.Hash, Size: u.Size, Next: u.Offset + u.Length, Created: u.Offset+u.Length == u.Size}, err
		},
		OnOpenArtifact: func(context.Context, string) (operate.ArtifactReader, error) {
			return content{strings.NewReader(Artifact)}, nil
		},
		OnSendSignal:   func(context.Context, operate.Signal) (*operate.SignalResult, error) { return SignalResult(), nil },
		OnHoldRole:     func(context.Context, operate.RoleRequest) (*operate.RoleHold, error) { return RoleHold(), nil },
		OnReleaseRole:  func(context.Context, string, string) (*operate.RoleHold, error) { return RoleHold(), nil },
		OnListRoles:    func(context.Context) ([]operate.RoleState, error) { return []operate.RoleState{RoleState()}, nil },
		OnRegisterHost: func(context.Context, operate.HostRequest) (*operate.HostRegistered, error) { return Registered(), nil },
		OnListHosts: func(context.Context, operate.HostQuery) (*perdure.Page[operate.HostView], error) {
			return &perdure.Page[operate.HostView]{Items: []operate.HostView{*Host()}, NextCursor: "z"}, nil
		},
		OnGetHost:    func(context.Context, string) (*operate.HostView, error) { return Host(), nil },
		OnDrainHost:  func(context.Context, operate.HostDrain) (*operate.HostView, error) { return Host(), nil },
		OnReadyHost:  func(context.Context, string, string) (*operate.HostView, error) { return Host(), nil },
		OnDeleteHost: func(context.Context, string, string) error { return nil },
		OnPutDefinition: func(context.Context, string, []byte, string, string) (*operate.DefinitionView, bool, error) {
			return Stored(), true, nil
		},
		OnGetDefinition: func(context.Context, string) (*operate.DefinitionView, error) { return Stored(), nil },
		OnListDefinitions: func(_ context.Context, _ int, cursor string) (*perdure.Page[operate.DefinitionView], error) {
			return &perdure.Page[operate.DefinitionView]{Items: []operate.DefinitionView{*Stored()}, NextCursor: after(cursor, "z")}, nil
		},
		OnPromoteDefinition: func(context.Context, string, int, string) (*operate.DefinitionView, error) { return Stored(), nil },
		OnDeleteDefinition:  func(context.Context, string, string) error { return nil },
		OnPutSchedule: func(context.Context, operate.ScheduleRequest) (*operate.ScheduleView, bool, error) {
			return Schedule(), true, nil
		},
		OnGetSchedule: func(context.Context, string) (*operate.ScheduleView, error) { return Schedule(), nil },
		OnListSchedules: func(_ context.Context, q operate.ScheduleQuery) (*perdure.Page[operate.ScheduleView], error) {
			return &perdure.Page[operate.ScheduleView]{Items: []operate.ScheduleView{*Schedule()}, NextCursor: after(q.Cursor, "z")}, nil
		},
		OnDeleteSchedule: func(context.Context, string, string) error { return nil },
		OnPauseSchedule:  func(context.Context, operate.SchedulePause) (*operate.ScheduleView, error) { return Schedule(), nil },
		OnResumeSchedule: func(context.Context, operate.ScheduleResume) (*operate.ScheduleView, error) { return Schedule(), nil },
		OnTriggerSchedule: func(context.Context, operate.ScheduleTrigger) (*operate.ScheduleFired, error) {
			return &operate.ScheduleFired{Time: At, Job: ID, Created: true, Unscheduled: true}, nil
		},
		OnBackfillSchedule: func(context.Context, operate.ScheduleBackfill) (*operate.BackfillView, error) { return Backfill(), nil },
		OnNextTimes: func(context.Context, string, int) ([]time.Time, error) {
			return []time.Time{At, At.Add(time.Hour)}, nil
		},
		OnListFirings: func(_ context.Context, q operate.FiringQuery) (*perdure.Page[operate.Firing], error) {
			return &perdure.Page[operate.Firing]{Items: Firings(), NextCursor: after(q.Cursor, "next")}, nil
		},
		OnListWebhooks:  func(context.Context) ([]operate.WebhookView, error) { return []operate.WebhookView{*Webhook()}, nil },
		OnGetWebhook:    func(context.Context, string) (*operate.WebhookView, error) { return Webhook(), nil },
		OnCreateWebhook: func(context.Context, operate.WebhookRequest) (*operate.WebhookView, error) { return Webhook(), nil },
		OnSetWebhook: func(context.Context, operate.WebhookRequest) (*operate.WebhookView, bool, error) {
			return Webhook(), true, nil
		},
		OnDeleteWebhook: func(context.Context, string, string) error { return nil },
		OnPauseWebhook:  func(context.Context, string, string) (*operate.WebhookView, error) { return Webhook(), nil },
		OnResumeWebhook: func(context.Context, string, string) (*operate.WebhookView, error) { return Webhook(), nil },
		OnRotateWebhook: func(context.Context, string, string) (*operate.WebhookView, error) { return Webhook(), nil },
		OnTestWebhook:   func(context.Context, string, string) (string, error) { return "ntc_1", nil },
		OnResendWebhook: func(context.Context, operate.WebhookResend) (int, error) { return 12, nil },
		OnListDeliveries: func(context.Context, operate.DeliveryQuery) (*perdure.Page[operate.Delivery], error) {
			return Deliveries(), nil
		},
		OnFollowEvents: func(_ context.Context, _ string, _ int64, see func(*operate.EventPage) error) error {
			return see(&operate.EventPage{Gap: true, Events: []operate.Event{{Position: 7, Body: json.RawMessage(`{"id":"ntc_1"}`)}}})
		},
		OnSubmitAll: func(_ context.Context, _ json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
			out := make([]perdure.Submitted, len(jobs))
			for i := range out {
				out[i] = Submitted(i)
			}
			return out, nil
		},
		OnJob:     func(context.Context, string, time.Duration) (*perdure.JobView, error) { return job() },
		OnJobPart: func(context.Context, string, time.Duration, operate.Steps) (*perdure.JobView, error) { return job() },
		OnOutput: func(context.Context, string) (json.RawMessage, error) {
			return json.RawMessage(`{"receipt":"r-1042"}`), nil
		},
		OnDefinition: func(context.Context, string) (json.RawMessage, error) { return Definition(), nil },
		OnStep:       func(context.Context, string, string) (*perdure.StepDetail, error) { return Step(), nil },
		OnListJobs: func(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
			return &perdure.Page[perdure.JobView]{Items: []perdure.JobView{*Job()}, NextCursor: "next"}, nil
		},
		OnFollow: func(_ context.Context, _ string, see func(*perdure.JobView) error) error {
			v := Job()
			if err := see(v); err != nil {
				return err
			}
			last := *v
			last.Phase, last.Steps = perdure.Settled, v.Steps[1:]
			return see(&last)
		},
		OnFollowJobs: func(_ context.Context, _ perdure.JobQuery, see func(*operate.JobsChange) error) error {
			return each(JobsChanges(), see)
		},
		OnFollowAlert: func(_ context.Context, _ perdure.AlertQuery, see func(*operate.AlertsChange) error) error {
			return each(AlertsChanges(), see)
		},
		OnHistory: func(context.Context, perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
			return &perdure.Page[perdure.EntryView]{Items: []perdure.EntryView{{Step: "charge", Run: 1, At: At, Event: "failed", Author: "h", Detail: "503"}}, NextCursor: "next"}, nil
		},
		OnRuns: func(context.Context, operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
			return &perdure.Page[operate.RunRecord]{Items: Runs(), NextCursor: "next"}, nil
		},
		OnAct: func(context.Context, string, perdure.Act) (*perdure.JobView, error) { return job() },
		OnListAlerts: func(context.Context, perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
			return &perdure.Page[perdure.AlertView]{Items: []perdure.AlertView{Alert()}, NextCursor: "next"}, nil
		},
		OnCloseAlert: func(_ context.Context, id int64, by string) (*perdure.AlertView, error) {
			a := Alert()
			a.ID, a.ClosedBy = id, by
			return &a, nil
		},
		OnListLimits: func(context.Context) ([]perdure.LimitView, error) {
			l, err := limit("agent:http", perdure.LimitSettings{Max: new(3)})
			return []perdure.LimitView{*l}, err
		},
		OnGetLimit: func(_ context.Context, name string) (*perdure.LimitView, error) {
			return limit(name, perdure.LimitSettings{Max: new(3)})
		},
		OnLimitKeys: func(_ context.Context, q operate.LimitKeyQuery) ([]operate.LimitKeyView, error) {
			return []operate.LimitKeyView{{Key: q.Key, KeyLimit: perdure.KeyLimit{Max: new(q.Limit), Rate: "5/s", Burst: 2}, Used: 3, Ready: 1000, ReadyCapped: true, NeverFit: 4, RoomAt: At,
				Holders: []perdure.HolderView{{Job: ID, Step: "charge", Run: 3, Key: "a&b", Amount: 2}}}}, nil
		},
		OnPutLimit: func(_ context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
			return limit(name, settings)
		},
		OnDeleteLimit: func(context.Context, string) error { return nil },
		OnStats:       func(context.Context) (*operate.Stats, error) { return Stats(), nil },
		OnListAgents: func(context.Context) ([]perdure.AgentView, error) {
			return []perdure.AgentView{Agent("http")}, nil
		},
		OnGetAgent: func(_ context.Context, name string) (*perdure.AgentView, error) {
			agent := Agent(name)
			return &agent, nil
		},
		OnDeleteAgent: func(context.Context, string) error { return nil },
		OnPutAgent: func(_ context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error) {
			agent := Agent(name)
			agent.AgentSettings = settings
			return &agent, nil
		},
		OnListNodes: func(context.Context) ([]perdure.NodeView, error) {
			return Nodes(), nil
		},
		OnClaim: func(context.Context, protocol.Claim) ([]perdure.Run, error) { return []perdure.Run{Run()}, nil },
		OnReport: func(_ context.Context, _ string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
			var runs []perdure.Run
			if next != nil {
				runs = append(runs, Run())
			}
			return make([]protocol.ReportResult, len(reports)), runs, nil
		},
		OnHeartbeat: func(_ context.Context, _ string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
			out := make([]protocol.HeartbeatResult, len(heartbeats))
			for i, b := range heartbeats {
				out[i] = protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run, LockedUntil: At, RemainingMs: 1, Stop: true, Reason: "undo"}
			}
			return out, nil
		},
		OnHeartbeatAll: func(_ context.Context, c protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
			out := make([]protocol.HeartbeatResult, len(c.Runs))
			for i, b := range c.Runs {
				out[i] = protocol.HeartbeatResult{Job: b.Job, Step: b.Step, Run: b.Run, LockedUntil: At, RemainingMs: 1, Stop: true, Reason: "undo"}
			}
			return out, At, nil
		},
	}
}

// Artifact is the content of an artifact, and ArtifactHash its name.
const (
	Artifact     = "foo"
	ArtifactHash = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
)

type content struct{ *strings.Reader }

func (content) Close() error { return nil }

// LogParts are the parts of a log.
func LogParts() []*operate.LogPart {
	return []*operate.LogPart{{Run: 3, Offset: 7, Size: 400, Data: []byte("a\xff\n")}, {Run: 3, Offset: 400, LeftOut: 390, Size: 400, End: true}}
}

// LogResults are two results of chunks, of which each field has a value.
func LogResults() []protocol.LogResult {
	return []protocol.LogResult{{Accepted: true, Next: 12}, {Reason: protocol.RefusedFull, Message: "<later>", Next: 7, RetryAfter: 200 * time.Millisecond}}
}

// Nodes is one that leads.
func Nodes() []perdure.NodeView {
	return []perdure.NodeView{{ID: "n1", State: perdure.NodeAlive, Host: "h3", PID: 1, Version: "v", Listen: ":1", Agents: []string{"http"}, Slots: map[string]int{"http": 2},
		Leads: []perdure.RoleView{{Role: "supervisor", Epoch: 3, Until: At}}, StandsBy: []perdure.RoleView{}, Since: At, SeenAt: At}}
}

// AgentSettings has a value in each field.
func AgentSettings() perdure.AgentSettings {
	return perdure.AgentSettings{Ageing: perdure.Duration(10 * time.Minute), Patience: perdure.Duration(2 * time.Minute), FairBy: "job.labels.customer", Weights: map[string]int{"gold": 4}}
}

// Agent is an agent with settings.
func Agent(name string) perdure.AgentView {
	return perdure.AgentView{Name: name, AgentSettings: AgentSettings(), Holders: 2, Gone: 1, SeenAt: At,
		AsOf: At, Nodes: 1, Slots: 4, Running: 3, Ready: 9, ReadyCapped: true, OldestReady: At, Refused: 2, Errors: map[string]int{"503": 5, "": 1},
		Health: []perdure.HolderHealth{{Holder: "h3-1", Runs: 20, Done: 4, MeanDuration: perdure.Duration(1500 * time.Millisecond), Weight: 0.1}},
		Shares: []perdure.ShareView{{Value: "gold", Weight: 4, Ahead: 0.5, Ready: 1000, ReadyCapped: true}}}
}

// Stats has a value in each field.
func Stats() *operate.Stats {
	return &operate.Stats{AsOf: At,
		Jobs:        operate.JobStats{Waiting: operate.Tally{N: 4, Capped: true}, Running: operate.Tally{N: 3}, Parked: operate.Tally{N: 2}, Settled: operate.Tally{N: 1, Estimated: true}},
		Types:       []operate.TypeStats{{Type: "order", Waiting: 4, Running: 3, Parked: 2, Undoing: 1, OldestWaiting: At}},
		TypesCapped: true, TypesLeftOut: 1,
		Reasons: []operate.ReasonStats{{Reason: perdure.WhyNoAgent, Name: "mail", Steps: 3, Capped: true, Oldest: At, LastClaim: At},
			{Reason: perdure.WhyLimit, Name: "ads", Steps: 2, Used: 5, Max: new(5), Rate: "9/m", PerKey: new(1), KeyRate: "1/s"}, {Reason: perdure.WhyBackoff, Steps: 1, Next: At}},
		ReasonsLeftOut: 1,
		Alerts:         []operate.AlertStats{{Kind: perdure.AlertParked, Type: "order", Step: "charge", Code: "503", N: 2, Oldest: At}},
		AlertsCapped:   true, AlertsLeftOut: 1, AlertKinds: map[perdure.AlertKind]int{perdure.AlertParked: 2},
		Agents:        []operate.AgentStats{{Agent: "http", Ready: 9, ReadyCapped: true, OldestReady: At, Running: 3, Nodes: 1, Slots: 4, Holders: 2, LastClaim: At, SharesWaiting: 3, SharesCapped: true, Refused: 2, Errors: map[string]int{"503": 5}}},
		AgentsLeftOut: 1,
		Limits:        []operate.LimitStats{{Limit: "ads", Used: 5, Max: new(5)}}, LimitsLeftOut: 1,
		Signals: operate.SignalStats{Kept: operate.Tally{N: 7, Capped: true}, Waiters: operate.Tally{N: 6, Capped: true}},
		Nodes:   operate.NodeStats{Alive: 2, Dead: 1},
		Series:  operate.Series{Every: perdure.Duration(time.Minute), From: At, Submitted: []int{1}, Done: []int{2}, Undone: []int{3}, Parked: []int{4}, Failed: []int{5}}}
}

// Runs are a run with every value, and one with none that may be missing.
func Runs() []operate.RunRecord {
	return []operate.RunRecord{
		{Step: "charge", Run: 3, Turn: 2, Direction: new(perdure.Undo), Holder: "h", ReadyAt: At, StartedAt: At, EndedAt: At, Outcome: perdure.OutcomeFailed, Error: "503: <no>"},
		{Step: "charge", Run: 4},
	}
}

// HostSettings are the settings of a host, with a value in each field.
func HostSettings() operate.HostSettings {
	return operate.HostSettings{Incarnation: "7f3a", Boot: "5b0c", Grid: "local", Labels: map[string]string{"zone": "a"},
		Capacity: perdure.Amounts{"cpu": 2500, "memory": 4 << 30, "slots": 10}, Version: "1.4.0", Heartbeat: perdure.Duration(time.Minute)}
}

// Registered is the answer to the registration of a host.
func Registered() *operate.HostRegistered {
	return &operate.HostRegistered{Holder: "host/h1/7f3a", State: operate.HostDraining, DrainBy: At, DrainInMs: 540000, Created: true}
}

// Host is a host with a value in each field.
func Host() *operate.HostView {
	return &operate.HostView{Name: "h1", State: operate.HostDraining, Holder: "host/h1/7f3a", HostSettings: HostSettings(), Used: perdure.Amounts{"cpu": 500},
		NoSpace: true, Runs: 1, Drain: &operate.HostDrainView{By: At, Author: "anna", Reason: "update"}, Reservation: &operate.HostReservation{Job: ID, Step: "render", Since: At, Until: At}, RegisteredAt: At, SeenAt: At,
		InFlight: []operate.HostRun{{Job: ID, Step: "render", Run: 3, Agent: "exec", Requires: perdure.Requires{Amounts: perdure.Amounts{"cpu": 500}, Labels: map[string]string{"gpu": "*"}, Grid: "local"}, StartedAt: At}}}
}

// after returns the cursor of the second page, which is the last one.
func after(cursor, second string) string {
	if cursor == second {
		return ""
	}
	return second
}
