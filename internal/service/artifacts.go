package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
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
	content, err := svc.Artifacts.OpenArtifact(ctx, hash)
	mender, ok := svc.Artifacts.(artifactMender)
	if err != nil || !ok {
		return content, err
	}
	return &checkedArtifact{ArtifactReader: content, sum: sha256.New(), differs: func(got string) {
		svc.setAside(ctx, mender, hash, got)
	}, hash: hash}, nil
}

// artifactMender is a backend that can move damaged artifacts aside, so that they can be stored again. SetAside reads the
// artifact, and does so only if its bytes have another hash.
type artifactMender interface {
	SetAside(ctx context.Context, hash string) (bool, error)
}

func (svc *Service) setAside(ctx context.Context, mender artifactMender, hash, got string) {
	aside, err := mender.SetAside(ctx, hash)
	switch {
	case err != nil:
		svc.Log.WarnContext(ctx, "damaged artifact not moved aside", "artifact", hash, "error", err)
	case aside:
		svc.kept.Put(hash, kept{})
		svc.Log.ErrorContext(ctx, "artifact damaged; moved aside", "artifact", hash, "hash", got, "action", "store it again: perdure artifacts put FILE")
	}
}

// checkedArtifact compares the bytes of an artifact with its hash, if all of them are read in their order. Its last bytes are
// returned when differs has returned.
type checkedArtifact struct {
	operate.ArtifactReader
	hash    string
	at      int64 // of the next Read
	summed  int64 // so many bytes from the begin on are in sum
	sum     hash.Hash
	differs func(got string)
}

func (c *checkedArtifact) Read(b []byte) (int, error) {
	n, err := c.ArtifactReader.Read(b)
	if n > 0 && c.at == c.summed {
		_, _ = c.sum.Write(b[:n]) // it never fails
		if c.summed += int64(n); c.summed == c.Size() {
			if got := plain.ArtifactHashPrefix + hex.EncodeToString(c.sum.Sum(nil)); got != c.hash {
				c.differs(got)
			}
		}
	}
	c.at += int64(n)
	return n, err
}

func (c *checkedArtifact) Seek(offset int64, whence int) (int64, error) {
	at, err := c.ArtifactReader.Seek(offset, whence)
	if err == nil {
		c.at = at
	}
	return at, err
}
