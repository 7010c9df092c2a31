package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Artifacts keeps bytes that are larger than an input or output, by their SHA-256. A value of a job refers to one as
// {"$artifact": "sha256:…", "size": 52428800, "type": "image/png"}.
type Artifacts interface {
	// UploadArtifact stores bytes of an artifact from an offset on, which is not beyond those that this node has received.
	// The artifact is there when all are received and have the hash. An upload without bytes reads how far the artifact is.
	UploadArtifact(context.Context, ArtifactUpload) (*ArtifactState, error)
	// OpenArtifact reads an artifact. A reader should compare what it has read with the hash.
	OpenArtifact(ctx context.Context, hash string) (ArtifactReader, error)
}

// Bounds of artifacts.
const (
	MaxArtifactBytes = plain.MaxArtifactBytes
	artifactPrefix   = plain.ArtifactHashPrefix
	uploadTries      = 6
	uploadPause      = 500 * time.Millisecond // before the second try; twice as long before each further one
)

// ArtifactUpload is a part of an artifact, or all of it.
type ArtifactUpload struct {
	Hash   string // sha256: and 64 hexadecimal digits
	Size   int64  // of the artifact
	Offset int64  // of the first byte of Body
	Body   io.Reader
	Length int64 // of Body; 0: only read the state
}

// ArtifactState says how far an artifact is. It is complete if Next is Size.
type ArtifactState struct {
	Artifact string `json:"artifact"`
	Size     int64  `json:"size"`
	Next     int64  `json:"next"` // offset of the next byte that is needed
	Created  bool   `json:"-"`    // the upload has completed it
}

// ArtifactReader reads an artifact of which Size is the length.
type ArtifactReader interface {
	io.ReadSeekCloser
	Size() int64
}

// CheckArtifact returns an error with CodeInvalid if a text is not the hash of an artifact.
func CheckArtifact(hash string) error {
	if !plain.IsArtifactHash(hash) {
		e := perdure.Refuse(perdure.CodeInvalid, "the name of an artifact is sha256: and 64 hexadecimal digits")
		e.Fields = []perdure.FieldError{{Pointer: "/path/hash", Message: e.Message}}
		return e
	}
	return nil
}

// Check returns an error if the upload cannot be one.
func (u *ArtifactUpload) Check() error {
	switch {
	case u.Size > MaxArtifactBytes:
		return perdure.Refuse(perdure.CodeTooLarge, "an artifact has at most %d bytes", int64(MaxArtifactBytes))
	case u.Size < 0 || u.Offset < 0 || u.Length < 0 || u.Offset+u.Length > u.Size:
		return perdure.Refuse(perdure.CodeInvalid, "the range is not within the %d bytes of the artifact", u.Size)
	}
	return CheckArtifact(u.Hash)
}

// HashArtifact returns the name and the size of an artifact with this content.
func HashArtifact(content io.Reader) (hash string, size int64, err error) {
	h := sha256.New()
	size, err = io.Copy(h, content)
	return artifactPrefix + hex.EncodeToString(h.Sum(nil)), size, err
}

// PutArtifact stores an artifact. If a call fails because its connection or the node does, PutArtifact goes on where it
// ended, a bounded number of times.
func PutArtifact(ctx context.Context, svc Artifacts, content io.ReadSeeker) (*ArtifactState, error) {
	hash, size, err := HashArtifact(content)
	if err != nil {
		return nil, fmt.Errorf("reading the content: %w", err)
	}
	u := ArtifactUpload{Hash: hash, Size: size}
	if err := u.Check(); err != nil {
		return nil, err
	}
	for try := range uploadTries {
		if try > 0 {
			select {
			case <-time.After(uploadPause << (try - 1)):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var s *ArtifactState
		if s, err = svc.UploadArtifact(ctx, u); err == nil && s.Next < size {
			rest := u
			rest.Offset, rest.Length = s.Next, size-s.Next
			if _, err := content.Seek(s.Next, io.SeekStart); err != nil {
				return nil, fmt.Errorf("reading the content: %w", err)
			}
			rest.Body = io.LimitReader(content, rest.Length)
			s, err = svc.UploadArtifact(ctx, rest)
		}
		var refusal *perdure.Error
		switch {
		case err == nil && s.Next == size:
			return s, nil
		case errors.As(err, &refusal) && refusal.Code != perdure.CodeUnavailable && refusal.Code != perdure.CodeConflict && refusal.Code != perdure.CodeTooManyRequests && refusal.Code != perdure.CodeMalformed:
			return nil, err
		}
	}
	if err == nil {
		err = perdure.Refuse(perdure.CodeUnavailable, "the upload does not come to its end")
	}
	return nil, err
}
