package storetest

import (
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

// Filters returns a filter of jobs for each field, and for each pair of fields, by name.
func Filters() map[string]kernel.JobFilter {
	type field struct {
		name string
		set  func(*kernel.JobFilter)
	}
	var fields []field
	for _, p := range []perdure.Phase{perdure.Settled, perdure.Waiting, perdure.Running, perdure.Parked} {
		fields = append(fields, field{"phase " + p.String(), func(f *kernel.JobFilter) { f.Phases = append(f.Phases, p) }})
	}
	for _, s := range []perdure.State{perdure.Undone, perdure.Done, perdure.Unsure} {
		fields = append(fields, field{"current " + s.String(), func(f *kernel.JobFilter) { f.Current = &s }})
	}
	for _, s := range []perdure.State{perdure.Undone, perdure.Done} {
		fields = append(fields, field{"desired " + s.String(), func(f *kernel.JobFilter) { f.Desired = &s }})
	}
	fields = append(fields,
		field{"none", func(*kernel.JobFilter) {}},
		field{"type", func(f *kernel.JobFilter) { f.Type = "order" }},
		field{"key", func(f *kernel.JobFilter) { f.Key = "k" }},
		field{"label", func(f *kernel.JobFilter) { f.Labels = map[string]string{"zone": "eu"} }},
		field{"labels", func(f *kernel.JobFilter) { f.Labels = map[string]string{"zone": "eu", "n": "1"} }},
		field{"agent", func(f *kernel.JobFilter) { f.Agent = "http" }},
		field{"step", func(f *kernel.JobFilter) { f.Step = "charge" }},
		field{"error", func(f *kernel.JobFilter) { f.ErrorCode = "503" }},
		field{"alert", func(f *kernel.JobFilter) { f.Alert = perdure.AlertParked }},
		field{"before", func(f *kernel.JobFilter) { f.Before = id(5) }},
		field{"after", func(f *kernel.JobFilter) { f.After = id(1) }},
		field{"oldest first", func(f *kernel.JobFilter) { f.Ascending = true }},
	)
	filters := map[string]kernel.JobFilter{}
	for i, a := range fields {
		for _, b := range fields[i:] {
			f := kernel.JobFilter{MaxRead: 20_000}
			a.set(&f)
			if b.name != a.name {
				b.set(&f)
			}
			filters[fmt.Sprintf("%s, %s", a.name, b.name)] = f
		}
	}
	return filters
}
