package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// ArtifactHash names an artifact: the SHA-256 of its bytes.
type ArtifactHash [sha256.Size]byte

// String returns the name as callers write it: sha256: and 64 hexadecimal digits.
func (h ArtifactHash) String() string { return plain.ArtifactHashPrefix + hex.EncodeToString(h[:]) }

// ParseArtifactHash reads the name of an artifact.
func ParseArtifactHash(s string) (h ArtifactHash, err error) {
	if !plain.IsArtifactHash(s) {
		return h, fmt.Errorf("%q is not the name of an artifact", s)
	}
	_, err = hex.Decode(h[:], []byte(strings.TrimPrefix(s, plain.ArtifactHashPrefix)))
	return h, err
}

// ArtifactsIn returns the artifacts to which a JSON value refers.
func ArtifactsIn(value []byte) (all []ArtifactHash) {
	for _, name := range plain.ArtifactHashes(value) {
		if h, err := ParseArtifactHash(name); err == nil {
			all = append(all, h)
		}
	}
	return all
}

// ArtifactUse records that a value of a job refers to an artifact: its definition, its input, or an input or output of one of
// its steps. It lasts as long as the job, even if the value is replaced. Values that are rendered from these are not searched.
type ArtifactUse struct {
	Job  perdure.JobID
	Hash ArtifactHash
}

// ArtifactReader reads which artifacts are used.
type ArtifactReader interface {
	// UsedArtifacts returns those of the artifacts that a job uses, in any order.
	UsedArtifacts(context.Context, []ArtifactHash) ([]ArtifactHash, error)
	// ArtifactsOf returns at most max artifacts that a job uses, in the order of their hashes.
	ArtifactsOf(ctx context.Context, job perdure.JobID, max int) ([]ArtifactHash, error)
}

// useArtifacts notes the artifacts of a value. Stores ignore what they have already.
func (c *Changes) useArtifacts(job perdure.JobID, hashes []ArtifactHash) {
	for _, h := range hashes {
		c.ArtifactUses = append(c.ArtifactUses, ArtifactUse{job, h})
	}
}
