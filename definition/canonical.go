package definition

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

// normalize removes what equals a default, so that definitions of equal meaning have equal bytes.
func (d *decoder) normalize() {
	def := d.def
	if len(def.Labels) == 0 {
		def.Labels = nil
	}
	def.OnFailure = plainLadder(def.OnFailure)
	if isPark(def.OnFailure) && def.StartWithin == 0 { // a job that starts too late is undone if it has no ladder
		def.OnFailure = nil
	}
	if s := def.States; s != nil {
		if s.Undone == perdure.Undone.String() {
			s.Undone = ""
		}
		if s.Done == perdure.Done.String() {
			s.Done = ""
		}
		if *s == (perdure.StateNames{}) {
			def.States = nil
		}
	}
	for i := range def.Notify {
		def.Notify[i].On = plainKinds(def.Notify[i].On)
	}
	for i := range def.Steps {
		normalizeStep(&def.Steps[i], def.OnFailure)
	}
}

func normalizeStep(s *kernel.StepDefinition, job kernel.Ladder) {
	normalizeOwner(s)
	if s.Action == s.Name {
		s.Action = ""
	}
	within := perdure.Duration(perdure.DefaultCompleteWithin)
	// An approval or a signal without completeWithin waits for ever: there, 5m is not the default.
	if s.CompleteWithin == within && s.Agent != kernel.AgentApproval && s.Agent != kernel.AgentSignal {
		s.CompleteWithin = 0
	}
	if s.CompleteWithin != 0 {
		within = s.CompleteWithin
	}
	retry := plainRetry(s.Retry)
	if s.Retry = &retry; sameRetry(retry, perdure.Retry{}) {
		s.Retry = nil
	}
	if s.Place == kernel.PlacePack {
		s.Place = ""
	}
	s.OnFailure = plainLadder(s.OnFailure)
	if slices.Equal(s.OnFailure, job) || isPark(s.OnFailure) && len(job) == 0 {
		s.OnFailure = nil
	}
	u := s.Undo
	if u == nil {
		return
	}
	if u.Agent == s.Agent {
		u.Agent = ""
	}
	if u.Action == s.Action || s.Action == "" && u.Action == s.Name {
		u.Action = ""
	}
	if u.SameHost == kernel.SameHostPrefer {
		u.SameHost = ""
	}
	if u.CompleteWithin == within {
		u.CompleteWithin = 0
	}
	if u.Retry != nil {
		own := plainRetry(u.Retry)
		if u.Retry = &own; sameRetry(own, retry) {
			u.Retry = nil
		}
	}
}

// plainRetry sets what equals the default to zero.
func plainRetry(r *perdure.Retry) perdure.Retry {
	if r == nil {
		return perdure.Retry{}
	}
	p := *r
	if p.Attempts == perdure.DefaultAttempts {
		p.Attempts = 0
	}
	longest := max(perdure.Duration(perdure.DefaultMaxBackoff), p.Backoff)
	if p.MaxBackoff == longest {
		p.MaxBackoff = 0
	}
	if time.Duration(p.Backoff) == perdure.DefaultBackoff {
		p.Backoff = 0
	}
	if len(p.NotOn) == 0 {
		p.NotOn = nil
	}
	return p
}

func sameRetry(a, b perdure.Retry) bool {
	return a.Attempts == b.Attempts && a.Backoff == b.Backoff && a.MaxBackoff == b.MaxBackoff && slices.Equal(a.NotOn, b.NotOn)
}

// plainLadder removes a last park: a ladder that does not end otherwise ends with it.
func plainLadder(l kernel.Ladder) kernel.Ladder {
	if n := len(l); n > 1 && l[n-1].Kind == kernel.RungPark {
		return l[:n-1]
	}
	return l
}

func isPark(l kernel.Ladder) bool { return len(l) == 1 && l[0].Kind == kernel.RungPark }

// finish writes the canonical text of the shape, which a store keeps, and hashes that of the whole job, its fingerprint.
func (d *decoder) finish() *kernel.Plan {
	plan := d.plan
	common := *d.def
	common.Key, common.Priority, common.Labels, common.StartAt, common.Input = "", 0, nil, time.Time{}, nil
	plan.Common = &common
	room := 256 + 256*len(d.def.Steps)
	plan.Text = appendDefinition(make([]byte, 0, room), &common, nil)
	sum := sha256.Sum256(plan.Text)
	plan.ID = kernel.ShapeID(sum[:len(plan.ID)])
	plan.Size = shapeBytes(plan.Shape)
	plan.Artifacts = kernel.ArtifactsIn(plan.Text)
	plan.UniqueKey = d.computedUnique
	if d.stored {
		return plan // of which the shape alone is wanted
	}
	// The fingerprint is that of the text with its steps in the order of their names.
	order := make([]int, len(d.def.Steps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(d.def.Steps[a].Name, d.def.Steps[b].Name) })
	d.rest = appendCommon(make([]byte, 0, room), d.def, order)
	plan.Hash = sha256.Sum256(append(appendValues(make([]byte, 0, room+len(d.def.Input)), d.def), d.rest...))
	plan.Needs, _ = d.jobNeeds(d.jobLimits) // the keys were checked
	return plan
}

// Canonical returns the whole definition in canonical form: without what equals a default, with sorted keys, and numbers
// in the digits that they were given in. If it is submitted again, it is the same job.
func Canonical(p *kernel.Plan) []byte {
	def := *p.Definition
	def.Key = literal(def.Key)
	return appendDefinition(make([]byte, 0, len(p.Text)+len(def.Input)+256), &def, nil)
}

// CanonicalSize returns the length of Canonical for a job of a shape. It does not need the job's input.
func CanonicalSize(s *kernel.Shape, j *kernel.Job, inputBytes int) int {
	def := kernel.Definition{Type: j.Type, Key: literal(j.Key), Priority: j.Priority, Labels: j.Labels}
	if s.Common.StartIn == 0 {
		def.StartAt = j.StartAt
	}
	size := len(appendValues(nil, &def)) + len(s.Text) - len(appendValues(nil, &kernel.Definition{Type: j.Type}))
	if inputBytes > 0 {
		size += len(inputField) + inputBytes
	}
	return size
}

// literal writes a key as a definition does: ${ is escaped, because it begins an expression there.
func literal(key string) string { return strings.ReplaceAll(key, "${", "$${") }

const inputField = `,"input":`

// appendDefinition writes what json.Marshal(def) writes, several times faster. order is the order of the steps; nil is that
// of the definition. A test compares the two.
func appendDefinition(b []byte, def *kernel.Definition, order []int) []byte {
	return appendCommon(appendValues(b, def), def, order)
}

// appendValues writes the type and the values of the one job; appendCommon writes the rest.
func appendValues(b []byte, def *kernel.Definition) []byte {
	b = append(b, `{"type":`...)
	b = text.AppendString(b, def.Type)
	b = appendText(b, `,"key":`, def.Key)
	if def.Priority != 0 {
		b = strconv.AppendInt(append(b, `,"priority":`...), int64(def.Priority), 10)
	}
	if len(def.Labels) > 0 {
		b = append(b, `,"labels":{`...)
		names := make([]string, 0, len(def.Labels))
		for name := range def.Labels {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(text.AppendString(b, name), ':')
			b = text.AppendString(b, def.Labels[name])
		}
		b = append(b, '}')
	}
	if !def.StartAt.IsZero() {
		b = append(def.StartAt.AppendFormat(append(b, `,"startAt":"`...), time.RFC3339Nano), '"')
	}
	return appendRaw(b, inputField, def.Input)
}

func appendCommon(b []byte, def *kernel.Definition, order []int) []byte {
	b = appendRaw(appendRaw(b, `,"inputSchema":`, def.InputSchema), `,"outputSchema":`, def.OutputSchema)
	b = appendLadder(b, def.OnFailure)
	b = appendDuration(b, `,"completeWithin":`, def.CompleteWithin)
	b = appendLimits(b, def.Limits)
	b = appendDuration(b, `,"startIn":`, def.StartIn)
	b = appendDuration(b, `,"startWithin":`, def.StartWithin)
	if u := def.Unique; u != nil {
		b = text.AppendString(append(b, `,"unique":{"key":`...), u.Key)
		b = append(appendText(appendDuration(b, `,"within":`, u.Within), `,"while":`, u.While), '}')
	}
	if s := def.States; s != nil {
		b = append(b, `,"states":`...)
		fields := len(b)
		b = appendText(b, `,"undone":`, s.Undone)
		b = braced(appendText(b, `,"done":`, s.Done), fields)
	}
	b = appendRaw(appendNotify(b, def.Notify), `,"output":`, def.Output)
	b = append(b, `,"steps":{`...)
	for i := range def.Steps {
		if i > 0 {
			b = append(b, ',')
		}
		s := &def.Steps[i]
		if order != nil {
			s = &def.Steps[order[i]]
		}
		b = append(text.AppendString(b, s.Name), ':')
		b = appendStep(b, s)
	}
	return append(b, '}', '}')
}

func appendStep(b []byte, s *kernel.StepDefinition) []byte {
	fields := len(b)
	b = appendText(b, `,"agent":`, s.Agent)
	b = appendText(b, `,"action":`, s.Action)
	b = appendTexts(b, `,"after":`, s.After)
	b = appendText(b, `,"when":`, s.When)
	b = appendRaw(b, `,"with":`, s.With)
	if u := s.Undo; u != nil {
		b = append(b, `,"undo":`...)
		fields := len(b)
		b = appendText(b, `,"agent":`, u.Agent)
		b = appendText(b, `,"action":`, u.Action)
		b = appendRaw(b, `,"with":`, u.With)
		b = appendDuration(b, `,"completeWithin":`, u.CompleteWithin)
		b = braced(appendText(appendRetry(b, u.Retry), `,"sameHost":`, u.SameHost), fields)
	}
	b = appendDuration(b, `,"completeWithin":`, s.CompleteWithin)
	b = appendRetry(b, s.Retry)
	b = appendLadder(b, s.OnFailure)
	b = appendSignsOfLife(appendPlacement(appendLimits(b, s.Limits), s), s)
	b = appendRaw(appendRaw(b, `,"inputSchema":`, s.InputSchema), `,"outputSchema":`, s.OutputSchema)
	return braced(appendOwner(b, s), fields)
}

func appendLimits(b []byte, uses []kernel.LimitUse) []byte {
	if len(uses) == 0 {
		return b
	}
	b = append(b, `,"limits":[`...)
	for i := range uses {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = text.AppendString(b, uses[i].Name)
		b = appendText(b, `,"key":`, uses[i].Key)
		if uses[i].Amount > 0 {
			b = strconv.AppendInt(append(b, `,"amount":`...), int64(uses[i].Amount), 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendRetry(b []byte, r *perdure.Retry) []byte {
	if r == nil {
		return b
	}
	b = append(b, `,"retry":`...)
	fields := len(b)
	if r.Attempts != 0 {
		b = strconv.AppendInt(append(b, `,"attempts":`...), int64(r.Attempts), 10)
	}
	b = appendDuration(b, `,"backoff":`, r.Backoff)
	b = appendDuration(b, `,"maxBackoff":`, r.MaxBackoff)
	return braced(appendTexts(b, `,"notOn":`, r.NotOn), fields)
}

func appendLadder(b []byte, l kernel.Ladder) []byte {
	if len(l) == 0 {
		return b
	}
	b = append(b, `,"onFailure":`...)
	if len(l) > 1 {
		b = append(b, '[')
	}
	for i, r := range l {
		if i > 0 {
			b = append(b, ',')
		}
		switch r.Kind {
		case kernel.RungWait:
			b = strconv.AppendInt(append(b, `{"times":`...), int64(r.Times), 10)
			b = append(appendDuration(b, `,"wait":`, r.For), '}')
		case kernel.RungRestart:
			b = append(strconv.AppendInt(append(b, `{"restart":`...), int64(r.Times), 10), '}')
		case kernel.RungAlert:
			b = append(text.AppendString(append(b, `{"alert":`...), r.Name), '}')
		default:
			b = text.AppendString(b, string(r.Kind))
		}
	}
	if len(l) > 1 {
		b = append(b, ']')
	}
	return b
}

// braced puts braces around the fields that were written from there on. The first comma becomes the opening brace.
func braced(b []byte, from int) []byte {
	if len(b) == from {
		return append(b, '{', '}')
	}
	b[from] = '{'
	return append(b, '}')
}

func appendText(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return text.AppendString(append(b, name...), s)
}

func appendRaw(b []byte, name string, raw []byte) []byte {
	if len(raw) == 0 {
		return b
	}
	return append(append(b, name...), raw...)
}

func appendDuration(b []byte, name string, d perdure.Duration) []byte {
	if d == 0 {
		return b
	}
	return appendText(b, name, d.String())
}

func appendTexts(b []byte, name string, list []string) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(append(b, name...), '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = text.AppendString(b, s)
	}
	return append(b, ']')
}
