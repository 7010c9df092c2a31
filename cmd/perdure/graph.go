package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/graph"
	"github.com/perdure/perdure/operate"
)

func (a *app) graphCmd() *cobra.Command {
	format := "text"
	cmd := &cobra.Command{
		Use:   "graph JOB|FILE",
		Short: "Draw the steps of a job or of a definition",
		Long: `Draws the steps of a job with their states, or those of the definition in FILE (- is stdin).

  -o svg      a picture, for light and dark pages
  -o dot      for Graphviz
  -o mermaid  for Markdown pages
  -o json     boxes and lines, in pixels; of a job with the state of each step
  -o text     a table of steps, in the order of the drawing

A FILE has a name with a dot or a slash, as order.yaml; another argument is a JOB.`,
		Example: `  perdure graph order-1042
  perdure graph order-1042 -o svg > order.svg
  perdure graph order.yaml -o mermaid`,
		Args: argsOf(1, 1, "a JOB or a FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isDefinitionFile(args[0]) {
				docs, err := a.load(args, inputFlags{})
				if err != nil {
					return err
				}
				if len(docs) > 1 {
					return &usageError{msg: args[0] + " has more than one definition", hint: "draw a file with one"}
				}
				return a.printGraph(graph.Of(docs[0].plan.Shape), nil, format)
			}
			return a.withTarget(cmd, func(ctx context.Context, t *target) error {
				g, err := t.Graph(ctx, args[0])
				if err != nil {
					return err
				}
				job, err := t.Job(ctx, args[0], 0)
				if err != nil {
					return err
				}
				return a.printGraph(g, job, format)
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			jobs, _ := a.completeJob(cmd, args, start)
			return jobs, cobra.ShellCompDirectiveDefault
		},
	}
	uses(cmd, "server", "store")
	formats := []string{"text", "svg", "dot", "mermaid", "json"}
	cmd.Flags().VarP(&choice{&format, formats}, "output", "o", "`FORMAT`: text, svg, dot, mermaid or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// isDefinitionFile reports whether an argument names a file, and not a job.
func isDefinitionFile(arg string) bool {
	if arg == "-" || strings.Contains(arg, "/") || slices.ContainsFunc([]string{".yaml", ".yml", ".json"}, func(end string) bool { return strings.HasSuffix(arg, end) }) {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular() && strings.Contains(arg, ".")
}

// printGraph prints a drawing. Without a job, the steps have no states.
func (a *app) printGraph(g *operate.Graph, job *perdure.JobView, format string) error {
	title := "definition"
	if job != nil {
		title = jobTitle(job)
	}
	mark := marksOf(job)
	switch format {
	case "json":
		if mark != nil {
			return a.object(withStates(g, mark))
		}
		return a.object(g)
	case "dot":
		_, err := a.out.Write(graph.DOT(g, title, mark))
		return err
	case "mermaid":
		_, err := a.out.Write(graph.Mermaid(g, mark))
		return err
	case "svg":
		_, err := a.out.Write(graph.SVG(g, title, mark))
		return err
	}
	a.printGraphTable(g, job)
	return nil
}

// jobGraph is a drawing with the states of the steps.
type jobGraph struct {
	*operate.Graph
	Nodes []jobNode `json:"nodes"`
}

type jobNode struct {
	operate.GraphNode
	State string `json:"state"` // as the table has it
}

func withStates(g *operate.Graph, mark func(string) graph.Mark) jobGraph {
	v := jobGraph{Graph: g, Nodes: make([]jobNode, len(g.Nodes))}
	for i, n := range g.Nodes {
		v.Nodes[i] = jobNode{n, mark(n.Name).Word}
	}
	return v
}

func jobTitle(job *perdure.JobView) string {
	if job.Key == "" {
		return job.Type + " " + job.ID.String()
	}
	return job.Type + " " + job.Key
}

// marksOf returns the signs of a job's steps, as get shows them; nil without a job.
func marksOf(job *perdure.JobView) func(string) graph.Mark {
	if job == nil {
		return nil
	}
	steps := make(map[string]graph.Mark, len(job.Steps))
	for i := range job.Steps {
		r := rowOf(job, &job.Steps[i], time.Time{})
		steps[job.Steps[i].Name] = graph.Mark{Sign: r.glyph, Word: r.word, Tone: r.tone}
	}
	return func(step string) graph.Mark { return steps[step] }
}

func (a *app) printGraphTable(g *operate.Graph, job *perdure.JobView) {
	after := make([][]string, len(g.Nodes))
	for _, e := range g.Edges {
		after[e.To] = append(after[e.To], plain(g.Nodes[e.From].Name))
	}
	tb, mark := a.newTable(), marksOf(job)
	head := []string{"STEP", "AGENT", "AFTER"}
	if mark != nil {
		head = append(head, "STATE")
	}
	tb.head(head...)
	for _, i := range graph.Order(g) {
		n := &g.Nodes[i]
		row := []string{plain(n.Name), plain(n.Agent), strings.Join(after[i], ", ")}
		if mark != nil {
			m := mark(n.Name)
			row = append(row, a.st.toned(m.Tone, m.Sign)+" "+plain(m.Word))
		}
		tb.row(row...)
	}
	tb.print(a.out)
	if g.EdgesLeftOut > 0 {
		a.talk("%s left out: the definition has very many", plural(g.EdgesLeftOut, "edge"))
	}
}
