// Package s3 keeps artifacts in an object store with the interface of S3.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/artifacts"
	"github.com/perdure/perdure/operate"
)

const (
	// partBytes is the size of the parts of an upload, of which each upload in progress has one in memory. 5 MiB are the least
	// that S3 takes, and 1,024 of its 10,000 parts are enough for the largest artifact.
	partBytes = 5 << 20
	// answerTime bounds the wait for the begin of an answer, and s3Tries the attempts of a call that fails for a cause that may
	// pass.
	answerTime = 30 * time.Second
	s3Tries    = 3
	atOnce     = 1000 // objects in one list
	// A deletion that has not come to its end for so long is given up by its process (deleteTime), and ended by another
	// (recoverAfter).
	deleteTime   = 2 * time.Minute
	recoverAfter = 10 * time.Minute
)

// Store is a prefix of a bucket of an object store. It implements operate.Artifacts.
//
// An artifact is one object, sha256/DIGITS. It is uploaded in parts, and appears when the last one has arrived and all bytes
// have the hash. An upload that is cut is continued at its node from the last whole part on, until the node ends.
//
// Deletion is like that of Dir, with a marker in place of the other name: the sweep puts an object deleting/DIGITS.RANDOM, reads
// the time of the artifact again, deletes it, and then the marker. A caller that stores or names the artifact renews its time
// first, and lists its markers afterwards. So the sweep sees the new time, or the caller the marker: it has to try again later.
// Each deletion has a marker of its own, which is there until this deletion has come to its end: several may be in progress.
type Store struct {
	core   minio.Core
	bucket string
	prefix string // "" or ends with a slash

	mu      sync.Mutex
	uploads map[string]*s3Upload // by hash
}

var (
	_ operate.Artifacts = (*Store)(nil)
	_ artifacts.Deleter = (*Store)(nil)
)

// s3Upload is an upload whose bytes have not all arrived.
type s3Upload struct {
	busy  bool // a call adds to it
	at    time.Time
	id    string // of the multipart upload; "": none was begun
	parts []minio.CompletePart
	sum   hash.Hash // of the parts
}

func (u *s3Upload) next() int64 { return int64(len(u.parts)) * partBytes }

// Open returns the artifacts of a URL s3://BUCKET/PREFIX. The endpoint, the region and the credentials are those of the usual
// variables of the environment (AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID, …), the file of shared credentials, or
// those that the machine has.
func Open(text string) (*Store, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, perdure.Refuse(perdure.CodeInvalid, "%q names no bucket; write s3://BUCKET/PREFIX", text)
	}
	endpoint, region := variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), variable("AWS_REGION", "AWS_DEFAULT_REGION")
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	to, err := url.Parse(endpoint)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.Path != "" && to.Path != "/" {
		return nil, perdure.Refuse(perdure.CodeInvalid, "AWS_ENDPOINT_URL_S3 is no endpoint: http:// or https://, a host and a port")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTime
	transport.DisableCompression = true
	chain := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: answerTime}}})
	client, err := minio.New(to.Host, &minio.Options{Creds: chain, Secure: to.Scheme == "https", Region: region, Transport: transport, MaxRetries: s3Tries})
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "%v", err)
	}
	prefix := strings.Trim(path.Clean("/"+u.Path), "/")
	if prefix != "" {
		prefix += "/"
	}
	return &Store{core: minio.Core{Client: client}, bucket: u.Host, prefix: prefix, uploads: map[string]*s3Upload{}}, nil
}

func variable(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

func (s *Store) object(hash string) string {
	return s.prefix + "sha256/" + strings.TrimPrefix(hash, "sha256:")
}

// markers returns with what the keys of the markers of an artifact begin.
func (s *Store) markers(hash string) string {
	return s.prefix + "deleting/" + strings.TrimPrefix(hash, "sha256:")
}

// KeepArtifact returns the size of an artifact, and an error if there is none. Otherwise, no sweep deletes it within the next
// hours.
func (s *Store) KeepArtifact(ctx context.Context, hash string) (size int64, err error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return 0, err
	}
	return s.keep(ctx, hash)
}

func (s *Store) keep(ctx context.Context, hash string) (size int64, err error) {
	info, err := s.core.StatObject(ctx, s.bucket, s.object(hash), minio.StatObjectOptions{})
	if err != nil {
		return 0, s.failed(ctx, err, hash)
	}
	if time.Since(info.LastModified) > artifacts.RenewAfter { // a copy onto itself has a new time
		_, err := s.core.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: s.bucket, Object: s.object(hash), ReplaceMetadata: true, UserMetadata: map[string]string{"Renewed": time.Now().UTC().Format(time.RFC3339)}},
			minio.CopySrcOptions{Bucket: s.bucket, Object: s.object(hash)})
		if err != nil {
			return 0, s.failed(ctx, err, hash)
		}
	}
	return info.Size, s.checkMarkers(ctx, hash)
}

// checkMarkers returns an error if a sweep is about to delete the artifact.
func (s *Store) checkMarkers(ctx context.Context, hash string) error {
	for o := range s.core.Client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.markers(hash), Recursive: true, MaxKeys: 1}) {
		if o.Err != nil {
			return s.failed(ctx, o.Err, hash)
		}
		return &perdure.Error{Code: perdure.CodeTooManyRequests, Message: fmt.Sprintf("the artifact %s is being deleted", hash), Hint: "try again later"}
	}
	return nil
}

// UploadArtifact implements operate.Artifacts.
func (s *Store) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	state := &operate.ArtifactState{Artifact: u.Hash, Size: u.Size}
	size, err := s.keep(ctx, u.Hash)
	switch {
	case err == nil && size != u.Size: // equal hashes have equal sizes: one of the two is wrong
		if aside, err := s.SetAside(ctx, u.Hash); err != nil {
			return nil, err
		} else if !aside {
			return nil, perdure.Refuse(perdure.CodeInvalid, "the artifact has %d bytes, not %d", size, u.Size)
		}
	case err == nil:
		state.Next = u.Size
		return state, nil
	case perdure.CodeOf(err) != perdure.CodeNotFound:
		return nil, err
	}
	up, err := s.begin(u.Hash)
	if err != nil {
		return nil, err
	}
	defer s.end(u.Hash, up)
	if state.Next = up.next(); u.Length == 0 && u.Size > 0 {
		return state, nil
	}
	switch {
	case u.Offset == 0: // all of it again
		s.abort(ctx, u.Hash, up)
	case u.Offset > up.next():
		e := perdure.Refuse(perdure.CodeConflict, "bytes %d to %d of the artifact are missing", up.next(), u.Offset)
		e.Hint = "send the upload from there on"
		return nil, e
	}
	err = s.receive(ctx, up, &u)
	state.Next = up.next()
	if err == nil && u.Offset+u.Length == u.Size {
		state.Next, state.Created = u.Size, true
	}
	return state, err
}

func (s *Store) begin(hash string) (*s3Upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	up := s.uploads[hash]
	busy := 0
	for _, other := range s.uploads {
		if other.busy {
			busy++
		}
	}
	switch {
	case up != nil && up.busy:
		return nil, &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "another upload of this artifact is in progress", Hint: "try again later"}
	case busy >= artifacts.MaxUploads, up == nil && len(s.uploads) >= maxKept:
		return nil, &perdure.Error{Code: perdure.CodeTooManyRequests, Message: "the node has reached its bound on uploads", Hint: "try again later"}
	case up == nil:
		up = &s3Upload{sum: sha256.New()}
		s.uploads[hash] = up
	}
	up.busy, up.at = true, time.Now()
	return up, nil
}

// maxKept bounds the uploads that a node keeps to be continued.
const maxKept = 1000

func (s *Store) end(hash string, up *s3Upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	up.busy = false
	if up.id == "" {
		delete(s.uploads, hash)
	}
}

// abort forgets the parts of an upload.
func (s *Store) abort(ctx context.Context, hash string, up *s3Upload) {
	if up.id != "" { // what cannot be removed now is removed by a sweep
		_ = s.core.AbortMultipartUpload(context.WithoutCancel(ctx), s.bucket, s.object(hash), up.id)
	}
	up.id, up.parts, up.sum = "", nil, sha256.New()
}

// receive sends the body in parts, and completes the upload with the last one. Bytes that the parts have are left out.
func (s *Store) receive(ctx context.Context, up *s3Upload, u *operate.ArtifactUpload) error {
	body := io.LimitReader(u.Body, u.Length)
	if skip := up.next() - u.Offset; skip > 0 {
		if n, err := io.CopyN(io.Discard, body, skip); err != nil || n < skip {
			return incomplete(err)
		}
	}
	buffer := make([]byte, min(partBytes, max(u.Size-up.next(), 0)))
	for end := u.Offset + u.Length; ; {
		part := buffer[:min(int64(len(buffer)), u.Size-up.next())]
		if up.next()+int64(len(part)) > end {
			return nil // the rest is less than a part, and is sent again with what follows
		}
		if _, err := io.ReadFull(body, part); err != nil && len(part) > 0 {
			return incomplete(err)
		}
		last := up.next()+int64(len(part)) == u.Size
		if last {
			return s.complete(ctx, up, u, part)
		}
		if err := s.sendPart(ctx, up, u.Hash, part); err != nil {
			return err
		}
	}
}

// sumOf returns the hash of a body for its signature: not all stores with the interface of S3 read bodies that are signed in
// chunks.
func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func incomplete(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return perdure.Refuse(perdure.CodeMalformed, "the body is incomplete")
	}
	return err
}

func (s *Store) sendPart(ctx context.Context, up *s3Upload, hash string, part []byte) error {
	if up.id == "" {
		id, err := s.core.NewMultipartUpload(ctx, s.bucket, s.object(hash), minio.PutObjectOptions{ContentType: "application/octet-stream"})
		if err != nil {
			return s.failed(ctx, err, hash)
		}
		up.id = id
	}
	number := len(up.parts) + 1
	sent, err := s.core.PutObjectPart(ctx, s.bucket, s.object(hash), up.id, number, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{Sha256Hex: sumOf(part), DisableContentSha256: true})
	if err != nil {
		if minio.ToErrorResponse(err).Code == "NoSuchUpload" { // it was removed meanwhile
			up.id, up.parts, up.sum = "", nil, sha256.New()
			return perdure.Refuse(perdure.CodeUnavailable, "the parts of the upload are gone: send it from its begin")
		}
		return s.failed(ctx, err, hash)
	}
	up.parts = append(up.parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
	_, _ = up.sum.Write(part) // it never fails
	return nil
}

// complete compares the hash of all bytes, and only then makes the artifact appear.
func (s *Store) complete(ctx context.Context, up *s3Upload, u *operate.ArtifactUpload, last []byte) error {
	sum := up.sum
	if len(up.parts) > 0 {
		if err := s.sendPart(ctx, up, u.Hash, last); err != nil {
			return err
		}
	} else {
		_, _ = sum.Write(last)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != u.Hash {
		s.abort(ctx, u.Hash, up)
		return perdure.Refuse(perdure.CodeInvalid, "the bytes have the hash %s", got)
	}
	var err error
	if up.id == "" {
		_, err = s.core.PutObject(ctx, s.bucket, s.object(u.Hash), bytes.NewReader(last), int64(len(last)), "", sumOf(last), minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
	} else {
		_, err = s.core.CompleteMultipartUpload(ctx, s.bucket, s.object(u.Hash), up.id, up.parts, minio.PutObjectOptions{})
	}
	if err != nil { // it may have appeared: the next call finds out
		s.abort(ctx, u.Hash, up)
		return s.failed(ctx, err, u.Hash)
	}
	up.id, up.parts, up.sum = "", nil, sha256.New()
	return s.checkMarkers(ctx, u.Hash)
}

// OpenArtifact implements operate.Artifacts.
func (s *Store) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return nil, err
	}
	info, err := s.core.StatObject(ctx, s.bucket, s.object(hash), minio.StatObjectOptions{})
	if err != nil {
		return nil, s.failed(ctx, err, hash)
	}
	object, err := s.core.Client.GetObject(ctx, s.bucket, s.object(hash), minio.GetObjectOptions{})
	if err != nil {
		return nil, s.failed(ctx, err, hash)
	}
	return &s3Reader{object, s, ctx, hash, info.Size}, nil
}

type s3Reader struct {
	*minio.Object
	store *Store
	ctx   context.Context
	hash  string
	size  int64
}

func (r *s3Reader) Size() int64 { return r.size }

func (r *s3Reader) Read(b []byte) (int, error) {
	n, err := r.Object.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.store.failed(r.ctx, err, r.hash)
	}
	return n, err
}

// OldArtifacts implements Deleter.
func (s *Store) OldArtifacts(_ context.Context, from string, before time.Time) (hashes []string, next string, err error) {
	list, err := s.core.ListObjectsV2(s.bucket, s.prefix+"sha256/", from, "", "", atOnce)
	if err != nil {
		return nil, "", s.failed(context.Background(), err, "")
	}
	for _, o := range list.Contents {
		hash := "sha256:" + path.Base(o.Key)
		if operate.CheckArtifact(hash) == nil && o.LastModified.Before(before) {
			hashes = append(hashes, hash)
		}
		if list.IsTruncated {
			next = o.Key
		}
	}
	return hashes, next, nil
}

// DeleteArtifact implements Deleter.
func (s *Store) DeleteArtifact(ctx context.Context, hash string, before time.Time) (bool, error) {
	marker := s.markers(hash) + "." + rand.Text()
	if _, err := s.core.PutObject(ctx, s.bucket, marker, bytes.NewReader(nil), 0, "", sumOf(nil), minio.PutObjectOptions{DisableContentSha256: true}); err != nil {
		return false, s.failed(ctx, err, hash)
	}
	return s.decide(ctx, hash, marker, before)
}

// decide deletes an artifact, unless its time was renewed, and then the marker of this deletion.
func (s *Store) decide(ctx context.Context, hash, marker string, before time.Time) (deleted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	info, err := s.core.StatObject(ctx, s.bucket, s.object(hash), minio.StatObjectOptions{})
	if err == nil && info.LastModified.Before(before) && ctx.Err() == nil {
		deleted = true
		err = s.core.RemoveObject(ctx, s.bucket, s.object(hash), minio.RemoveObjectOptions{})
	}
	if err = s.failed(ctx, err, hash); err != nil && perdure.CodeOf(err) != perdure.CodeNotFound {
		return false, err // the marker stays until the deletion is ended
	}
	err = s.core.RemoveObject(ctx, s.bucket, marker, minio.RemoveObjectOptions{})
	return deleted, s.failed(ctx, err, hash)
}

// Recover implements Deleter.
func (s *Store) Recover(ctx context.Context) error {
	s.forget(ctx)
	if err := s.forgetDamaged(ctx); err != nil {
		return err
	}
	for o := range s.core.Client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + "deleting/", Recursive: true}) {
		digits, _, _ := strings.Cut(path.Base(o.Key), ".")
		hash := "sha256:" + digits
		switch {
		case o.Err != nil:
			return s.failed(ctx, o.Err, "")
		case operate.CheckArtifact(hash) != nil || time.Since(o.LastModified) < recoverAfter:
			continue
		}
		// With a marker of its own: another process may end the same deletion, and remove the marker that was left.
		if _, err := s.DeleteArtifact(ctx, hash, o.LastModified.Add(-artifacts.Age)); err != nil {
			return err
		}
		if err := s.core.RemoveObject(ctx, s.bucket, o.Key, minio.RemoveObjectOptions{}); err != nil {
			return s.failed(ctx, err, hash)
		}
	}
	uploads, err := s.core.ListMultipartUploads(ctx, s.bucket, s.prefix+"sha256/", "", "", "", atOnce)
	if r := minio.ToErrorResponse(err); err != nil && r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket {
		return nil // some stores say so if there are no uploads
	} else if err != nil {
		return s.failed(ctx, err, "")
	}
	for _, u := range uploads.Uploads {
		if time.Since(u.Initiated) > artifacts.ForgetAfter && strings.HasPrefix(u.Key, s.prefix+"sha256/") {
			if err := s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID); err != nil {
				return s.failed(ctx, err, "")
			}
		}
	}
	return nil
}

// forget forgets uploads of this node that were not continued.
func (s *Store) forget(ctx context.Context) {
	s.mu.Lock()
	old := map[string]*s3Upload{}
	for hash, up := range s.uploads {
		if !up.busy && time.Since(up.at) > artifacts.ForgetAfter {
			old[hash] = up
		}
	}
	maps.DeleteFunc(s.uploads, func(hash string, _ *s3Upload) bool { return old[hash] != nil })
	s.mu.Unlock()
	for hash, up := range old {
		s.abort(ctx, hash, up)
	}
}

// failed converts an error of the object store.
func (s *Store) failed(ctx context.Context, err error, hash string) error {
	var refusal *perdure.Error
	switch r := minio.ToErrorResponse(err); {
	case err == nil, errors.As(err, &refusal):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case r.Code == minio.NoSuchKey, r.Code == "NotFound", r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket:
		return artifacts.ErrNotStored(hash)
	case r.Code == "XMinioStorageFull", r.Code == "QuotaExceeded", r.StatusCode == http.StatusInsufficientStorage:
		return &perdure.Error{Code: perdure.CodeNoSpace, Message: fmt.Sprintf("the object store has no room: %s", r.Message), Hint: "free space, and try again"}
	case r.StatusCode == http.StatusForbidden, r.StatusCode == http.StatusUnauthorized, r.Code == minio.NoSuchBucket:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the object store refuses bucket %s: %s", s.bucket, r.Message), Hint: "check bucket and credentials of the nodes"}
	default:
		return &perdure.Error{Code: perdure.CodeUnavailable, Message: fmt.Sprintf("the object store cannot be used: %v", err), Hint: "try again later"}
	}
}
