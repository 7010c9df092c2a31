package tracing

import (
	"context"
	"encoding/json"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

func raw(list [][]byte) []json.RawMessage {
	all := make([]json.RawMessage, len(list))
	for i := range list {
		all[i] = list[i]
	}
	return all
}

// nowhere is an exporter that throws spans away.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                        { return nil }

// BenchmarkJob runs jobs with one step without traces, with a tracer that samples no job, and with one that samples each.
func BenchmarkJob(b *testing.B) {
	for _, c := range []struct {
		name    string
		sampler sdk.Sampler
	}{{"off", nil}, {"unsampled", sdk.NeverSample()}, {"sampled", sdk.AlwaysSample()}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := node.Config{Agents: []*perdure.Agent{(&bank{parents: map[string]string{}}).agent()}}
			if c.sampler != nil {
				tracer, err := newTracer(Config{}, nowhere{}, c.sampler)
				if err != nil {
					b.Fatal(err)
				}
				cfg.Tracer = tracer
			}
			n := node.New(memory.New(), cfg)
			if err := n.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer n.Stop(context.Background())
			body := json.RawMessage(`{"type":"t","steps":{"charge":{"agent":"bank","with":1}}}`)
			b.ResetTimer()
			for done := 0; done < b.N; {
				list := make([]json.RawMessage, min(500, b.N-done))
				for i := range list {
					list[i] = body
				}
				got, err := n.SubmitAll(b.Context(), nil, list)
				if err != nil {
					b.Fatal(err)
				}
				for i := range got {
					if _, err := perdure.Wait(b.Context(), n, got[i].ID.String()); err != nil {
						b.Fatal(err)
					}
				}
				done += len(list)
			}
		})
	}
}
