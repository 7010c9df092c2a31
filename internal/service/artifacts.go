package service

import (
	"context"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

var errNoArtifacts = &perdure.Error{Code: perdure.CodeUnavailable, Message: "this node keeps no artifacts", Hint: "start each node with --artifacts file:///PATH of a directory that all of them share"}

// UploadArtifact implements operate.Artifacts.
func (svc *Service) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if svc.Artifacts == nil {
		return nil, errNoArtifacts
	}
	return svc.Artifacts.UploadArtifact(ctx, u)
}

// OpenArtifact implements operate.Artifacts.
func (svc *Service) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if svc.Artifacts == nil {
		return nil, errNoArtifacts
	}
	return svc.Artifacts.OpenArtifact(ctx, hash)
}
