package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// summary is a system's figure in a column.
type summary struct {
	median, min, max float64
	n                int
}

func summarise(values []float64) summary {
	if len(values) == 0 {
		return summary{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (mid + v[len(v)/2-1]) / 2
	}
	return summary{median: mid, min: v[0], max: v[len(v)-1], n: len(v)}
}

// values are what a system has reached in a workload, by round. With extra, what was counted beside.
func (r *runner) values(system, workload, extra string) map[int]float64 {
	found := map[int]float64{}
	for _, res := range r.results {
		if res.System != system || res.Workload != workload || res.Fault != "" {
			continue
		}
		if extra == "" {
			found[res.Round] = res.Value
		} else if v, ok := res.Extra[extra]; ok {
			found[res.Round] = v
		}
	}
	return found
}

func all(byRound map[int]float64) (v []float64) {
	for _, x := range byRound {
		v = append(v, x)
	}
	return v
}

// rival is whom a system of ours is measured against in a workload.
func rival(k Kind, peer Kind, workload string) bool {
	if peer.Ours || peer.Brackets {
		return false
	}
	if strings.HasPrefix(k.Name, "perdure-http") && workload != "batch" {
		return peer.Store == "its own" // Restate's: a server of its own, spoken to over HTTP
	}
	if k.Store == "SQLite" {
		return peer.Store == "SQLite"
	}
	return peer.Store != "SQLite"
}

// ratios compares a system of ours with the best peer of each round: more than 1 is better, whatever the
// unit. best is who that was over all rounds.
func (r *runner) ratios(k Kind, w Workload) (ratio summary, best string) {
	better := func(a, b float64) bool { return w.Lower && a < b || !w.Lower && a > b }
	byRound, top := map[int]float64{}, 0.0
	for _, peer := range kinds {
		if !rival(k, peer, w.Name) {
			continue
		}
		theirs := r.values(peer.Name, w.Name, "")
		if len(theirs) == 0 {
			continue
		}
		if v := summarise(all(theirs)).median; best == "" || better(v, top) {
			best, top = peer.Name, v
		}
		for round, v := range theirs {
			if was, ok := byRound[round]; !ok || better(v, was) {
				byRound[round] = v
			}
		}
	}
	var times []float64
	for round, v := range r.values(k.Name, w.Name, "") {
		t, ok := byRound[round]
		switch {
		case !ok || t == 0 || v == 0:
		case w.Lower:
			times = append(times, t/v)
		default:
			times = append(times, v/t)
		}
	}
	return summarise(times), best
}

// report writes everything down, and prints the text.
func (r *runner) report(out io.Writer) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(struct {
		Machine  machine
		Settings []string
		Floor    []Floor
		Results  []Result
	}{thisMachine(r.pg), pgSettings, r.floor, r.results}, "", " ")
	if err != nil {
		return err
	}
	text := r.markdown()
	files := map[string]string{"results.json": string(raw), "report.md": text}
	for name, svg := range r.plots() {
		files[name] = svg
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.out, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, text)
	return err
}

func (r *runner) markdown() string {
	var b strings.Builder
	m := thisMachine(r.pg)
	fmt.Fprintf(&b, "# Perdure and its peers\n\n%s, %d processors (%s), %s, %s, %s. %d rounds, interleaved; %v.\n\n",
		m.When, m.Processors, m.Model, m.Go, m.Kernel, m.Postgres, r.rounds, time.Since(r.began).Round(time.Second))
	b.WriteString("Each figure is the median of the rounds, and [least – most]. Every measurement is a process of its own on an empty\n" +
		"database, and the database says at its end that as many jobs are done as were submitted. In (brackets): gives up a promise\nthat the others keep.\n\n")
	r.table(&b)
	r.ratioTable(&b)
	r.beside(&b)
	r.ours(&b)
	r.floorTable(&b)
	r.settings(&b)
	return b.String()
}

func (r *runner) table(b *strings.Builder) {
	var columns []Workload
	for _, w := range workloads {
		if !w.Ours && slices.ContainsFunc(r.results, func(res Result) bool { return res.Workload == w.Name }) {
			columns = append(columns, w)
		}
	}
	if len(columns) == 0 {
		return
	}
	b.WriteString("| |")
	for _, w := range columns {
		fmt.Fprintf(b, " %s (%s) |", w.Title, w.Unit)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, k := range kinds {
		var cells []string
		any := false
		for _, w := range columns {
			c := r.cell(k, w)
			any = any || c != ""
			cells = append(cells, c)
		}
		if any {
			fmt.Fprintf(b, "| %s | %s |\n", k.Name, strings.Join(cells, " | "))
		}
	}
	b.WriteString("\n")
}

func (r *runner) cell(k Kind, w Workload) string {
	s := summarise(all(r.values(k.Name, w.Name, "")))
	if s.n == 0 {
		for _, res := range r.results {
			if res.System == k.Name && res.Workload == w.Name {
				return "failed"
			}
		}
		return ""
	}
	text := fmt.Sprintf("%s [%s – %s]", figure(s.median), figure(s.min), figure(s.max))
	if w.Name == "idle" {
		text += fmt.Sprintf(", p99 %s", figure(summarise(all(r.values(k.Name, w.Name, "p99"))).median))
	}
	if k.Brackets {
		text = "(" + text + ")"
	}
	return text
}

func (r *runner) ratioTable(b *strings.Builder) {
	var lines []string
	for _, k := range kinds {
		if !k.Ours {
			continue
		}
		for _, w := range workloads {
			if s, best := r.ratios(k, w); s.n > 0 {
				lines = append(lines, fmt.Sprintf("| %s | %s | %s | %.2f | %.2f – %.2f |", k.Name, w.Title, best, s.median, s.min, s.max))
			}
		}
	}
	if len(lines) > 0 {
		b.WriteString("## Against the best peer\n\nTimes as good, round by round.\n\n| | | best peer | median | least – most |\n|---|---|---|---|---|\n" +
			strings.Join(lines, "\n") + "\n\n")
	}
}

// beside is what was counted while the rates were measured.
func (r *runner) beside(b *strings.Builder) {
	var lines []string
	for _, w := range workloads {
		for _, k := range kinds {
			v := func(extra string) string {
				s := summarise(all(r.values(k.Name, w.Name, extra)))
				if s.n == 0 {
					return ""
				}
				return figure(s.median)
			}
			if wal, own := v("WAL bytes/job"), v("own µs/job"); (wal != "" || own != "") && !w.Ours {
				lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", w.Name, k.Name, own, v("PostgreSQL µs/job"), wal, v("insert/s")))
			}
		}
	}
	if len(lines) > 0 {
		b.WriteString("## What a job costs\n\nFrom its submission to its end: processor time of the process that submits and works, and of PostgreSQL; WAL, the checkpoint\nbefore.\n\n" +
			"| | | own µs | PostgreSQL µs | WAL bytes | inserted/s |\n|---|---|---|---|---|---|\n" + strings.Join(lines, "\n") + "\n\n")
	}
}

// ours are the workloads that only Perdure is asked.
func (r *runner) ours(b *strings.Builder) {
	var lines []string
	for _, w := range workloads {
		for _, k := range kinds {
			s := summarise(all(r.values(k.Name, w.Name, "")))
			if !w.Ours || s.n == 0 {
				continue
			}
			names := map[string]bool{}
			for _, res := range r.results {
				if res.System == k.Name && res.Workload == w.Name {
					for name := range res.Extra {
						names[name] = true
					}
				}
			}
			var more []string
			for _, name := range slices.Sorted(mapsKeys(names)) {
				more = append(more, name+" "+figure(summarise(all(r.values(k.Name, w.Name, name))).median))
			}
			lines = append(lines, fmt.Sprintf("| %s | %s | %s [%s – %s] %s | %s |", w.Title, k.Name, figure(s.median), figure(s.min), figure(s.max), w.Unit, strings.Join(more, ", ")))
		}
	}
	if len(lines) > 0 {
		b.WriteString("## A node by itself\n\n| | | | |\n|---|---|---|---|\n" + strings.Join(lines, "\n") + "\n\n")
	}
}

func mapsKeys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (r *runner) floorTable(b *strings.Builder) {
	if len(r.floor) == 0 {
		return
	}
	b.WriteString("## What the machine could do at all\n\n| | |\n|---|---|\n")
	for _, f := range r.floor {
		fmt.Fprintf(b, "| %s | %s %s |\n", f.What, figure(f.Value), f.Unit)
	}
	b.WriteString("\n")
}

func (r *runner) settings(b *strings.Builder) {
	fmt.Fprintf(b, "## Settings\n\nPostgreSQL, for all: %s. Jobs carry %d bytes of input. Batches are of %d jobs, by %d goroutines. GOGC=%d for the process of every Go system.\n\n",
		strings.Join(pgSettings, ", "), len(note)+30, batchSize, batchers, gcPercent)
	versions := versionsOfModules()
	for _, k := range kinds {
		if !slices.Contains(r.systems, k.Name) {
			continue
		}
		if why, not := r.missing[k.Name]; not {
			fmt.Fprintf(b, "- **%s** is left out: %s\n", k.Name, why)
			continue
		}
		fmt.Fprintf(b, "- **%s**%s: %s\n", k.Name, versions(k.Name), strings.Join(k.Settings, "; "))
	}
	for _, res := range r.results {
		if res.Fault != "" {
			fmt.Fprintf(b, "\n**%s, %s, round %d, has failed:** %s\n", res.System, res.Workload, res.Round+1, strings.ReplaceAll(res.Fault, "\n", " "))
		}
	}
}

// versionsOfModules says which version of a peer this program was built with.
func versionsOfModules() func(system string) string {
	info, _ := debug.ReadBuildInfo()
	paths := map[string]string{"river": "github.com/riverqueue/river", "dbos": "github.com/dbos-inc/dbos-transact-golang",
		"goworkflows": "github.com/cschleiden/go-workflows", "asynq": "github.com/hibiken/asynq", "restate": "github.com/restatedev/sdk-go"}
	return func(system string) string {
		name, _, _ := strings.Cut(system, "-")
		if info == nil {
			return ""
		}
		for _, d := range info.Deps {
			if d.Path == paths[name] {
				return " (" + d.Version + ")"
			}
		}
		return ""
	}
}

// figure writes a number with three digits that mean something.
func figure(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		s := fmt.Sprintf("%.0f", v)
		unit := 1.0
		for x := a; x >= 1000; x /= 10 {
			unit *= 10
		}
		s = fmt.Sprintf("%.0f", float64(int64(v/unit+0.5))*unit)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

type machine struct {
	When, Model, Kernel, Go, Postgres string
	Processors                        int
}

func thisMachine(pg *postgres) machine {
	m := machine{When: time.Now().Format("2006-01-02"), Go: runtime.Version(), Processors: runtime.NumCPU(), Kernel: runtime.GOOS}
	if pg != nil {
		m.Postgres = "PostgreSQL " + cmp.Or(strings.Fields(pg.version + " ")[0], "?")
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(rest)
				break
			}
		}
	}
	return m
}
