package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/env"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// A node that keeps artifacts accepts a value that refers to some only if each is stored, and has the size that the value names.
// The check also renews the time of old artifacts, so that none is deleted before the use is committed (internal/artifacts).

// artifactKeeper is a backend that deletes unused artifacts.
type artifactKeeper interface {
	KeepArtifact(ctx context.Context, hash string) (size int64, err error)
}

// keepAtOnce is how many artifacts one call checks at once. A check is a request or two to an object store.
const keepAtOnce = 32

// A node remembers the artifacts that it has checked, for a while. So a repeated call goes on where the last one has ended, whose
// time may have been too short for all of its artifacts. This is safe: an artifact is kept for much longer after a check than
// keptFor and the time of a call (artifacts.Age, artifacts.RenewAfter).
const (
	keptFor   = 10 * time.Minute
	keptBytes = 8 << 20 // of memory
	keptSize  = 256     // of one artifact in memory, about
)

// kept is an artifact that was checked.
type kept struct {
	size int64
	at   time.Time // by the wall clock, which goes on while the machine sleeps; zero: it was moved aside since
}

type keptArtifacts = lru.Cache[string, kept]

func newKept() *keptArtifacts {
	return lru.New[string](keptBytes, func(kept) int { return keptSize })
}

// artifactUse is a place in a request that refers to an artifact.
type artifactUse struct {
	hash string
	size int64         // or anySize
	at   func() string // returns the pointer of the place
}

// anySize is the size of an artifact whose size is not known.
const anySize = -1

// stored returns the sizes of those of the artifacts that are stored, and keeps these. The result is nil if this node keeps no
// artifacts: then nothing is known of them.
func (svc *Service) stored(ctx context.Context, uses []artifactUse) (sizes map[string]int64, err error) {
	keeper, ok := svc.Artifacts.(artifactKeeper)
	if !ok {
		return nil, nil
	}
	sizes = map[string]int64{}
	var unchecked []string
	now := svc.Env.Wall()
	for _, u := range uses {
		k, known := svc.kept.Get(u.hash)
		if age := now.Sub(k.at); known && age >= 0 && age < keptFor && (u.size == anySize || u.size == k.size) {
			sizes[u.hash] = k.size
		} else {
			unchecked = append(unchecked, u.hash)
		}
	}
	slices.Sort(unchecked)
	unchecked = slices.Compact(unchecked)
	var mu sync.Mutex // of the variables from here on
	next, failed := 0, error(nil)
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		for next < len(unchecked) && failed == nil {
			hash := unchecked[next]
			next++
			mu.Unlock()
			size, err := keeper.KeepArtifact(ctx, hash)
			mu.Lock()
			switch {
			case err == nil:
				sizes[hash] = size
				svc.kept.Put(hash, kept{size, now})
			case perdure.CodeOf(err) != perdure.CodeNotFound:
				failed = err
			}
		}
	}
	env.Start(svc.Env, slices.Repeat([]func(){check}, min(len(unchecked), keepAtOnce))...)()
	return sizes, failed
}

// refuse returns an error if one of the artifacts is not stored, or has another size. sizes is the result of stored.
func refuse(uses []artifactUse, sizes map[string]int64) error {
	if sizes == nil {
		return nil
	}
	for _, u := range uses {
		has, ok := sizes[u.hash]
		var e *perdure.Error
		pointer := ""
		switch {
		case !ok:
			e = perdure.Refuse(perdure.CodeInvalid, "the artifact %s is not stored", u.hash)
			e.Hint, pointer = "store it first: perdure artifacts put FILE", u.at()
		case u.size != anySize && has != u.size:
			e = perdure.Refuse(perdure.CodeInvalid, "the artifact %s has %d bytes, not %d", u.hash, has, u.size)
			e.Hint, pointer = "perdure artifacts put FILE -o json prints the reference to an artifact, with its size", u.at()+"/size"
		default:
			continue
		}
		e.Fields = []perdure.FieldError{{Pointer: pointer, Message: e.Message, Hint: e.Hint}}
		return e
	}
	return nil
}

// keep returns an error if one of the artifacts is not stored, or has another size.
func (svc *Service) keep(ctx context.Context, uses []artifactUse) error {
	sizes, err := svc.stored(ctx, uses)
	if err != nil {
		return err
	}
	return refuse(uses, sizes)
}

// keepPlan returns an error if an artifact to which a submission refers is not stored.
func (svc *Service) keepPlan(ctx context.Context, plan *kernel.Plan) error {
	if len(plan.Artifacts) == 0 && len(plan.Definition.Input) == 0 {
		return nil
	}
	in, err := plain.Artifacts(plan.Definition.Input)
	if err != nil {
		return perdure.Refuse(perdure.CodeInvalid, "input: %v", err)
	}
	if n := len(in) + len(plan.Artifacts); n > plain.MaxArtifacts {
		return perdure.Refuse(perdure.CodeTooLarge, "a job with %d artifacts; at most %d", n, plain.MaxArtifacts)
	}
	uses := usesIn(in, "/input")
	sizes := map[string]int64{}
	if len(plan.Artifacts) > 0 {
		of, _ := plain.Artifacts(plan.Text) // with an error, the sizes are not compared: the steps refuse what they cannot read
		for _, a := range of {
			sizes[a.Hash] = a.Size
		}
	}
	for _, h := range plan.Artifacts {
		hash, size := h.String(), int64(anySize)
		if n, known := sizes[hash]; known {
			size = n
		}
		uses = append(uses, artifactUse{hash, size, func() string { return cmp.Or(plain.FindArtifact(plan.Text, hash), "/steps") }})
	}
	return svc.keep(ctx, uses)
}

// usesIn returns the uses of artifacts in a value. at is the pointer of the value.
func usesIn(found []plain.Artifact, at string) (uses []artifactUse) {
	for _, a := range found {
		uses = append(uses, artifactUse{a.Hash, a.Size, func() string { return at + a.Pointer }})
	}
	return uses
}

// usesOf returns the uses of artifacts in a value; none if it has one in a wrong form: the reader of the value refuses it.
func usesOf(value []byte, at string) []artifactUse {
	found, err := plain.Artifacts(value)
	if err != nil {
		return nil
	}
	return usesIn(found, at)
}

// codeArtifactMissing is the code of a run whose output refers to an artifact that is not stored, or has another size.
const codeArtifactMissing = "artifactMissing"

// keepOutputs checks the artifacts of outputs. A report with an artifact that is not stored becomes that of a failed run: the
// step is not done without it. With another error, the reports are to be sent again.
func (svc *Service) keepOutputs(ctx context.Context, reports []protocol.Report) ([]protocol.Report, error) {
	uses := make([][]artifactUse, len(reports))
	for i := range reports {
		if reports[i].Outcome == perdure.OutcomeDone {
			uses[i] = usesOf(reports[i].Output, "/output")
		}
	}
	sizes, err := svc.stored(ctx, slices.Concat(uses...))
	if err != nil {
		return nil, err
	}
	changed := false
	for i := range reports {
		var refusal *perdure.Error
		if !errors.As(refuse(uses[i], sizes), &refusal) {
			continue
		}
		if !changed {
			reports, changed = slices.Clone(reports), true
		}
		rep := &reports[i]
		rep.Outcome, rep.Output = perdure.OutcomeFailed, nil
		rep.Error = &perdure.RunError{Code: codeArtifactMissing, Message: fmt.Sprintf("%s: %s", refusal.Fields[0].Pointer, refusal.Message)}
	}
	return reports, nil
}
