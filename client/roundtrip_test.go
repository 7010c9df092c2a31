package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/protocol"
)

// Every method of protocol.Server is the same far as near: what goes in, and what comes out.
func TestRoundTrip(t *testing.T) {
	phase, unsure, done := perdure.Parked, perdure.Unsure, perdure.Done
	const ref = "a?b#c %&é"
	query := perdure.JobQuery{Phases: []perdure.Phase{phase, perdure.Running}, Since: resttest.At, Until: resttest.At.Add(time.Hour), Agent: "payments", Step: "charge", Reason: perdure.WhyLimit, Error: "card&declined", Alert: perdure.AlertParked,
		Search: "order-", OldestFirst: true, WithCount: true, WithSummary: true, Type: "order", Current: &unsure, Desired: &done, Key: "k",
		Labels: map[string]string{"a": "b=&c", "d": ""}, Limit: 7, Cursor: "c/+="}
	live := query
	live.Cursor = ""
	history := perdure.HistoryQuery{Job: ref, Limit: 7, Cursor: "y"}
	alerts := perdure.AlertQuery{Job: "@latest", Closed: true, Kind: perdure.AlertClock, Type: "ord&er", Step: "charge", Code: "card=declined", Limit: 3, Cursor: "x"}
	act := perdure.Act{Verb: perdure.VerbSettle, Step: "charge", Author: "Zoë", Reason: "seen <it>", As: &done, Output: json.RawMessage(`{"s":"<&>","n":1.50}`)}
	bulk := operate.BulkRequest{Act: perdure.VerbSettle, Step: "charge", As: &done, Output: act.Output, Filter: resttest.Bulk().Filter, Reason: "seen <it>", Key: "<k>", Author: "Zoë"}
	bulkIDs := operate.BulkRequest{Act: perdure.VerbEdit, Step: "charge", Input: json.RawMessage(`{"n":12345678901234567890.10}`), NewKey: true, PerSecond: 10_000, IDs: []string{ref, "k-1"}, Reason: "r", Key: "k", Author: "anna"}
	token := operate.TokenRequest{Name: "ci <ü>", Rights: operate.Rights{Role: operate.Submitter, Types: []string{"order"}, Groups: []string{"b c"}}, ExpiresIn: perdure.Duration(90 * 24 * time.Hour), Author: "anna"}
	audit := operate.AuditQuery{Author: "Zoë", Act: "undo", Job: ref, Since: resttest.At, Limit: 7, Cursor: "x"}
	approval := perdure.Act{Verb: perdure.VerbApprove, Step: "charge", Author: "Zoë", Reason: "seen <it>", Data: json.RawMessage(`{"s":"<&>","n":1.50}`)}
	signal := operate.Signal{Name: "paid", Key: "p <1>", ID: "evt_<9>", Data: json.RawMessage(`{"s":"<&>","n":1.50}`), Keep: perdure.Duration(time.Hour), To: operate.ToAll, Author: "Zoë"}
	jobSignal := operate.Signal{Name: "paid", Key: "p1", ID: "evt", Job: ref, Author: "Zoë"}
	flip := perdure.Act{Verb: perdure.VerbUndo, Author: "anna"}
	claim := protocol.Claim{Agent: "pay ments", Holder: "h", Max: 3, Wait: time.Second, Heartbeat: 15 * time.Second, RequestID: "r", Secrets: true}
	next := protocol.Claim{Agent: "payments", Holder: "h", Max: 3, Heartbeat: 15 * time.Second, RequestID: "r", Secrets: true}
	reports := []protocol.Report{
		{Job: resttest.ID, Step: "s", Run: 3, Outcome: perdure.OutcomeDone, Output: json.RawMessage(`{"s":"<&>","n":12345678901234567890.10}`)},
		{Job: resttest.ID, Step: "s", Run: 4, Outcome: perdure.OutcomeFailed, Effect: "none", Error: &perdure.RunError{Code: "c", Message: "m<", RetryAfter: perdure.Duration(90 * time.Second)}},
	}
	beats := []protocol.Heartbeat{{Job: resttest.ID, Step: "s", Run: 3, Progress: json.RawMessage(`{"done":1}`)}, {Job: resttest.ID, Step: "t", Run: 4}}
	complete := protocol.CompleteHeartbeat{Holder: "h", Runs: beats, OpenClaims: []string{"r/7", "r/8"}, AsOf: resttest.At}
	logs := operate.LogQuery{Job: ref, Step: "charge", Run: 3, Stream: operate.Stderr, Offset: 7, Tail: 64 << 10, Follow: true}
	chunks := []protocol.LogChunk{{Job: resttest.ID, Step: "s", Run: 3, Stream: operate.Stdout, Offset: 7, Data: []byte("\x00\xff<"), Skips: true, Last: true},
		{Job: resttest.ID, Step: "t", Run: 4, Stream: operate.Stderr, Data: []byte("x")}}
	definitions := []json.RawMessage{json.RawMessage(`{"s":"<&>","n":12345678901234567890.10}`), json.RawMessage("[ 1,\n2 ]"), json.RawMessage(`{"a":1,"a":2}`)}
	submitted := []perdure.Submitted{resttest.Submitted(0), resttest.Submitted(1), resttest.Submitted(2)}
	aged := resttest.Agent("http")
	agent := &aged
	bounds := perdure.LimitSettings{Max: new(50), PerKey: &perdure.KeyLimit{Max: new(2), Rate: "5/s", Burst: 1}, Keys: map[string]perdure.KeyLimit{"a": {Max: new(3)}}}
	keys := []operate.LimitKeyView{{Key: "a&b", KeyLimit: perdure.KeyLimit{Max: new(7), Rate: "5/s", Burst: 2}, Used: 3, Ready: 1000, ReadyCapped: true, NeverFit: 4, RoomAt: resttest.At,
		Holders: []perdure.HolderView{{Job: resttest.ID, Step: "charge", Run: 3, Key: "a&b", Amount: 2}}}}
	limit := &perdure.LimitView{Name: "agent:http", LimitSettings: perdure.LimitSettings{Max: new(3)}, Used: 1, Holders: []perdure.HolderView{{Job: resttest.ID, Step: "charge", Run: 3}}}
	alert := resttest.Alert()
	job, last := resttest.Job(), resttest.Job()
	last.Phase, last.Steps = perdure.Settled, last.Steps[1:]
	webhook := operate.WebhookRequest{Name: "shop", WebhookSettings: operate.WebhookSettings{URL: "https://x.example/a?b=<c>&d", On: []operate.EventKind{operate.EventParked, operate.EventAlertRaised}, Types: []string{"order", "a.b"}, Format: operate.FormatSlack}, Author: "Zoë"}
	schedule := operate.ScheduleRequest{Name: "nightly", Author: "Zoë", ScheduleSettings: resttest.ScheduleSettings()}
	once := operate.ScheduleRequest{Name: "once", Author: "anna", ScheduleSettings: operate.ScheduleSettings{At: []time.Time{resttest.At}, Job: operate.ScheduleJob{Definition: json.RawMessage(`"type: t\nsteps: {s: {agent: a}}\n"`)}}}
	backfill := operate.ScheduleBackfill{Name: "nightly", Author: "anna", From: resttest.At, To: resttest.At.Add(time.Hour), Parallel: 7, DryRun: true, Again: true}
	type all = []any

	for _, test := range []struct {
		name string
		call func(context.Context, protocol.Server) (all, error)
		in   all
		out  all
	}{
		{"Submit", func(ctx context.Context, s protocol.Server) (all, error) {
			job, created, err := s.Submit(ctx, []byte(" a: <b>\r\n"), "application/yaml")
			return all{job, created}, err
		}, all{" a: <b>\r\n", "application/yaml", ""}, all{job, true}},
		{"SubmitWithKey", func(ctx context.Context, s protocol.Server) (all, error) {
			job, created, err := s.SubmitWithKey(ctx, []byte("{}"), "application/json", "order-ä 7")
			return all{job, created}, err
		}, all{"{}", "application/json", "order-ä 7"}, all{job, true}},
		{"SubmitAll", func(ctx context.Context, s protocol.Server) (all, error) {
			did, err := s.SubmitAll(ctx, nil, definitions)
			return all{did}, err
		}, all{json.RawMessage(nil), definitions}, all{submitted}},
		{"SubmitAll of one definition", func(ctx context.Context, s protocol.Server) (all, error) {
			did, err := s.SubmitAll(ctx, definitions[0], definitions)
			return all{did}, err
		}, all{definitions[0], definitions}, all{submitted}},
		{"Definition", func(ctx context.Context, s protocol.Server) (all, error) {
			text, err := s.Definition(ctx, ref)
			return all{text}, err
		}, all{ref}, all{resttest.Definition()}},
		{"Graph", func(ctx context.Context, s protocol.Server) (all, error) {
			g, err := s.Graph(ctx, ref) // the server leads to the drawing of the definition
			return all{g}, err
		}, all{ref, resttest.Graph().Hash}, all{resttest.Graph()}},
		{"ShapeGraph", func(ctx context.Context, s protocol.Server) (all, error) {
			g, err := s.ShapeGraph(ctx, resttest.Graph().Hash)
			return all{g}, err
		}, all{resttest.Graph().Hash}, all{resttest.Graph()}},
		{"Step", func(ctx context.Context, s protocol.Server) (all, error) {
			step, err := s.Step(ctx, ref, "charge")
			return all{step}, err
		}, all{ref, "charge"}, all{resttest.Step()}},
		{"Job", func(ctx context.Context, s protocol.Server) (all, error) {
			job, err := s.Job(ctx, ref, 0)
			return all{job}, err
		}, all{ref, time.Duration(0)}, all{job}},
		{"Job of two dots", func(ctx context.Context, s protocol.Server) (all, error) {
			job, err := s.Job(ctx, "..", 0)
			return all{job}, err
		}, all{"..", time.Duration(0)}, all{job}},
		{"ListJobs", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListJobs(ctx, query)
			return all{page}, err
		}, all{query}, all{&perdure.Page[perdure.JobView]{Items: []perdure.JobView{*job}, NextCursor: "next"}}},
		{"Follow", func(ctx context.Context, s protocol.Server) (out all, err error) {
			err = s.Follow(ctx, ref, func(j *perdure.JobView) error { out = append(out, j); return nil })
			return out, err
		}, all{ref}, all{job, last}},
		{"History", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.History(ctx, history)
			return all{page}, err
		}, all{history}, all{&perdure.Page[perdure.EntryView]{Items: []perdure.EntryView{{Step: "charge", Run: 1, At: resttest.At, Event: "failed", Author: "h", Detail: "503"}}, NextCursor: "next"}}},
		{"Runs", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.Runs(ctx, operate.RunsQuery{Job: ref, Limit: 7, Cursor: "c/ d"})
			return all{page}, err
		}, all{operate.RunsQuery{Job: ref, Limit: 7, Cursor: "c/ d"}}, all{&perdure.Page[operate.RunRecord]{Items: resttest.Runs(), NextCursor: "next"}}},
		{"Act on a step", func(ctx context.Context, s protocol.Server) (all, error) {
			job, err := s.Act(ctx, ref, act)
			return all{job}, err
		}, all{ref, act}, all{job}},
		{"Act on a job", func(ctx context.Context, s protocol.Server) (all, error) {
			job, err := s.Act(ctx, ref, flip)
			return all{job}, err
		}, all{ref, flip}, all{job}},
		{"JobPart", func(ctx context.Context, s protocol.Server) (all, error) {
			j, err := s.JobPart(ctx, ref, 0, operate.OpenSteps)
			return all{j}, err
		}, all{ref, time.Duration(0), operate.OpenSteps}, all{job}},
		{"FollowJobs", func(ctx context.Context, s protocol.Server) (out all, _ error) {
			changes := resttest.JobsChanges()
			err := s.FollowJobs(ctx, live, func(c *operate.JobsChange) error {
				if out = append(out, c); len(out) == len(changes) {
					return errEnough
				}
				return nil
			})
			return out, unless(err)
		}, all{live}, anyOf(resttest.JobsChanges())},
		{"FollowAlerts", func(ctx context.Context, s protocol.Server) (out all, _ error) {
			changes := resttest.AlertsChanges()
			err := s.FollowAlerts(ctx, alerts, func(c *operate.AlertsChange) error {
				if out = append(out, c); len(out) == len(changes) {
					return errEnough
				}
				return nil
			})
			return out, unless(err)
		}, all{alerts}, anyOf(resttest.AlertsChanges())},
		{"Preview of an act on a step", func(ctx context.Context, s protocol.Server) (all, error) {
			p, err := s.Preview(ctx, ref, act)
			return all{p}, err
		}, all{ref, act}, all{resttest.Preview()}},
		{"Preview of an act on a job", func(ctx context.Context, s protocol.Server) (all, error) {
			p, err := s.Preview(ctx, ref, flip)
			return all{p}, err
		}, all{ref, flip}, all{resttest.Preview()}},
		{"PreviewBulk", func(ctx context.Context, s protocol.Server) (all, error) {
			p, err := s.PreviewBulk(ctx, bulk)
			return all{p}, err
		}, all{bulk}, all{resttest.BulkPreview()}},
		{"StartBulk with a filter", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.StartBulk(ctx, bulk)
			return all{v}, err
		}, all{bulk}, all{resttest.Bulk()}},
		{"StartBulk with ids", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.StartBulk(ctx, bulkIDs)
			return all{v}, err
		}, all{bulkIDs}, all{resttest.Bulk()}},
		{"ListBulks", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListBulks(ctx, operate.BulkQuery{State: operate.BulkRunning, Limit: 7, Cursor: "c/+="})
			return all{page}, err
		}, all{operate.BulkQuery{State: operate.BulkRunning, Limit: 7, Cursor: "c/+="}}, all{&perdure.Page[operate.BulkView]{Items: []operate.BulkView{*resttest.Bulk()}, NextCursor: "next"}}},
		{"GetBulk", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.GetBulk(ctx, ref)
			return all{v}, err
		}, all{ref}, all{resttest.Bulk()}},
		{"BulkRefusals", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.BulkRefusals(ctx, operate.BulkRefusalQuery{ID: ref, Limit: 7, Cursor: "y"})
			return all{page}, err
		}, all{operate.BulkRefusalQuery{ID: ref, Limit: 7, Cursor: "y"}}, all{resttest.BulkRefusals()}},
		{"StopBulk", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.StopBulk(ctx, ref, "Zoë")
			return all{v}, err
		}, all{ref, "Zoë"}, all{resttest.Bulk()}},
		{"ResumeBulk", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ResumeBulk(ctx, ref, "anna")
			return all{v}, err
		}, all{ref, "anna"}, all{resttest.Bulk()}},
		{"Validate", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.Validate(ctx, []byte(" a: <b>\r\n"), "application/yaml")
			return all{v}, err
		}, all{" a: <b>\r\n", "application/yaml"}, all{resttest.Validation()}},
		{"ListAlerts", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListAlerts(ctx, alerts)
			return all{page}, err
		}, all{alerts}, all{&perdure.Page[perdure.AlertView]{Items: []perdure.AlertView{alert}, NextCursor: "next"}}},
		{"CloseAlert", func(ctx context.Context, s protocol.Server) (all, error) {
			a, err := s.CloseAlert(ctx, 12, "anna")
			return all{a}, err
		}, all{int64(12), "anna"}, all{&alert}},
		{"ListLimits", func(ctx context.Context, s protocol.Server) (all, error) {
			limits, err := s.ListLimits(ctx)
			return all{limits}, err
		}, nil, all{[]perdure.LimitView{*limit}}},
		{"LimitKeys", func(ctx context.Context, s protocol.Server) (all, error) {
			keys, err := s.LimitKeys(ctx, operate.LimitKeyQuery{Name: "ads-api", Key: "a&b", Limit: 7})
			return all{keys}, err
		}, all{operate.LimitKeyQuery{Name: "ads-api", Key: "a&b", Limit: 7}}, all{keys}},
		{"GetLimit", func(ctx context.Context, s protocol.Server) (all, error) {
			l, err := s.GetLimit(ctx, "agent:http")
			return all{l}, err
		}, all{"agent:http"}, all{limit}},
		{"PutLimit", func(ctx context.Context, s protocol.Server) (all, error) {
			l, err := s.PutLimit(ctx, "ads-api", bounds)
			return all{l}, err
		}, all{"ads-api", bounds}, all{&perdure.LimitView{Name: "ads-api", LimitSettings: bounds, Used: 1, Holders: limit.Holders}}},
		{"DeleteLimit", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteLimit(ctx, "agent:http")
		}, all{"agent:http"}, nil},
		{"SendSignal", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.SendSignal(ctx, signal)
			return all{v}, err
		}, all{signal}, all{resttest.SignalResult()}},
		{"SendSignal to a job", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.SendSignal(ctx, jobSignal)
			return all{v}, err
		}, all{jobSignal}, all{resttest.SignalResult()}},
		{"Approve", func(ctx context.Context, s protocol.Server) (all, error) {
			job, err := s.Act(ctx, ref, approval)
			return all{job}, err
		}, all{ref, approval}, all{job}},
		{"HoldRole", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.HoldRole(ctx, operate.RoleRequest{Name: "nightly", Holder: "web1/<4711>", TTL: perdure.Duration(10 * time.Second)})
			return all{v}, err
		}, all{operate.RoleRequest{Name: "nightly", Holder: "web1/<4711>", TTL: perdure.Duration(10 * time.Second)}}, all{resttest.RoleHold()}},
		{"ReleaseRole", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ReleaseRole(ctx, "nightly", "web1/<4711>")
			return all{v}, err
		}, all{"nightly", "web1/<4711>"}, all{resttest.RoleHold()}},
		{"ListRoles", func(ctx context.Context, s protocol.Server) (all, error) {
			list, err := s.ListRoles(ctx)
			return all{list}, err
		}, nil, all{[]operate.RoleState{resttest.RoleState()}}},
		{"ListWebhooks", func(ctx context.Context, s protocol.Server) (all, error) {
			list, err := s.ListWebhooks(ctx)
			return all{list}, err
		}, nil, all{[]operate.WebhookView{*resttest.Webhook()}}},
		{"GetWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.GetWebhook(ctx, "shop")
			return all{v}, err
		}, all{"shop"}, all{resttest.Webhook()}},
		{"CreateWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.CreateWebhook(ctx, webhook)
			return all{v}, err
		}, all{webhook}, all{resttest.Webhook()}},
		{"SetWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, created, err := s.SetWebhook(ctx, webhook)
			return all{v, created}, err
		}, all{webhook}, all{resttest.Webhook(), true}},
		{"DeleteWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteWebhook(ctx, "shop", "Zoë")
		}, all{"shop", "Zoë"}, nil},
		{"PauseWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.PauseWebhook(ctx, "shop", "anna")
			return all{v}, err
		}, all{"shop", "anna"}, all{resttest.Webhook()}},
		{"ResumeWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ResumeWebhook(ctx, "shop", "anna")
			return all{v}, err
		}, all{"shop", "anna"}, all{resttest.Webhook()}},
		{"RotateWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.RotateWebhook(ctx, "shop", "anna")
			return all{v}, err
		}, all{"shop", "anna"}, all{resttest.Webhook()}},
		{"TestWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			id, err := s.TestWebhook(ctx, "shop", "anna")
			return all{id}, err
		}, all{"shop", "anna"}, all{"ntc_1"}},
		{"ResendWebhook", func(ctx context.Context, s protocol.Server) (all, error) {
			n, err := s.ResendWebhook(ctx, operate.WebhookResend{Name: "shop", Since: resttest.At, Author: "anna"})
			return all{n}, err
		}, all{operate.WebhookResend{Name: "shop", Since: resttest.At, Author: "anna"}}, all{12}},
		{"ListDeliveries", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListDeliveries(ctx, operate.DeliveryQuery{Name: "shop", State: operate.DeliveryDead, Limit: 7, Cursor: "y"})
			return all{page}, err
		}, all{operate.DeliveryQuery{Name: "shop", State: operate.DeliveryDead, Limit: 7, Cursor: "y"}}, all{resttest.Deliveries()}},
		{"RegisterHost", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.RegisterHost(ctx, operate.HostRequest{Name: "h1", HostSettings: resttest.HostSettings(), Renews: true})
			return all{v}, err
		}, all{operate.HostRequest{Name: "h1", HostSettings: resttest.HostSettings(), Renews: true}}, all{resttest.Registered()}},
		{"ListHosts", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListHosts(ctx, operate.HostQuery{Grid: "local", State: operate.HostReady, Label: "zone=a", Limit: 7, Cursor: "y"})
			return all{page}, err
		}, all{operate.HostQuery{Grid: "local", State: operate.HostReady, Label: "zone=a", Limit: 7, Cursor: "y"}}, all{&perdure.Page[operate.HostView]{Items: []operate.HostView{*resttest.Host()}, NextCursor: "z"}}},
		{"GetHost", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.GetHost(ctx, "h1")
			return all{v}, err
		}, all{"h1"}, all{resttest.Host()}},
		{"DrainHost", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.DrainHost(ctx, operate.HostDrain{Name: "h1", Deadline: time.Minute, Author: "anna", Reason: "update"})
			return all{v}, err
		}, all{operate.HostDrain{Name: "h1", Deadline: time.Minute, Author: "anna", Reason: "update"}}, all{resttest.Host()}},
		{"ReadyHost", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ReadyHost(ctx, "h1", "anna")
			return all{v}, err
		}, all{"h1", "anna"}, all{resttest.Host()}},
		{"DeleteHost", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteHost(ctx, "h1", "anna")
		}, all{"h1", "anna"}, nil},
		{"PutSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, created, err := s.PutSchedule(ctx, schedule)
			return all{v, created}, err
		}, all{schedule}, all{resttest.Schedule(), true}},
		{"PutSchedule, to see what it would be", func(ctx context.Context, s protocol.Server) (all, error) {
			dry := schedule
			dry.DryRun = true
			v, _, err := s.PutSchedule(ctx, dry)
			return all{v}, err
		}, all{operate.ScheduleRequest{Name: schedule.Name, Author: schedule.Author, DryRun: true, ScheduleSettings: schedule.ScheduleSettings}}, all{resttest.Schedule()}},
		{"PutSchedule of times", func(ctx context.Context, s protocol.Server) (all, error) {
			v, _, err := s.PutSchedule(ctx, once)
			return all{v}, err
		}, all{once}, all{resttest.Schedule()}},
		{"GetSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.GetSchedule(ctx, "nightly")
			return all{v}, err
		}, all{"nightly"}, all{resttest.Schedule()}},
		{"ListSchedules", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ListSchedules(ctx, operate.ScheduleQuery{State: operate.ScheduleEnded, Limit: 7, Cursor: "c/+="})
			return all{v}, err
		}, all{operate.ScheduleQuery{State: operate.ScheduleEnded, Limit: 7, Cursor: "c/+="}}, all{&perdure.Page[operate.ScheduleView]{Items: []operate.ScheduleView{*resttest.Schedule()}, NextCursor: "z"}}},
		{"DeleteSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteSchedule(ctx, "nightly", "anna")
		}, all{"nightly", "anna"}, nil},
		{"PauseSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.PauseSchedule(ctx, operate.SchedulePause{Name: "nightly", Author: "Zoë", Reason: "<r>"})
			return all{v}, err
		}, all{operate.SchedulePause{Name: "nightly", Author: "Zoë", Reason: "<r>"}}, all{resttest.Schedule()}},
		{"ResumeSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ResumeSchedule(ctx, operate.ScheduleResume{Name: "nightly", Author: "anna", CatchUp: true})
			return all{v}, err
		}, all{operate.ScheduleResume{Name: "nightly", Author: "anna", CatchUp: true}}, all{resttest.Schedule()}},
		{"TriggerSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.TriggerSchedule(ctx, operate.ScheduleTrigger{Name: "nightly", Author: "anna", At: resttest.At})
			return all{v}, err
		}, all{operate.ScheduleTrigger{Name: "nightly", Author: "anna", At: resttest.At}}, all{&operate.ScheduleFired{Time: resttest.At, Job: resttest.ID, Created: true, Unscheduled: true}}},
		{"TriggerSchedule now", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.TriggerSchedule(ctx, operate.ScheduleTrigger{Name: "nightly", Author: "anna"})
			return all{v}, err
		}, all{operate.ScheduleTrigger{Name: "nightly", Author: "anna"}}, all{&operate.ScheduleFired{Time: resttest.At, Job: resttest.ID, Created: true, Unscheduled: true}}},
		{"BackfillSchedule", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.BackfillSchedule(ctx, backfill)
			return all{v}, err
		}, all{backfill}, all{resttest.Backfill()}},
		{"NextTimes", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.NextTimes(ctx, "nightly", 7)
			return all{v}, err
		}, all{"nightly", 7}, all{[]time.Time{resttest.At, resttest.At.Add(time.Hour)}}},
		{"ListFirings", func(ctx context.Context, s protocol.Server) (all, error) {
			v, err := s.ListFirings(ctx, operate.FiringQuery{Name: "nightly", Limit: 7, Cursor: "c/+="})
			return all{v}, err
		}, all{operate.FiringQuery{Name: "nightly", Limit: 7, Cursor: "c/+="}}, all{&perdure.Page[operate.Firing]{Items: resttest.Firings(), NextCursor: "next"}}},
		{"ListAgents", func(ctx context.Context, s protocol.Server) (all, error) {
			agents, err := s.ListAgents(ctx)
			return all{agents}, err
		}, nil, all{[]perdure.AgentView{resttest.Agent("http")}}},
		{"GetAgent", func(ctx context.Context, s protocol.Server) (all, error) {
			agent, err := s.GetAgent(ctx, "http")
			return all{agent}, err
		}, all{"http"}, all{agent}},
		{"PutAgent", func(ctx context.Context, s protocol.Server) (all, error) {
			agent, err := s.PutAgent(ctx, "http", resttest.AgentSettings())
			return all{agent}, err
		}, all{"http", resttest.AgentSettings()}, all{agent}},
		{"DeleteAgent", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteAgent(ctx, "http")
		}, all{"http"}, nil},
		{"Stats", func(ctx context.Context, s protocol.Server) (all, error) {
			stats, err := s.Stats(ctx)
			return all{stats}, err
		}, nil, all{resttest.Stats()}},
		{"ListNodes", func(ctx context.Context, s protocol.Server) (all, error) {
			nodes, err := s.ListNodes(ctx)
			return all{nodes}, err
		}, nil, all{resttest.Nodes()}},
		{"CreateToken", func(ctx context.Context, s protocol.Server) (all, error) {
			t, err := s.CreateToken(ctx, token)
			return all{t}, err
		}, all{token}, all{resttest.NewToken()}},
		{"RotateToken", func(ctx context.Context, s protocol.Server) (all, error) {
			t, err := s.RotateToken(ctx, "8XkqT2mWc0Za", 24*time.Hour, "anna")
			return all{t}, err
		}, all{"8XkqT2mWc0Za", 24 * time.Hour, "anna"}, all{resttest.NewToken()}},
		{"DeleteToken", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteToken(ctx, ref, "anna")
		}, all{ref, "anna"}, nil},
		{"ListTokens", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListTokens(ctx, operate.PageQuery{Limit: 7, Cursor: "c/+="})
			return all{page}, err
		}, all{operate.PageQuery{Limit: 7, Cursor: "c/+="}}, all{&perdure.Page[operate.TokenView]{Items: []operate.TokenView{resttest.Token()}, NextCursor: "next"}}},
		{"ListSessions", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.ListSessions(ctx, operate.PageQuery{Limit: 7})
			return all{page}, err
		}, all{operate.PageQuery{Limit: 7}}, all{&perdure.Page[operate.SessionView]{Items: []operate.SessionView{resttest.Session()}, NextCursor: "next"}}},
		{"DeleteSession", func(ctx context.Context, s protocol.Server) (all, error) {
			return nil, s.DeleteSession(ctx, "b9RtUw27LxQe", "anna")
		}, all{"b9RtUw27LxQe", "anna"}, nil},
		{"Audit", func(ctx context.Context, s protocol.Server) (all, error) {
			page, err := s.Audit(ctx, audit)
			return all{page}, err
		}, all{audit}, all{&perdure.Page[operate.AuditEntry]{Items: []operate.AuditEntry{resttest.AuditEntry()}, NextCursor: "next"}}},
		{"Claim", func(ctx context.Context, s protocol.Server) (all, error) {
			runs, err := s.Claim(ctx, claim)
			return all{runs}, err
		}, all{claim}, all{[]perdure.Run{resttest.Run()}}},
		{"Report", func(ctx context.Context, s protocol.Server) (all, error) {
			results, runs, err := s.Report(ctx, "h", reports, nil)
			return all{results, runs}, err
		}, all{"h", reports, (*protocol.Claim)(nil)}, all{make([]protocol.ReportResult, 2), []perdure.Run(nil)}},
		{"Report and claim", func(ctx context.Context, s protocol.Server) (all, error) {
			results, runs, err := s.Report(ctx, "h", reports, &next)
			return all{results, runs}, err
		}, all{"h", reports, &next}, all{make([]protocol.ReportResult, 2), []perdure.Run{resttest.Run()}}},
		{"HeartbeatAll", func(ctx context.Context, s protocol.Server) (all, error) {
			results, asOf, err := s.HeartbeatAll(ctx, complete)
			return all{results, asOf}, err
		}, all{complete}, all{[]protocol.HeartbeatResult{
			{Job: resttest.ID, Step: "s", Run: 3, LockedUntil: resttest.At, RemainingMs: 1, Stop: true, Reason: "undo"},
			{Job: resttest.ID, Step: "t", Run: 4, LockedUntil: resttest.At, RemainingMs: 1, Stop: true, Reason: "undo"},
		}, resttest.At}},
		{"HeartbeatAll of an idle holder", func(ctx context.Context, s protocol.Server) (all, error) {
			results, asOf, err := s.HeartbeatAll(ctx, protocol.CompleteHeartbeat{Holder: "h"})
			return all{len(results), asOf}, err
		}, all{protocol.CompleteHeartbeat{Holder: "h"}}, all{0, resttest.At}},
		{"ReadLog", func(ctx context.Context, s protocol.Server) (out all, err error) {
			err = s.ReadLog(ctx, logs, func(p *operate.LogPart) error { out = append(out, p); return nil })
			return out, err
		}, all{logs}, anyOf(resttest.LogParts())},
		{"UploadArtifact", func(ctx context.Context, s protocol.Server) (all, error) {
			state, err := s.UploadArtifact(ctx, operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 3, Length: 3, Body: strings.NewReader(resttest.Artifact)})
			return all{state}, err
		}, all{operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 3, Length: 3}}, all{&operate.ArtifactState{Artifact: resttest.ArtifactHash, Size: 3, Next: 3, Created: true}}},
		{"UploadArtifact, the rest", func(ctx context.Context, s protocol.Server) (all, error) {
			state, err := s.UploadArtifact(ctx, operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 9, Offset: 4, Length: 3, Body: strings.NewReader(resttest.Artifact)})
			return all{state}, err
		}, all{operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 9, Offset: 4, Length: 3}}, all{&operate.ArtifactState{Artifact: resttest.ArtifactHash, Size: 9, Next: 7}}},
		{"UploadArtifact, the state", func(ctx context.Context, s protocol.Server) (all, error) {
			state, err := s.UploadArtifact(ctx, operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 9})
			return all{state}, err
		}, all{operate.ArtifactUpload{Hash: resttest.ArtifactHash, Size: 9}}, all{&operate.ArtifactState{Artifact: resttest.ArtifactHash, Size: 9}}},
		{"OpenArtifact", func(ctx context.Context, s protocol.Server) (all, error) {
			r, err := s.OpenArtifact(ctx, resttest.ArtifactHash)
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(r)
			return all{string(text), r.Size()}, errors.Join(err, r.Close())
		}, all{resttest.ArtifactHash}, all{resttest.Artifact, int64(3)}},
		{"AppendLogs", func(ctx context.Context, s protocol.Server) (all, error) {
			results, err := s.AppendLogs(ctx, "h", chunks)
			return all{results}, err
		}, all{"h", chunks}, all{resttest.LogResults()}},
		{"Heartbeat", func(ctx context.Context, s protocol.Server) (all, error) {
			results, err := s.Heartbeat(ctx, "h", beats)
			return all{results}, err
		}, all{"h", beats}, all{[]protocol.HeartbeatResult{
			{Job: resttest.ID, Step: "s", Run: 3, LockedUntil: resttest.At, RemainingMs: 1, Stop: true, Reason: "undo"},
			{Job: resttest.ID, Step: "t", Run: 4, LockedUntil: resttest.At, RemainingMs: 1, Stop: true, Reason: "undo"},
		}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var seen all
			out, err := test.call(t.Context(), far(t, noting(&seen)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.in, seen); diff != "" {
				t.Errorf("what arrived: %s", diff)
			}
			if diff := cmp.Diff(test.out, out); diff != "" {
				t.Errorf("what came back: %s", diff)
			}
		})
	}
}

// noting is resttest.Full, noting the arguments of the call. It wraps each method by reflection, so that
// one which is added to protocol.Server is not forgotten.
func noting(seen *[]any) *resttest.Service {
	svc := resttest.Full()
	v := reflect.ValueOf(svc).Elem()
	for i := range v.NumField() {
		inner := reflect.ValueOf(v.Field(i).Interface())
		v.Field(i).Set(reflect.MakeFunc(inner.Type(), func(args []reflect.Value) []reflect.Value {
			for _, a := range args[1:] {
				switch arg := a.Interface().(type) {
				case []byte:
					*seen = append(*seen, string(arg))
				case operate.ArtifactUpload:
					arg.Body = nil
					*seen = append(*seen, arg)
				case func(*perdure.JobView) error, func(*operate.JobsChange) error, func(*operate.AlertsChange) error, func(*operate.LogPart) error:
				default:
					*seen = append(*seen, arg)
				}
			}
			return inner.Call(args)
		}))
	}
	return svc
}

var errEnough = errors.New("enough")

// unless returns nil if a call ended because its function has seen enough.
func unless(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return fmt.Errorf("ended by itself: %w", err)
}

func anyOf[T any](list []T) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// A refusal is the same error far as near.
func TestErrorsComeBack(t *testing.T) {
	for _, want := range []*perdure.Error{
		{Code: perdure.CodeInvalid, Message: "two faults", Hint: "mend them", Fields: []perdure.FieldError{
			{Pointer: "/steps/a", Line: 3, Column: 5, Message: "is a cycle", Hint: "break it"}, {Message: "no place"}}},
		{Code: perdure.CodeNotFound, Message: "no such job"}, {Code: perdure.CodeConflict, Message: "busy", Hint: "wait"},
		{Code: perdure.CodeBacklogFull, Message: "full"}, {Code: perdure.CodeMalformed, Message: "what?"}, {Code: perdure.CodeForbidden, Message: "no"},
		{Code: perdure.CodeTooLarge, Message: "big"}, {Code: perdure.CodeSchema, Message: "old"}, {Code: perdure.CodeInUse, Message: "taken"},
		{Code: perdure.CodeUnavailable, Message: "away"},
	} {
		svc := resttest.Full()
		svc.OnSubmit = func(context.Context, []byte, string, string) (*perdure.JobView, bool, error) { return nil, false, want }
		svc.OnFollow = func(context.Context, string, func(*perdure.JobView) error) error { return want }
		c := connect(t, serve(t, rest.Config{Service: svc}), client.Patience(0), client.BusyPatience(0))
		_, _, err := c.Submit(t.Context(), []byte("{}"), "application/json")
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("%s: %s", want.Code, diff)
		}
		svc.OnFollowJobs = func(context.Context, perdure.JobQuery, func(*operate.JobsChange) error) error { return want }
		if err := c.Follow(t.Context(), "j", nil); perdure.CodeOf(err) != want.Code {
			t.Errorf("Follow: %v", err)
		}
		if err := c.FollowJobs(t.Context(), perdure.JobQuery{}, nil); perdure.CodeOf(err) != want.Code {
			t.Errorf("FollowJobs: %v", err)
		}
	}
}

func TestAuthor(t *testing.T) {
	var seen []any
	c := connect(t, serve(t, rest.Config{Service: noting(&seen)}), client.Author("anna"))
	for _, author := range []string{"", "Zoë"} {
		seen = nil
		if _, err := c.Act(t.Context(), "j", perdure.Act{Verb: perdure.VerbRedo, Author: author}); err != nil {
			t.Fatal(err)
		}
		want := author
		if want == "" {
			want = "anna"
		}
		if got := seen[1].(perdure.Act).Author; got != want {
			t.Errorf("author %q, want %q", got, want)
		}
	}
	_, err := c.Act(t.Context(), "j", perdure.Act{Verb: perdure.VerbRedo, Author: "a\nb"})
	code(t, err, perdure.CodeInvalid)
}

// An act that the server would refuse, or that cannot be written as JSON, is refused here.
func TestIncompleteActIsRefused(t *testing.T) {
	c, err := client.New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	none := perdure.State(9)
	for _, act := range []perdure.Act{{}, {Verb: perdure.VerbSkip}, {Verb: perdure.VerbSettle, Step: "a", As: &none}} {
		if _, err := c.Act(t.Context(), "k", act); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("%+v: %v", act, err)
		}
		if _, err := c.Preview(t.Context(), "k", act); perdure.CodeOf(err) != perdure.CodeInvalid {
			t.Errorf("preview of %+v: %v", act, err)
		}
	}
}

// A server, or a proxy before it, that performs the act and answers with the job is noticed.
func TestAnswerThatIsNoPreviewIsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":"job_0190a6b7c8d97e0f8123456789abcdef"}`))
	}))
	defer server.Close()
	c := connect(t, server.URL, client.Patience(0))
	_, err := c.Preview(t.Context(), "k", perdure.Act{Verb: perdure.VerbUndo, Author: "op"})
	if code(t, err, perdure.CodeUnavailable); !strings.Contains(err.Error(), "it may have performed the act") {
		t.Error(err)
	}
}
