package timetable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the time zones of hosts without them

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/operate"
)

// Book reads the settings of schedules, and makes their jobs. It keeps what it has read.
type Book struct {
	compile Compile
	stored  StoredDefinition
	rules   *lru.Cache[string, *ruled]
	texts   *lru.Cache[kernel.DefinitionRef, []byte] // of versions of stored definitions, which never change
}

// Compile compiles a definition in JSON. If values is not nil, it is a stored one, and values are those of the job.
type Compile func(body, values []byte) (*kernel.Plan, error)

// StoredDefinition reads a version of a stored definition; 0: the current one. It returns nil if there is none.
type StoredDefinition func(ctx context.Context, name string, version int) (*kernel.StoredDefinition, *kernel.DefinitionHead, error)

// ruled are the settings of one version of a schedule.
type ruled struct {
	text     []byte
	settings *operate.ScheduleSettings
	rule     *kernel.TimeRule
}

// bookBytes bounds the memory of a book: about that of the schedules that fire often.
const bookBytes = 16 << 20

// NewBook returns a book.
func NewBook(compile Compile, stored StoredDefinition) *Book {
	return &Book{compile: compile, stored: stored, rules: lru.New[string](bookBytes, func(r *ruled) int { return 3*len(r.text) + 1024 }),
		texts: lru.New[kernel.DefinitionRef](bookBytes, func(text []byte) int { return len(text) + 256 })}
}

// Load implements kernel.ScheduleBook.
func (b *Book) Load(ctx context.Context, s *kernel.Schedule) error {
	r, err := b.of(s)
	if err != nil {
		return nil // Plan returns the error
	}
	_, err = b.load(ctx, &r.settings.Job)
	return err
}

// load reads the stored definition that a job names. It returns its version; 0 if the job names none, or there is none.
func (b *Book) load(ctx context.Context, job *operate.ScheduleJob) (version int, err error) {
	ref, named := kernel.StoredName(job)
	if !named {
		return 0, nil
	}
	if _, known := b.texts.Get(ref); known && ref.Version > 0 {
		return ref.Version, nil
	}
	d, _, err := b.stored(ctx, ref.Name, ref.Version)
	if err != nil || d == nil {
		return 0, err
	}
	b.texts.Put(kernel.DefinitionRef{Name: d.Name, Version: d.Version}, d.Text)
	return d.Version, nil
}

// Loaded implements kernel.ScheduleBook.
func (b *Book) Loaded(s *kernel.Schedule, version int) bool {
	r, err := b.of(s)
	if err != nil {
		return true
	}
	ref, named := kernel.StoredName(&r.settings.Job)
	if !named || version == 0 {
		return true
	}
	_, known := b.texts.Get(kernel.DefinitionRef{Name: ref.Name, Version: version})
	return known
}

// RuleOf returns the rule of times of settings that were checked.
func RuleOf(s *operate.ScheduleSettings) (*kernel.TimeRule, error) {
	zone := time.UTC
	if s.Timezone != "" {
		var err error
		if zone, err = time.LoadLocation(s.Timezone); err != nil || s.Timezone == "Local" {
			e := perdure.Refuse(perdure.CodeInvalid, "timezone: unknown time zone %q", s.Timezone)
			e.Hint = "use a name of the IANA database, such as Europe/Warsaw or UTC"
			e.Fields = []perdure.FieldError{{Pointer: "/timezone", Message: "unknown time zone", Hint: e.Hint}}
			return nil, e
		}
	}
	return kernel.TimeRuleOf(s, zone)
}

// Rule implements kernel.ScheduleBook.
func (b *Book) Rule(s *kernel.Schedule) (*operate.ScheduleSettings, *kernel.TimeRule, error) {
	r, err := b.of(s)
	if err != nil {
		return nil, nil, err
	}
	return r.settings, r.rule, nil
}

func (b *Book) of(s *kernel.Schedule) (*ruled, error) {
	if r, ok := b.rules.Get(s.Name); ok && bytes.Equal(r.text, s.Settings) {
		return r, nil
	}
	set, err := s.Parse()
	if err != nil {
		return nil, err
	}
	rule, err := RuleOf(set)
	if err != nil {
		return nil, err
	}
	r := &ruled{text: s.Settings, settings: set, rule: rule}
	b.rules.Put(s.Name, r)
	return r, nil
}

// Plan implements kernel.ScheduleBook.
func (b *Book) Plan(s *kernel.Schedule, k kernel.FiringKey, version int) (*kernel.Plan, error) {
	r, err := b.of(s)
	if err != nil {
		return nil, err
	}
	previous, _ := r.rule.Previous(k.Nominal)
	plan, err := b.plan(&r.settings.Job, k.Schedule, k.Nominal, previous, version)
	if err != nil {
		return nil, err
	}
	return WithKey(plan, k.JobKey()), nil
}

// Check returns the plan of a job at a time, to refuse settings whose job could not be submitted.
func (b *Book) Check(ctx context.Context, job *operate.ScheduleJob, name string, at time.Time) (*kernel.Plan, error) {
	version, err := b.load(ctx, job)
	if err != nil {
		return nil, err
	}
	plan, err := b.plan(job, name, at, at.Add(-time.Hour), version)
	if err != nil {
		return nil, below("/job", err)
	}
	if _, named := kernel.StoredName(job); plan.Definition.Key != "" && !named { // that of a stored definition is for other submissions
		return nil, refuseJob("/job/definition/key", "a schedule makes the keys of its jobs: @schedule:NAME:TIME", "leave it out")
	}
	if plan.Definition.Unique != nil {
		return nil, refuseJob("/job/definition/unique", "each time of a schedule has a job of its own", "leave it out; overlap says what happens while the job before has not settled")
	}
	return plan, nil
}

// WithKey returns a plan with another key.
func WithKey(plan *kernel.Plan, key string) *kernel.Plan {
	p, d := *plan, *plan.Definition
	d.Key = key
	p.Definition = &d
	return &p
}

// plan compiles a job. Its body is the definition, with the fields that the schedule sets in place of its own.
func (b *Book) plan(job *operate.ScheduleJob, name string, at, previous time.Time, version int) (*kernel.Plan, error) {
	if ref, named := kernel.StoredName(job); named {
		return b.storedPlan(job, ref, name, at, previous, version)
	}
	body, err := merged(job)
	if err != nil {
		return nil, err
	}
	if body, err = kernel.FillSchedule(body, name, at, previous); err != nil {
		return nil, err
	}
	return b.compile(body, nil)
}

// storedPlan compiles a job of a stored definition: the input, priority and labels of the schedule are values of the job,
// as in a submission that names the definition.
func (b *Book) storedPlan(job *operate.ScheduleJob, ref kernel.DefinitionRef, name string, at, previous time.Time, version int) (*kernel.Plan, error) {
	made := kernel.DefinitionRef{Name: ref.Name, Version: version}
	text, known := b.texts.Get(made)
	if version == 0 || !known {
		return nil, kernel.ErrNoDefinition(ref)
	}
	values := *job
	values.Definition = []byte("{}")
	own, err := merged(&values)
	if err != nil {
		return nil, err
	}
	var filled [2][]byte
	for i, part := range [][]byte{text, own} {
		if filled[i], err = kernel.FillSchedule(part, name, at, previous); err != nil {
			return nil, err
		}
	}
	plan, err := b.compile(filled[0], filled[1])
	if err == nil {
		plan.MadeFrom = made.String()
	}
	return plan, err
}

// merged returns the definition with the input, priority and labels of the job in place of its own.
func merged(job *operate.ScheduleJob) ([]byte, error) {
	if job.Input == nil && job.Priority == nil && job.Labels == nil {
		return job.Definition, nil
	}
	// The order of the fields is kept, because that of the steps counts.
	text := bytes.TrimSpace(job.Definition)
	if len(text) < 2 || text[0] != '{' {
		return nil, refuseJob("/definition", "it is an object, or the text of a job file", "")
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, refuseJob("/definition", "it is not JSON: "+err.Error(), "")
	}
	set := map[string]any{}
	if job.Input != nil {
		set["input"] = job.Input
	}
	if job.Priority != nil {
		set["priority"] = *job.Priority
	}
	if job.Labels != nil {
		set["labels"] = job.Labels
	}
	var out []byte
	for _, name := range slices.Sorted(mapsKeys(fields, set)) {
		value := fields[name]
		if own, replaced := set[name]; replaced {
			var err error
			if value, err = plainJSON(own); err != nil {
				return nil, err
			}
		}
		quoted, err := plainJSON(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(append(out, ','), quoted...), ':'), value...)
	}
	out[0] = '{'
	return append(out, '}'), nil
}

func mapsKeys(fields map[string]json.RawMessage, set map[string]any) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range fields {
			if !yield(name) {
				return
			}
		}
		for name := range set {
			if _, both := fields[name]; !both && !yield(name) {
				return
			}
		}
	}
}

// plainJSON encodes without escaping < > &, so that texts stay as they are written.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

func refuseJob(pointer, message, hint string) error {
	e := perdure.Refuse(perdure.CodeInvalid, "%s: %s", strings.ReplaceAll(pointer[1:], "/", "."), message)
	e.Hint = hint
	e.Fields = []perdure.FieldError{{Pointer: pointer, Message: message, Hint: hint}}
	return e
}

// RefuseDefinition makes the fault of a name the fault of the definition in the settings that have it.
func RefuseDefinition(err error) error {
	var e *perdure.Error
	if !errors.As(err, &e) {
		return err
	}
	return refuseJob("/job/definition", e.Message, e.Hint)
}

// below returns an error whose pointers are those of a definition, as one of the settings. The places in the text are left
// out: they are those of another text.
func below(base string, err error) error {
	var e *perdure.Error
	if !errors.As(err, &e) {
		return err
	}
	moved := *e
	moved.Fields = slices.Clone(e.Fields)
	for i := range moved.Fields {
		f := &moved.Fields[i]
		f.Line, f.Column = 0, 0
		switch first, _, _ := strings.Cut(strings.TrimPrefix(f.Pointer, "/"), "/"); first {
		case "input", "priority", "labels":
			f.Pointer = base + f.Pointer
		default:
			f.Pointer = base + "/definition" + strings.TrimPrefix(f.Pointer, "/definition")
		}
	}
	return &moved
}
