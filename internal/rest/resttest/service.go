// Package resttest has a protocol.Server that is made of functions, for the tests of the REST API and of its client.
package resttest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Service implements each method by a function. A call of a method whose function is nil is a mistake of the test.
type Service struct {
	OnSubmit       func(ctx context.Context, body []byte, mediaType, key string) (*perdure.JobView, bool, error)
	OnSubmitAll    func(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error)
	OnJob          func(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error)
	OnJobPart      func(ctx context.Context, ref string, wait time.Duration, steps operate.Steps) (*perdure.JobView, error)
	OnOutput       func(ctx context.Context, ref string) (json.RawMessage, error)
	OnDefinition   func(ctx context.Context, ref string) (json.RawMessage, error)
	OnStep         func(ctx context.Context, ref, step string) (*perdure.StepDetail, error)
	OnListJobs     func(context.Context, perdure.JobQuery) (*perdure.Page[perdure.JobView], error)
	OnFollow       func(ctx context.Context, ref string, see func(*perdure.JobView) error) error
	OnHistory      func(context.Context, perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error)
	OnRuns         func(context.Context, operate.RunsQuery) (*perdure.Page[operate.RunRecord], error)
	OnAct          func(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error)
	OnListAlerts   func(context.Context, perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error)
	OnCloseAlert   func(ctx context.Context, id int64, by string) (*perdure.AlertView, error)
	OnListLimits   func(context.Context) ([]perdure.LimitView, error)
	OnGetLimit     func(ctx context.Context, name string) (*perdure.LimitView, error)
	OnLimitKeys    func(context.Context, operate.LimitKeyQuery) ([]operate.LimitKeyView, error)
	OnPutLimit     func(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error)
	OnDeleteLimit  func(ctx context.Context, name string) error
	OnGraph        func(ctx context.Context, ref string) (*operate.Graph, error)
	OnShapeGraph   func(ctx context.Context, hash string) (*operate.Graph, error)
	OnPreview      func(ctx context.Context, ref string, act perdure.Act) (*operate.Preview, error)
	OnValidate     func(ctx context.Context, body []byte, mediaType string) (*operate.Validation, error)
	OnFollowJobs   func(context.Context, perdure.JobQuery, func(*operate.JobsChange) error) error
	OnFollowAlert  func(context.Context, perdure.AlertQuery, func(*operate.AlertsChange) error) error
	OnStats        func(context.Context) (*operate.Stats, error)
	OnListAgents   func(context.Context) ([]perdure.AgentView, error)
	OnGetAgent     func(ctx context.Context, name string) (*perdure.AgentView, error)
	OnDeleteAgent  func(ctx context.Context, name string) error
	OnPutAgent     func(ctx context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error)
	OnListNodes    func(context.Context) ([]perdure.NodeView, error)
	OnClaim        func(context.Context, protocol.Claim) ([]perdure.Run, error)
	OnReport       func(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error)
	OnHeartbeat    func(ctx context.Context, holder string, beats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error)
	OnHeartbeatAll func(context.Context, protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error)
	OnPreviewBulk  func(context.Context, operate.BulkRequest) (*operate.BulkPreview, error)
	OnStartBulk    func(context.Context, operate.BulkRequest) (*operate.BulkView, error)
	OnListBulks    func(context.Context, operate.BulkQuery) (*perdure.Page[operate.BulkView], error)
	OnGetBulk      func(ctx context.Context, id string) (*operate.BulkView, error)
	OnBulkRefusals func(context.Context, operate.BulkRefusalQuery) (*perdure.Page[operate.BulkRefusal], error)
	OnStopBulk     func(ctx context.Context, id, author string) (*operate.BulkView, error)
	OnResumeBulk   func(ctx context.Context, id, author string) (*operate.BulkView, error)

	OnReadLog    func(context.Context, operate.LogQuery, func(*operate.LogPart) error) error
	OnAppendLogs func(ctx context.Context, holder string, chunks []protocol.LogChunk) ([]protocol.LogResult, error)

	OnUploadArtifact func(context.Context, operate.ArtifactUpload) (*operate.ArtifactState, error)
	OnOpenArtifact   func(ctx context.Context, hash string) (operate.ArtifactReader, error)

	OnListWebhooks   func(ctx context.Context) ([]operate.WebhookView, error)
	OnGetWebhook     func(ctx context.Context, name string) (*operate.WebhookView, error)
	OnCreateWebhook  func(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, error)
	OnSetWebhook     func(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, bool, error)
	OnDeleteWebhook  func(ctx context.Context, name, author string) error
	OnPauseWebhook   func(ctx context.Context, name, author string) (*operate.WebhookView, error)
	OnResumeWebhook  func(ctx context.Context, name, author string) (*operate.WebhookView, error)
	OnRotateWebhook  func(ctx context.Context, name, author string) (*operate.WebhookView, error)
	OnTestWebhook    func(ctx context.Context, name, author string) (string, error)
	OnResendWebhook  func(ctx context.Context, r operate.WebhookResend) (int, error)
	OnListDeliveries func(ctx context.Context, q operate.DeliveryQuery) (*perdure.Page[operate.Delivery], error)
	OnFollowEvents   func(ctx context.Context, receiver string, after int64, see func(*operate.EventPage) error) error

	OnSendSignal  func(context.Context, operate.Signal) (*operate.SignalResult, error)
	OnHoldRole    func(context.Context, operate.RoleRequest) (*operate.RoleHold, error)
	OnReleaseRole func(ctx context.Context, name, holder string) (*operate.RoleHold, error)
	OnListRoles   func(context.Context) ([]operate.RoleState, error)

	OnRegisterHost func(context.Context, operate.HostRequest) (*operate.HostRegistered, error)
	OnListHosts    func(context.Context, operate.HostQuery) (*perdure.Page[operate.HostView], error)
	OnGetHost      func(ctx context.Context, name string) (*operate.HostView, error)
	OnDrainHost    func(context.Context, operate.HostDrain) (*operate.HostView, error)
	OnReadyHost    func(ctx context.Context, name, author string) (*operate.HostView, error)
	OnDeleteHost   func(ctx context.Context, name, author string) error

	OnPutSchedule      func(ctx context.Context, r operate.ScheduleRequest) (*operate.ScheduleView, bool, error)
	OnGetSchedule      func(ctx context.Context, name string) (*operate.ScheduleView, error)
	OnListSchedules    func(ctx context.Context, q operate.ScheduleQuery) (*perdure.Page[operate.ScheduleView], error)
	OnDeleteSchedule   func(ctx context.Context, name, author string) error
	OnPauseSchedule    func(ctx context.Context, p operate.SchedulePause) (*operate.ScheduleView, error)
	OnResumeSchedule   func(ctx context.Context, r operate.ScheduleResume) (*operate.ScheduleView, error)
	OnTriggerSchedule  func(ctx context.Context, r operate.ScheduleTrigger) (*operate.ScheduleFired, error)
	OnBackfillSchedule func(ctx context.Context, r operate.ScheduleBackfill) (*operate.BackfillView, error)
	OnNextTimes        func(ctx context.Context, name string, n int) ([]time.Time, error)
	OnListFirings      func(ctx context.Context, q operate.FiringQuery) (*perdure.Page[operate.Firing], error)

	OnPutDefinition     func(ctx context.Context, name string, body []byte, mediaType, author string) (*operate.DefinitionView, bool, error)
	OnGetDefinition     func(ctx context.Context, ref string) (*operate.DefinitionView, error)
	OnListDefinitions   func(ctx context.Context, limit int, cursor string) (*perdure.Page[operate.DefinitionView], error)
	OnPromoteDefinition func(ctx context.Context, name string, version int, author string) (*operate.DefinitionView, error)
	OnDeleteDefinition  func(ctx context.Context, ref, author string) error

	OnCreateToken   func(context.Context, operate.TokenRequest) (*operate.NewToken, error)
	OnRotateToken   func(ctx context.Context, id string, overlap time.Duration, author string) (*operate.NewToken, error)
	OnDeleteToken   func(ctx context.Context, id, author string) error
	OnListTokens    func(context.Context, operate.PageQuery) (*perdure.Page[operate.TokenView], error)
	OnListSessions  func(context.Context, operate.PageQuery) (*perdure.Page[operate.SessionView], error)
	OnDeleteSession func(ctx context.Context, id, author string) error
	OnAudit         func(context.Context, operate.AuditQuery) (*perdure.Page[operate.AuditEntry], error)
}

var _ protocol.Server = (*Service)(nil)

func (s *Service) Submit(ctx context.Context, body []byte, mediaType string) (*perdure.JobView, bool, error) {
	return s.OnSubmit(ctx, body, mediaType, "")
}

func (s *Service) SubmitWithKey(ctx context.Context, body []byte, mediaType, key string) (*perdure.JobView, bool, error) {
	return s.OnSubmit(ctx, body, mediaType, key)
}

func (s *Service) SubmitAll(ctx context.Context, base json.RawMessage, jobs []json.RawMessage) ([]perdure.Submitted, error) {
	return s.OnSubmitAll(ctx, base, jobs)
}

func (s *Service) Job(ctx context.Context, ref string, wait time.Duration) (*perdure.JobView, error) {
	return s.OnJob(ctx, ref, wait)
}

func (s *Service) JobPart(ctx context.Context, ref string, wait time.Duration, steps operate.Steps) (*perdure.JobView, error) {
	return s.OnJobPart(ctx, ref, wait, steps)
}

func (s *Service) Output(ctx context.Context, ref string) (json.RawMessage, error) {
	return s.OnOutput(ctx, ref)
}

func (s *Service) Definition(ctx context.Context, ref string) (json.RawMessage, error) {
	return s.OnDefinition(ctx, ref)
}

func (s *Service) Graph(ctx context.Context, ref string) (*operate.Graph, error) {
	return s.OnGraph(ctx, ref)
}

func (s *Service) ShapeGraph(ctx context.Context, hash string) (*operate.Graph, error) {
	return s.OnShapeGraph(ctx, hash)
}

func (s *Service) Preview(ctx context.Context, ref string, act perdure.Act) (*operate.Preview, error) {
	return s.OnPreview(ctx, ref, act)
}

func (s *Service) Validate(ctx context.Context, body []byte, mediaType string) (*operate.Validation, error) {
	return s.OnValidate(ctx, body, mediaType)
}

func (s *Service) FollowJobs(ctx context.Context, q perdure.JobQuery, see func(*operate.JobsChange) error) error {
	return s.OnFollowJobs(ctx, q, see)
}

func (s *Service) FollowAlerts(ctx context.Context, q perdure.AlertQuery, see func(*operate.AlertsChange) error) error {
	return s.OnFollowAlert(ctx, q, see)
}

func (s *Service) PreviewBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkPreview, error) {
	return s.OnPreviewBulk(ctx, r)
}

func (s *Service) StartBulk(ctx context.Context, r operate.BulkRequest) (*operate.BulkView, error) {
	return s.OnStartBulk(ctx, r)
}

func (s *Service) ListBulks(ctx context.Context, q operate.BulkQuery) (*perdure.Page[operate.BulkView], error) {
	return s.OnListBulks(ctx, q)
}

func (s *Service) GetBulk(ctx context.Context, id string) (*operate.BulkView, error) {
	return s.OnGetBulk(ctx, id)
}

func (s *Service) BulkRefusals(ctx context.Context, q operate.BulkRefusalQuery) (*perdure.Page[operate.BulkRefusal], error) {
	return s.OnBulkRefusals(ctx, q)
}

func (s *Service) StopBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	return s.OnStopBulk(ctx, id, author)
}

func (s *Service) ResumeBulk(ctx context.Context, id, author string) (*operate.BulkView, error) {
	return s.OnResumeBulk(ctx, id, author)
}

func (s *Service) Step(ctx context.Context, ref, step string) (*perdure.StepDetail, error) {
	return s.OnStep(ctx, ref, step)
}

func (s *Service) ListJobs(ctx context.Context, q perdure.JobQuery) (*perdure.Page[perdure.JobView], error) {
	return s.OnListJobs(ctx, q)
}

func (s *Service) Follow(ctx context.Context, ref string, see func(*perdure.JobView) error) error {
	return s.OnFollow(ctx, ref, see)
}

func (s *Service) Runs(ctx context.Context, q operate.RunsQuery) (*perdure.Page[operate.RunRecord], error) {
	return s.OnRuns(ctx, q)
}

func (s *Service) History(ctx context.Context, q perdure.HistoryQuery) (*perdure.Page[perdure.EntryView], error) {
	return s.OnHistory(ctx, q)
}

func (s *Service) Act(ctx context.Context, ref string, act perdure.Act) (*perdure.JobView, error) {
	return s.OnAct(ctx, ref, act)
}

func (s *Service) ListAlerts(ctx context.Context, q perdure.AlertQuery) (*perdure.Page[perdure.AlertView], error) {
	return s.OnListAlerts(ctx, q)
}

func (s *Service) CloseAlert(ctx context.Context, id int64, by string) (*perdure.AlertView, error) {
	return s.OnCloseAlert(ctx, id, by)
}

func (s *Service) ListLimits(ctx context.Context) ([]perdure.LimitView, error) {
	return s.OnListLimits(ctx)
}

func (s *Service) GetLimit(ctx context.Context, name string) (*perdure.LimitView, error) {
	return s.OnGetLimit(ctx, name)
}

func (s *Service) LimitKeys(ctx context.Context, q operate.LimitKeyQuery) ([]operate.LimitKeyView, error) {
	return s.OnLimitKeys(ctx, q)
}

func (s *Service) PutLimit(ctx context.Context, name string, settings perdure.LimitSettings) (*perdure.LimitView, error) {
	return s.OnPutLimit(ctx, name, settings)
}

func (s *Service) DeleteLimit(ctx context.Context, name string) error {
	return s.OnDeleteLimit(ctx, name)
}

func (s *Service) Stats(ctx context.Context) (*operate.Stats, error) { return s.OnStats(ctx) }

func (s *Service) ListAgents(ctx context.Context) ([]perdure.AgentView, error) {
	return s.OnListAgents(ctx)
}

func (s *Service) GetAgent(ctx context.Context, name string) (*perdure.AgentView, error) {
	return s.OnGetAgent(ctx, name)
}

func (s *Service) DeleteAgent(ctx context.Context, name string) error {
	return s.OnDeleteAgent(ctx, name)
}

func (s *Service) PutAgent(ctx context.Context, name string, settings perdure.AgentSettings) (*perdure.AgentView, error) {
	return s.OnPutAgent(ctx, name, settings)
}

func (s *Service) ListNodes(ctx context.Context) ([]perdure.NodeView, error) {
	return s.OnListNodes(ctx)
}

func (s *Service) Claim(ctx context.Context, req protocol.Claim) ([]perdure.Run, error) {
	return s.OnClaim(ctx, req)
}

func (s *Service) Report(ctx context.Context, holder string, reports []protocol.Report, next *protocol.Claim) ([]protocol.ReportResult, []perdure.Run, error) {
	return s.OnReport(ctx, holder, reports, next)
}

func (s *Service) Heartbeat(ctx context.Context, holder string, heartbeats []protocol.Heartbeat) ([]protocol.HeartbeatResult, error) {
	return s.OnHeartbeat(ctx, holder, heartbeats)
}

func (s *Service) ReadLog(ctx context.Context, q operate.LogQuery, see func(*operate.LogPart) error) error {
	return s.OnReadLog(ctx, q, see)
}

func (s *Service) AppendLogs(ctx context.Context, holder string, chunks []protocol.LogChunk) ([]protocol.LogResult, error) {
	return s.OnAppendLogs(ctx, holder, chunks)
}

func (s *Service) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	return s.OnUploadArtifact(ctx, u)
}

func (s *Service) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	return s.OnOpenArtifact(ctx, hash)
}

func (s *Service) CreateToken(ctx context.Context, r operate.TokenRequest) (*operate.NewToken, error) {
	return s.OnCreateToken(ctx, r)
}

func (s *Service) RotateToken(ctx context.Context, id string, overlap time.Duration, author string) (*operate.NewToken, error) {
	return s.OnRotateToken(ctx, id, overlap, author)
}

func (s *Service) DeleteToken(ctx context.Context, id, author string) error {
	return s.OnDeleteToken(ctx, id, author)
}

func (s *Service) ListTokens(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.TokenView], error) {
	return s.OnListTokens(ctx, q)
}

func (s *Service) ListSessions(ctx context.Context, q operate.PageQuery) (*perdure.Page[operate.SessionView], error) {
	return s.OnListSessions(ctx, q)
}

func (s *Service) DeleteSession(ctx context.Context, id, author string) error {
	return s.OnDeleteSession(ctx, id, author)
}

func (s *Service) Audit(ctx context.Context, q operate.AuditQuery) (*perdure.Page[operate.AuditEntry], error) {
	return s.OnAudit(ctx, q)
}

// Registry identifies every caller as an admin.
type Registry struct{}

func (Registry) Identify(context.Context, string, kernel.CredentialKind, string) (*operate.Identity, error) {
	return admin(operate.ViaToken), nil
}

func (Registry) StillValid(context.Context, *operate.Identity) bool { return true }
func (Registry) HasAdmin(context.Context) (bool, error)             { return false, nil }
func (Registry) Logout(context.Context, *operate.Identity) error    { return nil }
func (Registry) Refused(operate.AuditEntry, string)                 {}

func (Registry) Login(context.Context, string, string) (string, *operate.Identity, error) {
	return "cookie", admin(operate.ViaSession), nil
}

func (Registry) Start(context.Context, *operate.Identity, string) (string, *operate.Identity, error) {
	return "cookie", admin(operate.ViaSession), nil
}

func admin(via operate.Via) *operate.Identity {
	return &operate.Identity{Name: "anna", Rights: operate.Rights{Role: operate.Admin}, Via: via, Expires: At}
}

func (s *Service) SendSignal(ctx context.Context, in operate.Signal) (*operate.SignalResult, error) {
	return s.OnSendSignal(ctx, in)
}

func (s *Service) HoldRole(ctx context.Context, r operate.RoleRequest) (*operate.RoleHold, error) {
	return s.OnHoldRole(ctx, r)
}

func (s *Service) ReleaseRole(ctx context.Context, name, holder string) (*operate.RoleHold, error) {
	return s.OnReleaseRole(ctx, name, holder)
}

func (s *Service) ListRoles(ctx context.Context) ([]operate.RoleState, error) {
	return s.OnListRoles(ctx)
}

func (s *Service) ListWebhooks(ctx context.Context) ([]operate.WebhookView, error) {
	return s.OnListWebhooks(ctx)
}

func (s *Service) GetWebhook(ctx context.Context, name string) (*operate.WebhookView, error) {
	return s.OnGetWebhook(ctx, name)
}

func (s *Service) CreateWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, error) {
	return s.OnCreateWebhook(ctx, r)
}

func (s *Service) SetWebhook(ctx context.Context, r operate.WebhookRequest) (*operate.WebhookView, bool, error) {
	return s.OnSetWebhook(ctx, r)
}

func (s *Service) DeleteWebhook(ctx context.Context, name, author string) error {
	return s.OnDeleteWebhook(ctx, name, author)
}

func (s *Service) PauseWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return s.OnPauseWebhook(ctx, name, author)
}

func (s *Service) ResumeWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return s.OnResumeWebhook(ctx, name, author)
}

func (s *Service) RotateWebhook(ctx context.Context, name, author string) (*operate.WebhookView, error) {
	return s.OnRotateWebhook(ctx, name, author)
}

func (s *Service) TestWebhook(ctx context.Context, name, author string) (string, error) {
	return s.OnTestWebhook(ctx, name, author)
}

func (s *Service) ResendWebhook(ctx context.Context, r operate.WebhookResend) (int, error) {
	return s.OnResendWebhook(ctx, r)
}

func (s *Service) ListDeliveries(ctx context.Context, q operate.DeliveryQuery) (*perdure.Page[operate.Delivery], error) {
	return s.OnListDeliveries(ctx, q)
}

func (s *Service) FollowEvents(ctx context.Context, receiver string, after int64, see func(*operate.EventPage) error) error {
	return s.OnFollowEvents(ctx, receiver, after, see)
}

func (s *Service) RegisterHost(ctx context.Context, r operate.HostRequest) (*operate.HostRegistered, error) {
	return s.OnRegisterHost(ctx, r)
}

func (s *Service) ListHosts(ctx context.Context, q operate.HostQuery) (*perdure.Page[operate.HostView], error) {
	return s.OnListHosts(ctx, q)
}

func (s *Service) GetHost(ctx context.Context, name string) (*operate.HostView, error) {
	return s.OnGetHost(ctx, name)
}

func (s *Service) DrainHost(ctx context.Context, d operate.HostDrain) (*operate.HostView, error) {
	return s.OnDrainHost(ctx, d)
}

func (s *Service) ReadyHost(ctx context.Context, name, author string) (*operate.HostView, error) {
	return s.OnReadyHost(ctx, name, author)
}

func (s *Service) DeleteHost(ctx context.Context, name, author string) error {
	return s.OnDeleteHost(ctx, name, author)
}

func (s *Service) PutDefinition(ctx context.Context, name string, body []byte, mediaType, author string) (*operate.DefinitionView, bool, error) {
	return s.OnPutDefinition(ctx, name, body, mediaType, author)
}

func (s *Service) GetDefinition(ctx context.Context, ref string) (*operate.DefinitionView, error) {
	return s.OnGetDefinition(ctx, ref)
}

func (s *Service) ListDefinitions(ctx context.Context, limit int, cursor string) (*perdure.Page[operate.DefinitionView], error) {
	return s.OnListDefinitions(ctx, limit, cursor)
}

func (s *Service) PromoteDefinition(ctx context.Context, name string, version int, author string) (*operate.DefinitionView, error) {
	return s.OnPromoteDefinition(ctx, name, version, author)
}

func (s *Service) DeleteDefinition(ctx context.Context, ref, author string) error {
	return s.OnDeleteDefinition(ctx, ref, author)
}

func (s *Service) HeartbeatAll(ctx context.Context, c protocol.CompleteHeartbeat) ([]protocol.HeartbeatResult, time.Time, error) {
	return s.OnHeartbeatAll(ctx, c)
}

func (s *Service) PutSchedule(ctx context.Context, r operate.ScheduleRequest) (*operate.ScheduleView, bool, error) {
	return s.OnPutSchedule(ctx, r)
}

func (s *Service) GetSchedule(ctx context.Context, name string) (*operate.ScheduleView, error) {
	return s.OnGetSchedule(ctx, name)
}

func (s *Service) ListSchedules(ctx context.Context, q operate.ScheduleQuery) (*perdure.Page[operate.ScheduleView], error) {
	return s.OnListSchedules(ctx, q)
}

func (s *Service) DeleteSchedule(ctx context.Context, name, author string) error {
	return s.OnDeleteSchedule(ctx, name, author)
}

func (s *Service) PauseSchedule(ctx context.Context, p operate.SchedulePause) (*operate.ScheduleView, error) {
	return s.OnPauseSchedule(ctx, p)
}

func (s *Service) ResumeSchedule(ctx context.Context, r operate.ScheduleResume) (*operate.ScheduleView, error) {
	return s.OnResumeSchedule(ctx, r)
}

func (s *Service) TriggerSchedule(ctx context.Context, r operate.ScheduleTrigger) (*operate.ScheduleFired, error) {
	return s.OnTriggerSchedule(ctx, r)
}

func (s *Service) BackfillSchedule(ctx context.Context, r operate.ScheduleBackfill) (*operate.BackfillView, error) {
	return s.OnBackfillSchedule(ctx, r)
}

func (s *Service) NextTimes(ctx context.Context, name string, n int) ([]time.Time, error) {
	return s.OnNextTimes(ctx, name, n)
}

func (s *Service) ListFirings(ctx context.Context, q operate.FiringQuery) (*perdure.Page[operate.Firing], error) {
	return s.OnListFirings(ctx, q)
}
