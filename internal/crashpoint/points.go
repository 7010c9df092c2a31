// Package crashpoint names the instants before and after every write and every send of this program, so that a test can
// kill it at each of them (F116).
//
// In a build with the tag crashpoints, a process that finds PERDURE_CRASHPOINT=NAME or NAME:N in its environment kills
// itself with SIGKILL when it reaches that point for the N-th time. Without the tag, as in every released build, Here is
// empty and costs nothing, and the program refuses to start with that variable set.
package crashpoint

import "slices"

// Env arms a point. EnvLog names a file to which the name of each point is appended when it is reached. EnvDeaths names a
// file to which it is appended when it kills a process; with maxDeaths names in it, no further process is killed. So a test
// counts the deaths of processes that it has not started, such as keepers, and each use comes to an end.
const (
	Env       = "PERDURE_CRASHPOINT"
	EnvLog    = "PERDURE_CRASHPOINT_LOG"
	EnvDeaths = "PERDURE_CRASHPOINT_DEATHS"
)

// Point is an instant in the program. Its name has the component, and what it is about to do or has just done.
type Point string

// REST: a request was read and is passed to the node; the node has answered, and the client has no answer yet.
const (
	RestSubmit          Point = "rest.submit"
	RestSubmitAnswer    Point = "rest.submit.answer"
	RestBatch           Point = "rest.batch"
	RestBatchAnswer     Point = "rest.batch.answer"
	RestClaim           Point = "rest.claim"
	RestClaimAnswer     Point = "rest.claim.answer"
	RestReport          Point = "rest.report"
	RestReportAnswer    Point = "rest.report.answer"
	RestHeartbeat       Point = "rest.heartbeat"
	RestHeartbeatAnswer Point = "rest.heartbeat.answer"
	RestAct             Point = "rest.act"
	RestActAnswer       Point = "rest.act.answer"
	RestBulk            Point = "rest.bulk"
	RestBulkAnswer      Point = "rest.bulk.answer"
	RestLimit           Point = "rest.limit"
	RestLimitAnswer     Point = "rest.limit.answer"
)

// Scheduler: before a request is queued and after it is committed; and a transaction, from its locks to its answers.
const (
	SubmitQueue    Point = "scheduler.submit.queue"
	SubmitDone     Point = "scheduler.submit.done"
	ClaimQueue     Point = "scheduler.claim.queue"
	ClaimDone      Point = "scheduler.claim.done"
	ReportQueue    Point = "scheduler.report.queue"
	ReportDone     Point = "scheduler.report.done"
	HeartbeatQueue Point = "scheduler.heartbeat.queue"
	HeartbeatDone  Point = "scheduler.heartbeat.done"
	ActQueue       Point = "scheduler.act.queue"
	ActDone        Point = "scheduler.act.done"
	SweepQueue     Point = "scheduler.sweep.queue"
	SweepDone      Point = "scheduler.sweep.done"
	UpdateBegin    Point = "scheduler.update.begin"
	UpdateDone     Point = "scheduler.update.done"

	BatchTaken      Point = "scheduler.batch.taken"
	BatchLocked     Point = "scheduler.batch.locked"
	BatchApplied    Point = "scheduler.batch.applied"
	BatchDispatched Point = "scheduler.batch.dispatched"
	BatchSaved      Point = "scheduler.batch.saved"
	BatchCommitted  Point = "scheduler.batch.committed"
	BatchAnswered   Point = "scheduler.batch.answered"
)

// Supervisor: before and after its search for due work, and each of its due scans.
const (
	SupervisorScan    Point = "supervisor.scan"
	SupervisorScanned Point = "supervisor.scanned"
	SupervisorExpired Point = "supervisor.expired"
	SupervisorDue     Point = "supervisor.due"
	SupervisorOverdue Point = "supervisor.overdue"
	SupervisorSwept   Point = "supervisor.swept"
)

// Bulk acts: before and after the search for jobs, before a step is queued and after it is answered, and around the
// deletion of old bulk acts.
const (
	BulkRead    Point = "bulk.read"
	BulkHasRead Point = "bulk.hasRead"
	BulkQueue   Point = "bulk.queue"
	BulkDone    Point = "bulk.done"
	BulkForget  Point = "bulk.forget"
	BulkForgot  Point = "bulk.forgot"
)

// Webhooks: before and after the search for notifications, around each delivery, around the transaction that stores
// outcomes, and around the deletion of old notifications.
const (
	WebhookRead    Point = "webhook.read"
	WebhookHasRead Point = "webhook.hasRead"
	WebhookPost    Point = "webhook.post"
	WebhookPosted  Point = "webhook.posted"
	WebhookSave    Point = "webhook.save"
	WebhookSaved   Point = "webhook.saved"
	WebhookForget  Point = "webhook.forget"
	WebhookForgot  Point = "webhook.forgot"
)

// Courier: before and after its search, after a page of mail was applied, and around the deletion of old mail.
const (
	CourierRead    Point = "courier.read"
	CourierHasRead Point = "courier.hasRead"
	CourierApplied Point = "courier.applied"
	CourierForget  Point = "courier.forget"
	CourierForgot  Point = "courier.forgot"
)

// Logs: around the transaction that records that an artifact has the bytes of a log.
const (
	LogMove  Point = "log.move"
	LogMoved Point = "log.moved"
)

// Statistics: before the leader counts, and after it has stored the result.
const (
	StatsCompute Point = "stats.compute"
	StatsSaved   Point = "stats.saved"
)

// The agent host: around each call to its exchange and each handler, and at its end.
const (
	AgentClaim             Point = "agent.claim"
	AgentClaimed           Point = "agent.claimed"
	AgentExecute           Point = "agent.execute"
	AgentExecuted          Point = "agent.executed"
	AgentReport            Point = "agent.report"
	AgentReported          Point = "agent.reported"
	AgentHeartbeat         Point = "agent.heartbeat"
	AgentHeartbeatAnswered Point = "agent.heartbeat.answered"
	AgentGiveBack          Point = "agent.giveBack"
	AgentDrain             Point = "agent.drain"
	AgentCutShort          Point = "agent.cutShort"
	AgentDrained           Point = "agent.drained"
	AgentRetrieve          Point = "agent.retrieve"
	AgentRetrieved         Point = "agent.retrieved"
)

// A host: around its registration, the adoption of the runs of an earlier process, and each upload of logs.
const (
	HostRegister   Point = "host.register"
	HostRegistered Point = "host.registered"
	HostAdopt      Point = "host.adopt"
	HostAdopted    Point = "host.adopted"
	HostUpload     Point = "host.upload"
	HostUploaded   Point = "host.uploaded"
)

// The agent exec: before and after run.json is written, around the start of a keeper, when the exit record was read, and
// around the mark of a reported run and the removal of its directory.
const (
	ExecPrepare  Point = "exec.prepare"
	ExecPrepared Point = "exec.prepared"
	ExecStart    Point = "exec.start"
	ExecStarted  Point = "exec.started"
	ExecEnded    Point = "exec.ended"
	ExecMark     Point = "exec.mark"
	ExecMarked   Point = "exec.marked"
	ExecRemove   Point = "exec.remove"
	ExecRemoved  Point = "exec.removed"
)

// A keeper: at its start, around keeper.json, after it has started the command, when that has ended and when all
// processes of the run have, and around the exit record.
const (
	KeeperBegin    Point = "keeper.begin"
	KeeperRecord   Point = "keeper.record"
	KeeperRecorded Point = "keeper.recorded"
	KeeperStarted  Point = "keeper.started"
	KeeperEnded    Point = "keeper.ended"
	KeeperAlone    Point = "keeper.alone"
	KeeperExit     Point = "keeper.exit"
	KeeperExited   Point = "keeper.exited"
)

// The client: around each request.
const (
	ClientSend     Point = "client.send"
	ClientReceived Point = "client.received"
)

// The node and its program, from the start to the end.
const (
	NodeStart     Point = "node.start"
	NodeInherited Point = "node.inherited"
	NodeStarted   Point = "node.started"
	NodeEnlist    Point = "node.enlist"
	NodeEnlisted  Point = "node.enlisted"
	RoleChange    Point = "role.change"
	RoleChanged   Point = "role.changed"
	NodeStop      Point = "node.stop"
	NodeDrained   Point = "node.drained"
	NodeUnlist    Point = "node.unlist"
	NodeStopped   Point = "node.stopped"
	ServeListen   Point = "serve.listen"
	ServeClose    Point = "serve.close"
	ServeClosed   Point = "serve.closed"
)

// SQLite: the statements that write, the commits, and what is written beside them.
const (
	SQLiteMigrate   Point = "sqlite.migrate"
	SQLiteMigrated  Point = "sqlite.migrated"
	SQLiteBegun     Point = "sqlite.begun"
	SQLiteSave      Point = "sqlite.save"
	SQLiteSaved     Point = "sqlite.saved"
	SQLiteWrite     Point = "sqlite.write"
	SQLiteCommit    Point = "sqlite.commit"
	SQLiteCommitted Point = "sqlite.committed"
	SQLiteNote      Point = "sqlite.note"
	SQLiteNoted     Point = "sqlite.noted"
	SQLiteClose     Point = "sqlite.close"
)

// PostgreSQL: the same, for each round trip.
const (
	PostgresMigrate   Point = "postgres.migrate"
	PostgresMigrated  Point = "postgres.migrated"
	PostgresSend      Point = "postgres.send"
	PostgresReceived  Point = "postgres.received"
	PostgresSave      Point = "postgres.save"
	PostgresCommit    Point = "postgres.commit"
	PostgresCommitted Point = "postgres.committed"
	PostgresHint      Point = "postgres.hint"
	PostgresHinted    Point = "postgres.hinted"
)

// All are all points. A test compares them with the constants, and with their uses.
var All = slices.Concat(
	[]Point{RestSubmit, RestSubmitAnswer, RestBatch, RestBatchAnswer, RestClaim, RestClaimAnswer, RestReport, RestReportAnswer,
		RestHeartbeat, RestHeartbeatAnswer, RestAct, RestActAnswer, RestBulk, RestBulkAnswer, RestLimit, RestLimitAnswer},
	[]Point{SubmitQueue, SubmitDone, ClaimQueue, ClaimDone, ReportQueue, ReportDone, HeartbeatQueue, HeartbeatDone,
		ActQueue, ActDone, SweepQueue, SweepDone, UpdateBegin, UpdateDone},
	[]Point{BatchTaken, BatchLocked, BatchApplied, BatchDispatched, BatchSaved, BatchCommitted, BatchAnswered},
	[]Point{SupervisorScan, SupervisorScanned, SupervisorExpired, SupervisorDue, SupervisorOverdue, SupervisorSwept},
	[]Point{BulkRead, BulkHasRead, BulkQueue, BulkDone, BulkForget, BulkForgot},
	[]Point{WebhookRead, WebhookHasRead, WebhookPost, WebhookPosted, WebhookSave, WebhookSaved, WebhookForget, WebhookForgot},
	[]Point{CourierRead, CourierHasRead, CourierApplied, CourierForget, CourierForgot},
	[]Point{LogMove, LogMoved},
	[]Point{StatsCompute, StatsSaved},
	[]Point{AgentClaim, AgentClaimed, AgentExecute, AgentExecuted, AgentReport, AgentReported, AgentHeartbeat, AgentHeartbeatAnswered,
		AgentGiveBack, AgentDrain, AgentCutShort, AgentDrained, AgentRetrieve, AgentRetrieved},
	[]Point{HostRegister, HostRegistered, HostAdopt, HostAdopted, HostUpload, HostUploaded},
	[]Point{ExecPrepare, ExecPrepared, ExecStart, ExecStarted, ExecEnded, ExecMark, ExecMarked, ExecRemove, ExecRemoved},
	[]Point{KeeperBegin, KeeperRecord, KeeperRecorded, KeeperStarted, KeeperEnded, KeeperAlone, KeeperExit, KeeperExited},
	[]Point{ClientSend, ClientReceived},
	[]Point{NodeStart, NodeInherited, NodeStarted, NodeEnlist, NodeEnlisted, RoleChange, RoleChanged, NodeStop, NodeDrained, NodeUnlist, NodeStopped,
		ServeListen, ServeClose, ServeClosed},
	[]Point{SQLiteMigrate, SQLiteMigrated, SQLiteBegun, SQLiteSave, SQLiteSaved, SQLiteWrite, SQLiteCommit, SQLiteCommitted,
		SQLiteNote, SQLiteNoted, SQLiteClose},
	[]Point{PostgresMigrate, PostgresMigrated, PostgresSend, PostgresReceived, PostgresSave,
		PostgresCommit, PostgresCommitted, PostgresHint, PostgresHinted},
)
