package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// maxTransfers bounds the uploads and downloads of artifacts at a node. Each has a buffer and two file descriptors.
const maxTransfers = 64

const mediaBytes = "application/octet-stream"

func (a *api) artifactRoutes() []route {
	const path = "/v1/artifacts/{hash}"
	return []route{
		{
			method: http.MethodPut, path: path, id: "putArtifact", tag: "jobs", do: (*call).putArtifact,
			summary: "Store an artifact",
			doc: "The body is the artifact, of at most 5 GiB, whose SHA-256 is in the path. It is compared with the bytes, also after a resumed upload. " +
				"An upload that was cut is resumed at the same node: `Content-Range: bytes 1000-4999/5000` sends the rest, and `bytes */5000` without a body reads how far it is.",
			headers: []param{{name: "Content-Range", doc: "The part that the body has; default: all of it", example: "bytes 1000-4999/5000"}},
			body:    &media{types: []string{mediaBytes}, of: reflect.TypeFor[string](), optional: true, example: `"any bytes"`},
			results: []result{
				{status: http.StatusOK, doc: "The artifact was there", of: reflect.TypeFor[operate.ArtifactState](), example: artifactExample},
				{status: http.StatusCreated, doc: "The artifact was stored", of: reflect.TypeFor[operate.ArtifactState](), example: artifactExample},
				{status: http.StatusAccepted, doc: "The rest is missing, from next on", of: reflect.TypeFor[operate.ArtifactState](), example: partialExample},
			},
			problems: []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusInsufficientStorage},
		},
		{
			method: http.MethodGet, path: path, id: "getArtifact", tag: "jobs", do: (*call).getArtifact,
			summary: "Read an artifact", doc: "The bytes. A request with `Range` gets a part of them (206). Compare what you have read with the hash.",
			results: []result{{status: http.StatusOK, doc: "The artifact", types: []string{mediaBytes}, of: reflect.TypeFor[string]()}}, problems: []int{http.StatusNotFound, http.StatusTooManyRequests},
		},
	}
}

// hash returns the name of the artifact.
func (c *call) hash() (string, error) {
	hash := c.r.PathValue("hash")
	if err := operate.CheckArtifact(hash); err != nil {
		return "", badParameter{err.(*perdure.Error)} //nolint:errorlint // CheckArtifact returns no other
	}
	return hash, nil
}

// upload reads which part of an artifact the body has.
func (c *call) upload() (u operate.ArtifactUpload, err error) {
	if u.Hash, err = c.hash(); err != nil {
		return u, err
	}
	u.Size, u.Length = c.r.ContentLength, c.r.ContentLength
	header := c.r.Header.Get("Content-Range")
	if header == "" {
		if u.Size < 0 {
			return u, badPart("header", "Content-Length", "is required").hint("send the length of the artifact, and no chunked encoding")
		}
		return u, nil
	}
	const form = "must be bytes FIRST-LAST/SIZE, or bytes */SIZE without a body"
	var last int64
	if sized, ok := strings.CutPrefix(header, "bytes */"); ok {
		if u.Size, err = strconv.ParseInt(sized, 10, 64); err != nil || u.Length > 0 {
			return u, badPart("header", "Content-Range", form)
		}
		u.Length = 0
		return u, nil
	}
	if n, err := fmt.Sscanf(header, "bytes %d-%d/%d", &u.Offset, &last, &u.Size); n != 3 || err != nil || header != fmt.Sprintf("bytes %d-%d/%d", u.Offset, last, u.Size) || last < u.Offset {
		return u, badPart("header", "Content-Range", form)
	}
	if u.Length >= 0 && u.Length != last-u.Offset+1 {
		return u, badPart("header", "Content-Range", "does not fit Content-Length")
	}
	u.Length = last - u.Offset + 1
	return u, nil
}

func (c *call) putArtifact() error {
	u, err := c.upload()
	if err != nil {
		return err
	}
	if err := c.encoded(); err != nil {
		return err
	}
	release, err := c.transfers.take("uploads and downloads of artifacts")
	if err != nil {
		return err
	}
	defer release()
	b := &body{from: c.r.Body, control: http.NewResponseController(c.w)}
	from := &sentBody{body: b}
	u.Body = from
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	state, err := c.Service.UploadArtifact(ctx, u)
	switch {
	case from.failed != nil:
		return c.unread(b, from.failed)
	case err != nil:
		c.w.Header().Set("Connection", "close") // the rest of the body is not read
		return err
	case state.Next < state.Size:
		return c.json(http.StatusAccepted, state)
	case state.Created:
		return c.json(http.StatusCreated, state)
	}
	return c.json(http.StatusOK, state)
}

// sentBody records why a body could not be read.
type sentBody struct {
	*body
	failed error
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

func (c *call) getArtifact() error {
	hash, err := c.hash()
	if err != nil {
		return err
	}
	release, err := c.transfers.take("uploads and downloads of artifacts")
	if err != nil {
		return err
	}
	defer release()
	content, err := c.Service.OpenArtifact(c.r.Context(), hash)
	if err != nil {
		return err
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Disposition", "attachment") // a browser must not show what a program has written as a page of this server
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("ETag", `"`+hash+`"`)
	http.ServeContent(c.w, c.r, "", time.Time{}, content)
	return nil
}
