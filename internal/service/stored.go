package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/protocol"
)

// A node that keeps artifacts accepts a value that refers to some only if each is stored, and has the size that the value names.
// The check also renews the time of old artifacts, so that none is deleted before the use is committed (internal/artifacts).

// artifactKeeper is a backend that deletes unused artifacts.
type artifactKeeper interface {
	KeepArtifact(ctx context.Context, hash string) (size int64, err error)
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
	for _, a := range in {
		if err := svc.keep(ctx, a.Hash, a.Size, func() string { return "/input" + a.Pointer }); err != nil {
			return err
		}
	}
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
		if err := svc.keep(ctx, hash, size, func() string { return cmp.Or(plain.FindArtifact(plan.Text, hash), "/steps") }); err != nil {
			return err
		}
	}
	return nil
}

// keepValue returns an error if an artifact to which a value refers is not stored. at is the pointer of the value.
func (svc *Service) keepValue(ctx context.Context, value []byte, at string) error {
	found, err := plain.Artifacts(value)
	if err != nil {
		return nil // the reader of the value refuses it
	}
	for _, a := range found {
		if err := svc.keep(ctx, a.Hash, a.Size, func() string { return at + a.Pointer }); err != nil {
			return err
		}
	}
	return nil
}

// anySize is the size of an artifact whose size is not known.
const anySize = -1

// keep returns an error if an artifact is not stored, or has another size than size. at returns the pointer of the value that
// refers to it.
func (svc *Service) keep(ctx context.Context, hash string, size int64, at func() string) error {
	keeper, ok := svc.Artifacts.(artifactKeeper)
	if !ok {
		return nil
	}
	has, err := keeper.KeepArtifact(ctx, hash)
	var e *perdure.Error
	pointer := ""
	switch {
	case perdure.CodeOf(err) == perdure.CodeNotFound:
		e = perdure.Refuse(perdure.CodeInvalid, "the artifact %s is not stored", hash)
		e.Hint, pointer = "store it first: perdure artifacts put FILE", at()
	case err != nil:
		return err
	case size != anySize && has != size:
		e = perdure.Refuse(perdure.CodeInvalid, "the artifact %s has %d bytes, not %d", hash, has, size)
		e.Hint, pointer = "perdure artifacts put FILE -o json prints the reference to an artifact, with its size", at()+"/size"
	default:
		return nil
	}
	e.Fields = []perdure.FieldError{{Pointer: pointer, Message: e.Message, Hint: e.Hint}}
	return e
}

// codeArtifactMissing is the code of a run whose output refers to an artifact that is not stored, or has another size.
const codeArtifactMissing = "artifactMissing"

// keepOutputs checks the artifacts of outputs. A report with an artifact that is not stored becomes that of a failed run: the
// step is not done without it.
func (svc *Service) keepOutputs(ctx context.Context, reports []protocol.Report) ([]protocol.Report, error) {
	changed := false
	for i := range reports {
		if reports[i].Outcome != perdure.OutcomeDone {
			continue
		}
		err := svc.keepValue(ctx, reports[i].Output, "/output")
		refusal := (*perdure.Error)(nil)
		switch {
		case err == nil:
			continue
		case !errors.As(err, &refusal) || refusal.Code != perdure.CodeInvalid:
			return nil, err // the reports are sent again
		}
		if !changed {
			reports, changed = append([]protocol.Report(nil), reports...), true
		}
		rep := &reports[i]
		rep.Outcome, rep.Output = perdure.OutcomeFailed, nil
		rep.Error = &perdure.RunError{Code: codeArtifactMissing, Message: fmt.Sprintf("%s: %s", refusal.Fields[0].Pointer, refusal.Message)}
	}
	return reports, nil
}
