package node_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/everystore"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
)

// F342: a schedule that names a stored definition makes its jobs from the version that is current when it makes them, or from
// the one that it names, and no version that a schedule uses is deleted.
func TestSchedulesNameStoredDefinitions(t *testing.T) {
	everystore.Run(t, func(t *testing.T, store kernel.Store) {
		n := start(t, store, node.Config{})
		for version, agent := range []string{"one", "two", "three"} {
			body := fmt.Sprintf("type: report\nkey: own-${input.day}\ninput: {day: none, size: 7}\nsteps: {a: {agent: %s, with: {day: \"${input.day}\", size: \"${input.size}\"}}}\n", agent)
			if v, _, err := n.PutDefinition(t.Context(), "report", []byte(body), "application/yaml", "ann"); err != nil || v.Version != version+1 {
				t.Fatal(v, err)
			}
		}
		put := func(name, definition string) (*operate.ScheduleView, error) {
			v, _, err := n.PutSchedule(t.Context(), operate.ScheduleRequest{Name: name, Author: "ann", ScheduleSettings: operate.ScheduleSettings{Cron: operate.ScheduleCron{"0 0 1 1 *"},
				Job: operate.ScheduleJob{Definition: json.RawMessage(definition), Input: json.RawMessage(`{"day":"${schedule.time}","size":7}`), Labels: map[string]string{"by": "${schedule.name}"}}}})
			return v, err
		}
		for _, name := range []string{"nightly", "pinned"} {
			definition := `"report"`
			if name == "pinned" {
				definition = `"report@2"`
			}
			if v, err := put(name, definition); err != nil || string(v.Job.Definition) != definition {
				t.Fatalf("%s: %+v, %v", name, v, err)
			}
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		trigger := func(name, from, agent string) {
			t.Helper()
			at = at.Add(time.Second)
			fired, err := n.TriggerSchedule(t.Context(), operate.ScheduleTrigger{Name: name, At: at, Author: "ann"})
			if err != nil || !fired.Created {
				t.Fatalf("%s: %+v, %v", name, fired, err)
			}
			v, err := n.Job(t.Context(), fired.Job.String(), 0)
			if err != nil || v.MadeFrom != from || v.Steps[0].Agent != agent || v.Labels["by"] != name || v.Key != "@schedule:"+name+":"+at.Format("2006-01-02T15:04:05Z") {
				t.Fatalf("%s: %+v, %v; want %s", name, v, err, from)
			}
			if want := fmt.Sprintf(`{"day":"%s","size":7}`, at.Format(time.RFC3339)); string(v.Input) != want {
				t.Errorf("%s: the input %s, want %s", name, v.Input, want)
			}
		}
		trigger("nightly", "report@1", "one")
		trigger("pinned", "report@2", "two")
		if _, err := n.PromoteDefinition(t.Context(), "report", 3, "ann"); err != nil {
			t.Fatal(err)
		}
		trigger("nightly", "report@3", "three")
		trigger("pinned", "report@2", "two")
		if _, err := n.PromoteDefinition(t.Context(), "report", 1, "ann"); err != nil {
			t.Fatal(err)
		}
		trigger("nightly", "report@1", "one")

		conflict := func(ref string) {
			t.Helper()
			if err := n.DeleteDefinition(t.Context(), ref, "ann"); perdure.CodeOf(err) != perdure.CodeConflict {
				t.Errorf("%s is deleted: %v", ref, err)
			}
		}
		conflict("report@2")
		conflict("report@1")
		conflict("report")
		if err := n.DeleteDefinition(t.Context(), "report@3", "ann"); err != nil {
			t.Errorf("a version that no schedule uses: %v", err)
		}
		if err := n.DeleteSchedule(t.Context(), "pinned", "ann"); err != nil {
			t.Fatal(err)
		}
		if err := n.DeleteDefinition(t.Context(), "report@2", "ann"); err != nil {
			t.Errorf("a version that no schedule uses any more: %v", err)
		}
		conflict("report")
		if _, err := put("nightly", `"type: t\nsteps: {a: {agent: x}}\n"`); err != nil { // the text of a job file
			t.Fatal(err)
		}
		if err := n.DeleteDefinition(t.Context(), "report", "ann"); err != nil {
			t.Error(err)
		}
		for _, ref := range []string{`"report"`, `"report@9"`} {
			if _, err := put("late", ref); perdure.CodeOf(err) != perdure.CodeNotFound {
				t.Errorf("%s, which does not exist: %v", ref, err)
			}
		}
	})
}
