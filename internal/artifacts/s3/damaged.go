package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/operate"
)

// damagedPrefix begins the keys of artifacts that were moved aside.
func (s *Store) damagedPrefix() string { return s.prefix + "damaged/" }

// SetAside moves an artifact aside if its bytes have another hash than its name, as artifacts.Dir does. It reports whether it
// has done so. The object is deleted under a marker, as a sweep deletes one: a caller that has stored the artifact again
// meanwhile sees the marker, and has to try again.
func (s *Store) SetAside(ctx context.Context, hash string) (bool, error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return false, err
	}
	info, err := s.core.StatObject(ctx, s.bucket, s.object(hash), minio.StatObjectOptions{})
	if err != nil {
		return false, s.unlessGone(ctx, err, hash)
	}
	options := minio.GetObjectOptions{}
	if err := options.SetMatchETag(info.ETag); err != nil {
		return false, s.failed(ctx, err, hash)
	}
	object, err := s.core.Client.GetObject(ctx, s.bucket, s.object(hash), options)
	if err != nil {
		return false, s.failed(ctx, err, hash)
	}
	defer func() { _ = object.Close() }()
	got, n, err := operate.HashArtifact(object)
	switch {
	case err != nil:
		return false, s.unlessGone(ctx, err, hash)
	case got == hash || n != info.Size:
		return false, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	ctx = context.WithoutCancel(ctx) // the marker must not stay if the caller, who may be a reader, leaves
	aside, err := s.setAside(ctx, hash, info.ETag)
	return aside, s.unlessGone(ctx, err, hash)
}

// setAside moves an object that still has this ETag aside, under a marker.
func (s *Store) setAside(ctx context.Context, hash, etag string) (bool, error) {
	moving, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	marker := s.markers(hash) + "." + rand.Text()
	if _, err := s.core.PutObject(moving, s.bucket, marker, bytes.NewReader(nil), 0, "", sumOf(nil), minio.PutObjectOptions{DisableContentSha256: true}); err != nil {
		return false, err
	}
	aside, err := s.moveAside(moving, hash, etag)
	if aside && err != nil {
		return false, err // the object may be deleted later, so the marker stays until the next sweep has ended the deletion
	}
	ending, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if rerr := s.core.RemoveObject(ending, s.bucket, marker, minio.RemoveObjectOptions{}); err == nil {
		err = rerr
	}
	return aside, err
}

// moveAside copies an object that still has this ETag to another key, and deletes it. If it returns true with an error, it is
// not known whether the object is deleted.
func (s *Store) moveAside(ctx context.Context, hash, etag string) (bool, error) {
	now, err := s.core.StatObject(ctx, s.bucket, s.object(hash), minio.StatObjectOptions{})
	if err != nil || now.ETag != etag {
		return false, err
	}
	to := s.damagedPrefix() + strings.TrimPrefix(hash, "sha256:") + "." + rand.Text()
	if _, err := s.core.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: s.bucket, Object: to}, minio.CopySrcOptions{Bucket: s.bucket, Object: s.object(hash), MatchETag: etag}); err != nil {
		return false, err
	}
	return true, s.core.RemoveObject(ctx, s.bucket, s.object(hash), minio.RemoveObjectOptions{})
}

// unlessGone is failed, without an error if the object is not there any more.
func (s *Store) unlessGone(ctx context.Context, err error, hash string) error {
	if err = s.failed(ctx, err, hash); perdure.CodeOf(err) == perdure.CodeNotFound {
		return nil
	}
	return err
}

// forgetDamaged deletes artifacts that were moved aside long ago.
func (s *Store) forgetDamaged(ctx context.Context) error {
	for o := range s.core.Client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.damagedPrefix(), Recursive: true}) {
		digits, _, _ := strings.Cut(path.Base(o.Key), ".")
		switch {
		case o.Err != nil:
			return s.failed(ctx, o.Err, "")
		case operate.CheckArtifact("sha256:"+digits) != nil || time.Since(o.LastModified) < artifacts.KeepDamaged:
			continue
		}
		if err := s.core.RemoveObject(ctx, s.bucket, o.Key, minio.RemoveObjectOptions{}); err != nil {
			return s.failed(ctx, err, "")
		}
	}
	return nil
}
