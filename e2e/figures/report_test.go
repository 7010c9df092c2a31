package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// figure is one line of the table.
type figure struct {
	Store  string  `json:"store"`
	Part   string  `json:"part"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Goal   float64 `json:"goal,omitempty"`   // the value must not be larger; 0: no goal
	Detail string  `json:"detail,omitempty"` // how the values of the rounds vary
	Missed bool    `json:"missed,omitempty"`
}

// report collects the figures of all stores.
type report struct {
	jobs    int
	store   string
	figures []figure
}

// add adds a figure, and fails the test if its goal is missed at full size.
func (r *report) add(t *testing.T, f figure) {
	t.Helper()
	r.addJudged(t, f, full())
}

// addJudged adds a figure, and fails the test if its goal is missed and judged.
func (r *report) addJudged(t *testing.T, f figure, judged bool) {
	t.Helper()
	f.Store = r.store
	f.Missed = f.Goal > 0 && f.Value > f.Goal
	r.figures = append(r.figures, f)
	line := fmt.Sprintf("%s, %s: %s %s", f.Store, f.Name, number(f.Value), f.Unit)
	if f.Goal > 0 {
		line += fmt.Sprintf(" (goal: %s)", number(f.Goal))
	}
	if f.Detail != "" {
		line += "; " + f.Detail
	}
	if f.Missed && judged {
		t.Errorf("goal missed: %s", line)
		return
	}
	t.Log(line)
}

// times adds the median of a series of times, in milliseconds, with its other quantiles. The goal is that of the value.
func (r *report) times(t *testing.T, part, name string, goal float64, quantile float64, values []time.Duration) {
	t.Helper()
	slices.Sort(values)
	detail := fmt.Sprintf("%d values: min %s, p50 %s, p95 %s, p99 %s, max %s", len(values), number(ms(values[0])), number(ms(quantileOf(values, 0.5))),
		number(ms(quantileOf(values, 0.95))), number(ms(quantileOf(values, 0.99))), number(ms(values[len(values)-1])))
	r.add(t, figure{Part: part, Name: name, Value: ms(quantileOf(values, quantile)), Unit: "ms", Goal: goal, Detail: detail})
}

// quantileOf returns a quantile of sorted values.
func quantileOf(values []time.Duration, q float64) time.Duration {
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (r *report) write(t *testing.T, dir string) {
	if dir == "" || len(r.figures) == 0 {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	machine := fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	text, err := json.MarshalIndent(map[string]any{"date": time.Now().UTC().Format(time.RFC3339), "machine": machine, "jobs": r.jobs, "figures": r.figures}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var md strings.Builder
	fmt.Fprintf(&md, "%d jobs, %s, %s\n", r.jobs, machine, time.Now().UTC().Format(time.DateOnly))
	for _, store := range []string{"SQLite", "PostgreSQL"} {
		if !slices.ContainsFunc(r.figures, func(f figure) bool { return f.Store == store }) {
			continue
		}
		fmt.Fprintf(&md, "\n%s\n\n| figure | value | goal | rounds |\n|---|---|---|---|\n", store)
		for _, f := range r.figures {
			if f.Store != store {
				continue
			}
			goal := ""
			if f.Goal > 0 {
				goal = number(f.Goal)
			}
			if f.Missed {
				goal += " **missed**"
			}
			fmt.Fprintf(&md, "| %s | %s %s | %s | %s |\n", f.Name, number(f.Value), f.Unit, goal, f.Detail)
		}
	}
	for name, content := range map[string][]byte{"figures.json": append(text, '\n'), "figures.md": []byte(md.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%s\nwritten to %s\n", md.String(), dir)
}
