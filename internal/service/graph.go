package service

import (
	"context"
	"encoding/hex"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/graph"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/operate"
)

// graphCacheBytes bounds the memory for drawings.
const graphCacheBytes = 16 << 20

// Sizes of the parts of a drawing in memory, or as text, about.
const (
	graphNodeRoom = 256
	graphEdgeRoom = 160
)

// graphs keeps drawings. They are made one at a time, so that drawing takes at most one processor.
type graphs struct {
	lock env.Lock
	made *lru.Cache[kernel.ShapeID, *operate.Graph]
}

func newGraphs() *graphs {
	return &graphs{lock: env.NewLock(), made: lru.New[kernel.ShapeID](graphCacheBytes, func(g *operate.Graph) int {
		return len(g.Nodes)*graphNodeRoom + len(g.Edges)*graphEdgeRoom
	})}
}

// Graph implements operate.Service.
func (svc *Service) Graph(ctx context.Context, ref string) (*operate.Graph, error) {
	return onceMade(ctx, svc, ref, 0, func(ctx context.Context, id perdure.JobID) (*operate.Graph, error) {
		j, _, err := svc.Store.Job(ctx, id, 0)
		if err != nil {
			return nil, Unreachable(err)
		}
		if j == nil {
			return nil, noJob(id)
		}
		return svc.graphOf(ctx, j.Shape)
	})
}

// ShapeGraph implements operate.Service.
func (svc *Service) ShapeGraph(ctx context.Context, hash string) (*operate.Graph, error) {
	var id kernel.ShapeID
	if n, err := hex.Decode(id[:], []byte(hash)); len(hash) != 2*len(id) || err != nil || n != len(id) {
		return nil, perdure.Refuse(perdure.CodeNotFound, "%q is not the hash of a definition: it has %d hexadecimal digits", hash, 2*len(id))
	}
	return svc.graphOf(ctx, id)
}

func (svc *Service) graphOf(ctx context.Context, id kernel.ShapeID) (*operate.Graph, error) {
	return svc.drawn(ctx, id, func() (*kernel.Shape, error) { return svc.Scheduler.ShapeByID(ctx, id) })
}

// drawn returns the drawing of a shape. If it is not kept, shape returns what is to be drawn.
func (svc *Service) drawn(ctx context.Context, id kernel.ShapeID, shape func() (*kernel.Shape, error)) (*operate.Graph, error) {
	g, ok := svc.graphs.made.Get(id)
	if !ok {
		if !svc.graphs.lock.Acquire(ctx, svc.Env) {
			return nil, ctx.Err()
		}
		defer svc.graphs.lock.Release()
		if g, ok = svc.graphs.made.Get(id); !ok {
			it, err := shape()
			if err != nil {
				return nil, Unreachable(err)
			}
			g = graph.Of(it)
			svc.graphs.made.Put(id, g)
		}
	}
	if err := admission.Ask(ctx, len(g.Nodes)*graphNodeRoom+len(g.Edges)*graphEdgeRoom); err != nil {
		return nil, err
	}
	return g, nil
}
