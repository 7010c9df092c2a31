package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// UploadArtifact implements operate.Artifacts. operate.PutArtifact resumes uploads that fail.
func (c *Client) UploadArtifact(ctx context.Context, u operate.ArtifactUpload) (*operate.ArtifactState, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	req := &request{method: http.MethodPut, path: "/v1/artifacts/" + segment(u.Hash), length: u.Length, mediaType: "application/octet-stream"}
	req.stream = http.NoBody
	if u.Length > 0 {
		req.stream = io.NopCloser(u.Body)
	}
	switch {
	case u.Length == 0 && u.Size > 0:
		req.contentRange = fmt.Sprintf("bytes */%d", u.Size)
	case u.Length != u.Size:
		req.contentRange = fmt.Sprintf("bytes %d-%d/%d", u.Offset, u.Offset+u.Length-1, u.Size)
	}
	resp, at, err := c.send(ctx, req)
	if err != nil {
		return nil, plainly(c.unreachable(ctx, at, err, answerTimeout))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusAccepted {
		return nil, plainly(c.refused(at, resp))
	}
	s := new(operate.ArtifactState)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxProblem)).Decode(s); err != nil {
		return nil, perdure.Refuse(perdure.CodeUnavailable, "the server's answer cannot be read: %v", err)
	}
	s.Created = resp.StatusCode == http.StatusCreated
	return s, nil
}

// plainly returns the refusal in an error that may pass.
func plainly(err error) error {
	if gone := awayIn(err); gone != nil {
		return gone.err
	}
	return err
}

// OpenArtifact implements operate.Artifacts. The bytes are requested with the first Read after a Seek.
func (c *Client) OpenArtifact(ctx context.Context, hash string) (operate.ArtifactReader, error) {
	if err := operate.CheckArtifact(hash); err != nil {
		return nil, err
	}
	r := &remoteArtifact{client: c, ctx: ctx, path: "/v1/artifacts/" + segment(hash)}
	if err := r.request(); err != nil {
		return nil, err
	}
	r.size = r.answer.ContentLength
	return r, nil
}

// remoteArtifact reads an artifact of a server.
type remoteArtifact struct {
	client *Client
	ctx    context.Context
	path   string
	size   int64
	at     int64
	answer *http.Response // nil: the bytes from at on are not requested
}

func (r *remoteArtifact) Size() int64 { return r.size }

func (r *remoteArtifact) request() error {
	req := &request{method: http.MethodGet, path: r.path}
	want := http.StatusOK
	if r.at > 0 {
		req.byteRange, want = fmt.Sprintf("bytes=%d-", r.at), http.StatusPartialContent
	}
	resp, at, err := r.client.send(r.ctx, req)
	if err != nil {
		return plainly(r.client.unreachable(r.ctx, at, err, answerTimeout))
	}
	if resp.StatusCode != want {
		defer resp.Body.Close()
		return plainly(r.client.refused(at, resp))
	}
	r.answer = resp
	return nil
}

func (r *remoteArtifact) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.answer == nil {
		if err := r.request(); err != nil {
			return 0, err
		}
	}
	n, err := r.answer.Body.Read(b)
	r.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) || err != nil && r.at < r.size {
		return n, perdure.Refuse(perdure.CodeUnavailable, "the artifact was not read to its end: %v", err)
	}
	return n, err
}

func (r *remoteArtifact) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, perdure.Refuse(perdure.CodeInvalid, "an offset is not below 0")
	}
	if offset != r.at {
		_ = r.Close() // of an answer that is not read to its end
	}
	r.at = offset
	return offset, nil
}

func (r *remoteArtifact) Close() error {
	if r.answer == nil {
		return nil
	}
	answer := r.answer
	r.answer = nil
	return answer.Body.Close()
}
