package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

const (
	topEvery  = 2 * time.Second
	staleTop  = 10 * time.Second // numbers of this age are marked
	topRows   = 20               // rows of a section, where the output is not a terminal
	leastRows = 2                // rows of a section, however low the terminal is
	sparks    = 20               // characters of a sparkline, each for some minutes
)

// overview is what "perdure top" shows: the statistics, and the nodes.
type overview struct {
	*operate.Stats
	Nodes []perdure.NodeView `json:"nodes"`
}

func (a *app) topCmd() *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:        "top",
		SuggestFor: []string{"stats", "status", "overview", "dashboard"},
		Short:      "Show what needs an operator, and why steps wait",
		Long: `Shows the overview of a grid: alerts that need an operator, why steps wait, the last hour, agents, types
and nodes. On a terminal it is redrawn every two seconds until Ctrl-C; elsewhere, with --once, and
with -o json it is printed once.

A node computes the numbers every five seconds, and stores them: this command only reads them. A number
with a + is a lower bound, because counting has stopped at 20,000 rows. A number with a ~ is an estimate.`,
		Example: `  perdure top
  perdure top --once
  perdure top -o json | jq '.reasons[] | select(.reason == "noAgent")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				o, err := readOverview(ctx, t)
				switch {
				case err != nil:
					return err
				case a.json():
					return a.object(o)
				case once || a.tty == nil || os.Getenv("TERM") == "dumb":
					a.printf("%s\n", strings.Join(o.lines(a.st, time.Now(), a.width(), 0), "\n"))
					return nil
				}
				return a.watchOverview(ctx, t, o)
			})
		},
	}
	uses(cmd, "server", "store", "output")
	cmd.Flags().BoolVar(&once, "once", false, "print the overview once, also on a terminal")
	return cmd
}

func readOverview(ctx context.Context, t *target) (*overview, error) {
	stats, err := t.Stats(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := t.ListNodes(ctx)
	return &overview{stats, nodes}, err
}

// width returns the columns of the terminal; 0: stdout is none.
func (a *app) width() int {
	if a.tty == nil {
		return 0
	}
	width, _, err := term.GetSize(int(a.tty.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// watchOverview redraws the overview until the user interrupts it, which is the way to end it.
func (a *app) watchOverview(ctx context.Context, t *target, o *overview) error {
	screen := &live{a: a}
	screen.takeTerminal()
	defer restoreTerminal()
	var failed error
	readAt := time.Now()
	for {
		width, height, err := term.GetSize(int(a.tty.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			width, height = 80, 24
		}
		lines := o.lines(a.st, time.Now(), width, height-2)
		if failed != nil {
			lines = append(lines, clip(a.st.bad(fmt.Sprintf("no answer for %s: %s", span(time.Since(readAt)), plain(failed.Error()))), width))
		}
		screen.paint(lines)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(topEvery):
		}
		next, err := readOverview(ctx, t)
		if ctx.Err() != nil || a.out.broken() {
			return nil
		}
		if failed = err; err == nil {
			o, readAt = next, time.Now()
		}
	}
}

// section is a part of the overview: a heading and rows.
type section struct {
	title string
	rows  []string
	more  int // rows that the statistics leave out
}

// lines draws the overview in at most height lines; 0: without a bound.
func (o *overview) lines(st style, now time.Time, width, height int) []string {
	out := []string{o.heading(st, now), ""}
	if o.AsOf.IsZero() {
		return fitAll(append(out, "There are no statistics yet: a node computes them every five seconds.", "perdure serve starts one."), width)
	}
	if o.empty() {
		out = append(out, "There are no jobs yet. Submit one:", "  perdure submit examples/hello.yaml", "  perdure watch @latest", "  perdure get @latest", "")
	}
	sections := []section{o.operatorSection(st, now), o.reasonSection(st, now), o.hourSection(st), o.agentSection(st, now), o.typeSection(st, now), o.nodeSection(st, now)}
	for i, n := range shareRows(sections, height-len(out)-2*len(sections), height <= 0) {
		s := &sections[i]
		out = append(out, st.bold(s.title))
		hidden := max(len(s.rows)-n, 0)
		if hidden > 0 {
			hidden, n = hidden+1, n-1
		}
		out = append(out, s.rows[:min(n, len(s.rows))]...)
		if hidden += s.more; hidden > 0 {
			out = append(out, st.dim(fmt.Sprintf("  … %d more", hidden)))
		}
		if i < len(sections)-1 {
			out = append(out, "")
		}
	}
	if height > 0 && len(out) > height {
		out = out[:height]
	}
	return fitAll(out, width)
}

// shareRows divides the lines of the terminal among the sections: a section that needs less than the others leaves them its
// rest.
func shareRows(sections []section, lines int, unbounded bool) []int {
	rows := make([]int, len(sections))
	if unbounded {
		for i := range rows {
			rows[i] = min(len(sections[i].rows), topRows)
		}
		return rows
	}
	for i := range rows {
		rows[i] = min(len(sections[i].rows), leastRows)
		lines -= rows[i]
	}
	for grown := true; grown && lines > 0; {
		grown = false
		for i := range rows {
			if lines > 0 && rows[i] < len(sections[i].rows) {
				rows[i]++
				lines--
				grown = true
			}
		}
	}
	return rows
}

func fitAll(lines []string, width int) []string {
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return lines
}

func (o *overview) empty() bool {
	j := &o.Jobs
	return j.Waiting.N+j.Running.N+j.Parked.N+j.Settled.N == 0
}

func (o *overview) heading(st style, now time.Time) string {
	j := &o.Jobs
	text := fmt.Sprintf("%s  %s waiting, %s running, %s parked, %s settled", st.bold("JOBS"), short(j.Waiting), short(j.Running), short(j.Parked), short(j.Settled))
	if o.AsOf.IsZero() {
		return text
	}
	age := max(now.Sub(o.AsOf), 0)
	asOf := fmt.Sprintf("as of %s ago", span(age.Truncate(time.Second)))
	if age > staleTop {
		return text + "   " + st.warn(asOf)
	}
	return text + "   " + st.dim(asOf)
}

func (o *overview) operatorSection(st style, now time.Time) section {
	s := section{title: "NEEDS AN OPERATOR", more: o.AlertsLeftOut}
	tb := rows{}
	for i := range o.Alerts {
		al := &o.Alerts[i]
		what := plain(al.Type)
		if al.Step != "" {
			what += " / " + plain(al.Step)
		}
		kind := plain(string(al.Kind))
		if al.Kind.Holds() {
			kind = st.bad(kind)
		} else {
			kind = st.warn(kind)
		}
		n := number(int64(al.N))
		if o.AlertsCapped {
			n += "+"
		}
		tb.add(right(n), kind, cmp.Or(what, "store"), plain(al.Code), "since "+span(max(now.Sub(al.Oldest), 0)))
	}
	if s.rows = tb.lines(); len(s.rows) == 0 {
		s.rows = []string{"  nothing: there are no open alerts"}
	}
	return s
}

func (o *overview) reasonSection(st style, now time.Time) section {
	s := section{title: "WHY STEPS WAIT", more: o.ReasonsLeftOut}
	tb := rows{}
	for i := range o.Reasons {
		r := &o.Reasons[i]
		text := reasonText(r, now)
		switch r.Reason {
		case perdure.WhyNoAgent:
			text = st.bad(text)
		case perdure.WhyLimit:
			text = st.warn(text)
		}
		tb.add(right(short(operate.Tally{N: r.Steps, Capped: r.Capped})), text)
	}
	if s.rows = tb.lines(); len(s.rows) == 0 {
		s.rows = []string{"  no step waits"}
	}
	return s
}

// reasonText is a reason in a sentence.
func reasonText(r *operate.ReasonStats, now time.Time) string {
	name := plain(r.Name)
	switch r.Reason {
	case perdure.WhyNoAgent:
		if r.LastClaim.IsZero() {
			return "no agent " + name + " has claimed runs in the last day"
		}
		return fmt.Sprintf("no agent %s has claimed runs for %s", name, span(now.Sub(r.LastClaim)))
	case perdure.WhyAgentBusy:
		text := "ready; agent " + name + " has no slot free yet"
		if !r.Oldest.IsZero() {
			text += ", oldest " + span(max(now.Sub(r.Oldest), 0))
		}
		return text
	case perdure.WhyLimit:
		switch {
		case r.Max != nil && *r.Max == 0:
			return "stopped by limit " + name + " = 0"
		case r.Max != nil && r.Used >= *r.Max:
			return fmt.Sprintf("limit %s is full (%d of %d)", name, r.Used, *r.Max)
		case r.PerKey != nil:
			return fmt.Sprintf("limit %s is full for their keys (%d for each)", name, *r.PerKey)
		case r.Rate != "":
			return fmt.Sprintf("limit %s lets %s through", name, plain(r.Rate))
		case r.KeyRate != "":
			return fmt.Sprintf("limit %s lets %s through for each key", name, plain(r.KeyRate))
		}
		return "limit " + name + " has no permit for them"
	case perdure.WhyBackoff:
		return "wait for a retry, next in " + span(max(r.Next.Sub(now), 0))
	case perdure.WhyNotYet:
		return "wait for a time, next in " + span(max(r.Next.Sub(now), 0))
	case perdure.WhyAfterSteps:
		return "wait for other steps, an approval or a signal"
	}
	return strings.TrimSpace(plain(string(r.Reason)) + " " + name)
}

func (o *overview) hourSection(st style) section {
	tb := rows{}
	for _, l := range []struct {
		name   string
		values []int
		style  func(string) string
	}{
		{"submitted", o.Series.Submitted, st.busy}, {"done", o.Series.Done, st.good}, {"undone", o.Series.Undone, st.warn},
		{"parked", o.Series.Parked, st.bad}, {"failed runs", o.Series.Failed, st.bad},
	} {
		sum := 0
		for _, n := range l.values {
			sum += n
		}
		tb.add(l.name, l.style(sparkline(l.values, sparks)), right(short(operate.Tally{N: sum})))
	}
	return section{title: "LAST HOUR", rows: tb.lines()}
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values as bars, each for the sum of some values. A bar of zero is the lowest; no other value is so low.
func sparkline(values []int, width int) string {
	if len(values) == 0 {
		return strings.Repeat(string(bars[0]), width)
	}
	each := (len(values) + width - 1) / width
	var sums []int
	for part := range slices.Chunk(values, each) {
		sum := 0
		for _, n := range part {
			sum += n
		}
		sums = append(sums, sum)
	}
	most := max(slices.Max(sums), 1)
	var b strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + n*(len(bars)-2)/most
		}
		b.WriteRune(bars[min(level, len(bars)-1)])
	}
	return b.String()
}

func (o *overview) agentSection(st style, now time.Time) section {
	s := section{title: "AGENTS", more: o.AgentsLeftOut}
	tb := rows{}
	for i := range o.Agents {
		v := &o.Agents[i]
		running := number(int64(v.Running)) + " running"
		if v.Running == 0 {
			running = "0 running"
		}
		if v.Slots > 0 {
			running = fmt.Sprintf("%d running, %d slots", v.Running, v.Slots)
		}
		ready := ""
		if v.Ready > 0 {
			ready = short(operate.Tally{N: v.Ready, Capped: v.ReadyCapped}) + " ready"
			if !v.OldestReady.IsZero() {
				ready += ", oldest " + span(max(now.Sub(v.OldestReady), 0))
			}
		}
		claims := plural(v.Holders, "holder")
		if v.Holders == 0 {
			claims = "no claims"
			if v.Ready > 0 {
				claims = st.bad(claims)
			}
		}
		tb.add(plain(v.Agent), claims, running, ready, errorsText(v))
	}
	if s.rows = tb.lines(); len(s.rows) == 0 {
		s.rows = []string{"  none has claimed runs in the last day"}
	}
	return s
}

// errorsText lists the failures of an agent in the last hour, the most frequent first.
func errorsText(v *operate.AgentStats) string {
	codes := make([]string, 0, len(v.Errors))
	for code := range v.Errors {
		codes = append(codes, code)
	}
	slices.SortFunc(codes, func(a, b string) int {
		return cmp.Or(cmp.Compare(v.Errors[b], v.Errors[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, code := range codes[:min(len(codes), 3)] {
		list = append(list, fmt.Sprintf("%s %d", cmp.Or(plain(code), "other errors"), v.Errors[code]))
	}
	if v.Refused > 0 {
		list = append(list, fmt.Sprintf("refused %d", v.Refused))
	}
	return strings.Join(list, ", ")
}

func (o *overview) typeSection(st style, now time.Time) section {
	s := section{title: "TYPES", more: o.TypesLeftOut}
	tb := rows{}
	for i := range o.Types {
		v := &o.Types[i]
		var list []string
		count := func(n int, word string, color func(string) string) {
			if n > 0 {
				list = append(list, color(short(operate.Tally{N: n, Capped: o.TypesCapped})+" "+word))
			}
		}
		same := func(text string) string { return text }
		count(v.Waiting, "waiting", same)
		count(v.Running, "running", st.busy)
		count(v.Parked, "parked", st.bad)
		count(v.Undoing, "undoing", st.warn)
		oldest := ""
		if !v.OldestWaiting.IsZero() {
			oldest = "oldest waits " + span(max(now.Sub(v.OldestWaiting), 0))
		}
		tb.add(plain(v.Type), strings.Join(list, ", "), oldest)
	}
	if s.rows = tb.lines(); len(s.rows) == 0 {
		s.rows = []string{"  all jobs are settled"}
	}
	return s
}

func (o *overview) nodeSection(st style, now time.Time) section {
	s := section{title: "NODES"}
	tb := rows{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		state := st.good(plain(string(n.State)))
		if n.State != perdure.NodeAlive {
			state = st.bad(plain(string(n.State)))
		}
		duty := ""
		if len(n.Leads) > 0 {
			duty = "leads " + places(n.Leads)
		}
		if len(n.StandsBy) > 0 {
			duty = strings.TrimPrefix(duty+", stands by for "+places(n.StandsBy), ", ")
		}
		tb.add(plain(n.Host), state, plain(n.Version), "seen "+span(max(now.Sub(n.SeenAt), 0))+" ago", duty)
	}
	if s.rows = tb.lines(); len(s.rows) == 0 {
		s.rows = []string{"  none"}
	}
	return s
}

// rows aligns the cells of a section.
type rows struct{ cells [][]string }

// rightMark marks a cell that is aligned at its right.
const rightMark = "\x00"

func right(s string) string { return rightMark + s }

func (r *rows) add(cells ...string) { r.cells = append(r.cells, cells) }

func (r *rows) lines() (lines []string) {
	var widths []int
	for _, row := range r.cells {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], visible(strings.TrimPrefix(c, rightMark)))
		}
	}
	for _, row := range r.cells {
		var b strings.Builder
		b.WriteString(" ")
		for i, c := range row {
			if widths[i] == 0 {
				continue
			}
			text, atRight := strings.CutPrefix(c, rightMark)
			gap := strings.Repeat(" ", widths[i]-visible(text))
			if atRight {
				text, gap = gap+text, ""
			}
			b.WriteString(" " + text + gap + " ")
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// short formats a count: 912, 48.1k, 1.2M. A + marks a lower bound, and a ~ an estimate.
func short(n operate.Tally) string {
	text := strconv.Itoa(n.N)
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		v := float64(n.N) / unit.size
		if v >= 10 || v >= 1 && n.N >= 10_000 {
			text = strings.TrimSuffix(strconv.FormatFloat(math.Floor(v*10)/10, 'f', 1, 64), ".0") + unit.name
			break
		}
	}
	switch {
	case n.Estimated:
		return "~" + text
	case n.Capped:
		return text + "+"
	}
	return text
}
