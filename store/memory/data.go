package memory

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// data holds the tables.
type data struct {
	jobs             map[perdure.JobID]*kernel.Job
	keys             map[string]perdure.JobID
	shapes           map[kernel.ShapeID][]byte
	steps            map[kernel.StepRef]*kernel.Step
	order            map[perdure.JobID][]kernel.StepRef // the steps of a job, in order of index
	open             map[kernel.StepRef]*kernel.Step    // unsettled steps: all that a Finder searches
	payloads         map[kernel.StepRef]kernel.Payload
	alerts           map[int64]kernel.Alert
	lastAlert        int64
	history          map[perdure.JobID][]kernel.Entry
	limits           map[string]kernel.Limit
	closedLanes      map[kernel.LaneRef]closedLane
	buckets          map[kernel.LimitKey]kernel.Bucket
	shares           map[shareRef]kernel.Share
	unique           map[kernel.UniqueKey]kernel.UniqueJob
	definitions      map[string]kernel.DefinitionHead
	versions         map[storedKey]kernel.StoredDefinition
	agents           map[string]perdure.AgentSettings
	mail             map[kernel.MailID]mail
	lastMail         int64
	maxMail          int
	bulk             map[string]bulkAct
	credentials      map[string]*kernel.Credential
	audit            []operate.AuditEntry // in the order of ID
	lastAudit        int64
	fence            int64
	cell             int
	nodes            map[string]kernel.Node
	roles            map[string]kernel.Role
	heldRoles        map[string]kernel.HeldRole
	seen             map[seenBy]time.Time
	hosts            map[string]kernel.Host
	stats            json.RawMessage
	series           map[seriesKey]int64
	receivers        map[string]*kernel.Receiver
	fullReceivers    map[string]bool
	notifications    map[int64]kernel.Notification
	lastNotification int64
	logs             map[kernel.LogRef]storedLog
	artifactUses     map[kernel.ArtifactUse]bool
	schedules        map[string]kernel.Schedule
	firings          map[kernel.FiringKey]kernel.Firing
	signals          map[int64]*kernel.Signal
	lastSignal       int64
}

// closedLane records why a lane is closed, and the order of its first step.
type closedLane struct {
	limit kernel.LimitKey
	order int64 // lowest of its ready steps since it was closed
}

type seenBy struct{ agent, holder string }

func newData() data {
	return data{
		jobs:          map[perdure.JobID]*kernel.Job{},
		keys:          map[string]perdure.JobID{},
		shapes:        map[kernel.ShapeID][]byte{},
		steps:         map[kernel.StepRef]*kernel.Step{},
		order:         map[perdure.JobID][]kernel.StepRef{},
		open:          map[kernel.StepRef]*kernel.Step{},
		payloads:      map[kernel.StepRef]kernel.Payload{},
		alerts:        map[int64]kernel.Alert{},
		history:       map[perdure.JobID][]kernel.Entry{},
		limits:        map[string]kernel.Limit{},
		closedLanes:   map[kernel.LaneRef]closedLane{},
		buckets:       map[kernel.LimitKey]kernel.Bucket{},
		shares:        map[shareRef]kernel.Share{},
		unique:        map[kernel.UniqueKey]kernel.UniqueJob{},
		definitions:   map[string]kernel.DefinitionHead{},
		versions:      map[storedKey]kernel.StoredDefinition{},
		agents:        map[string]perdure.AgentSettings{},
		hosts:         map[string]kernel.Host{},
		artifactUses:  map[kernel.ArtifactUse]bool{},
		schedules:     map[string]kernel.Schedule{},
		firings:       map[kernel.FiringKey]kernel.Firing{},
		signals:       map[int64]*kernel.Signal{},
		mail:          map[kernel.MailID]mail{},
		maxMail:       kernel.DefaultMaxMail,
		bulk:          map[string]bulkAct{},
		credentials:   map[string]*kernel.Credential{},
		nodes:         map[string]kernel.Node{},
		roles:         map[string]kernel.Role{},
		heldRoles:     map[string]kernel.HeldRole{},
		seen:          map[seenBy]time.Time{},
		series:        map[seriesKey]int64{},
		receivers:     map[string]*kernel.Receiver{},
		fullReceivers: map[string]bool{},
		notifications: map[int64]kernel.Notification{},
		logs:          map[kernel.LogRef]storedLog{},
	}
}

// storedTime returns t as stores keep it: to the microsecond, in UTC.
func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func copyJob(j *kernel.Job) *kernel.Job {
	c := *j
	c.Labels, c.Input = maps.Clone(j.Labels), slices.Clone(j.Input)
	if j.States != nil {
		names := *j.States
		c.States = &names
	}
	for _, t := range []*time.Time{&c.StartAt, &c.StartBy, &c.CompleteBy, &c.ParkedAt, &c.CreatedAt, &c.UpdatedAt, &c.SettledAt} {
		*t = storedTime(*t)
	}
	return &c
}

// jobRow returns a job as its row is read: without a large input.
func jobRow(j *kernel.Job) *kernel.Job {
	j = copyJob(j)
	if j.InputStoredApart = j.LargeInput(); j.InputStoredApart {
		j.Input = nil
	}
	return j
}

func copyStep(s *kernel.Step) *kernel.Step {
	c := *s
	c.Heartbeat = s.Heartbeat.Truncate(time.Microsecond)
	for _, t := range []*time.Time{
		&c.CompleteBy, &c.LockedUntil, &c.AvailableAt, &c.ReadyAt, &c.StartedAt, &c.EndedAt, &c.UpdatedAt,
	} {
		*t = storedTime(*t)
	}
	return &c
}

func copyPayload(p kernel.Payload) kernel.Payload {
	p.Input, p.Output = slices.Clone(p.Input), slices.Clone(p.Output)
	return p
}

func copyNode(n kernel.Node) kernel.Node {
	n.Agents, n.Slots = slices.Clone(n.Agents), slices.Clone(n.Slots)
	n.Since, n.SeenAt = storedTime(n.Since), storedTime(n.SeenAt)
	return n
}
