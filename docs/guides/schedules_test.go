package guides

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/operate"
	"github.com/perdure/perdure/store/memory"
)

// show: nightly
func nightly() operate.ScheduleRequest {
	within, most := perdure.Duration(48*time.Hour), 2
	return operate.ScheduleRequest{Name: "nightly", Author: "setup", ScheduleSettings: operate.ScheduleSettings{
		Cron:     operate.ScheduleCron{"30 2 * * *"},
		Timezone: "Europe/Warsaw",
		CatchUp:  &operate.ScheduleCatchUp{Within: &within, Max: &most},
		Overlap:  operate.OverlapQueue, // the second one waits until the first is done
		Job: operate.ScheduleJob{
			Definition: json.RawMessage(`{"type": "report", "steps": {"make": {"agent": "reports", "with": "${input}"}}}`),
			Input:      json.RawMessage(`{"until": "${schedule.time}", "since": "${schedule.previous}"}`),
		},
	}}
}

// end

// Reports are made each night. Then no node is up for six nights: the latest two of them are caught up, the others are
// recorded, and none is made twice.
func TestScheduleGuide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := context.Background(), memory.New()
		var made []string
		reports := func() *perdure.Agent {
			a := perdure.NewAgent("reports")
			a.HandleAny(func(_ context.Context, run *perdure.Run) (json.RawMessage, error) {
				made = append(made, string(run.Input))
				return nil, nil
			})
			return a
		}
		up := func() (server *node.Node, stop func()) {
			server = node.New(store, node.Config{Agents: []*perdure.Agent{reports()}})
			if err := server.Start(ctx); err != nil {
				t.Fatal(err)
			}
			return server, func() {
				if err := server.Stop(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		server, stop := up()
		// show: put
		schedule, created, err := server.PutSchedule(ctx, nightly())
		// end
		if err != nil || !created || len(schedule.Next) == 0 || !schedule.Next[0].Equal(time.Date(2000, 1, 1, 1, 30, 0, 0, time.UTC)) {
			t.Fatalf("%+v, %v, %v", schedule, created, err)
		}
		time.Sleep(24 * time.Hour)
		stop()
		time.Sleep(6 * 24 * time.Hour)
		server, stop = up()
		defer func() { stop() }()
		time.Sleep(time.Minute)
		report := func(until, since string) string {
			return fmt.Sprintf(`{"since":"%sT01:30:00Z","until":"2000-01-%sT01:30:00Z"}`, since, until)
		}
		want := []string{report("01", "1999-12-31"), report("06", "2000-01-05"), report("07", "2000-01-06")}
		if slices.Sort(made); !slices.Equal(made, want) {
			t.Errorf("made %q, want %q", made, want)
		}
		v, err := server.GetSchedule(ctx, "nightly")
		if err != nil || v.Skipped.CatchUp != 4 {
			t.Errorf("%+v, %v", v, err)
		}
		if job, err := server.Job(ctx, "@schedule:nightly:2000-01-07T01:30:00Z", 0); err != nil || job.Current != perdure.Done {
			t.Errorf("%+v, %v", job, err)
		}
	})
}
