package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition"
	"github.com/perdure/perdure/internal/admission"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

// versionRoom is about the size of a version in a view, in bytes.
const versionRoom = 512

func formatOf(mediaType string) definition.Format {
	if mediaType == "application/json" {
		return definition.JSON
	}
	return definition.YAML
}

// PutDefinition implements operate.Definitions.
func (svc *Service) PutDefinition(ctx context.Context, name string, body []byte, mediaType, author string) (*operate.DefinitionView, bool, error) {
	if err := svc.Refuse(); err != nil {
		return nil, false, err
	}
	if err := kernel.CheckDefinitionName(name); err != nil {
		return nil, false, err
	}
	text, err := svc.Compiler.CheckTemplate(body, formatOf(mediaType), ctx.Err)
	if err != nil {
		return nil, false, err
	}
	version, created, err := svc.Scheduler.PutDefinition(ctx, kernel.StoredDefinition{Name: name, Hash: sha256.Sum256(text), Text: text, Author: author})
	if err != nil {
		return nil, false, Unreachable(err)
	}
	v, err := svc.definitionView(ctx, kernel.DefinitionRef{Name: name, Version: version}, false)
	return v, created, err
}

// GetDefinition implements operate.Definitions.
func (svc *Service) GetDefinition(ctx context.Context, ref string) (*operate.DefinitionView, error) {
	r, err := kernel.ParseDefinitionRef(ref)
	if err != nil {
		return nil, err
	}
	return svc.definitionView(ctx, r, true)
}

func (svc *Service) definitionView(ctx context.Context, r kernel.DefinitionRef, whole bool) (*operate.DefinitionView, error) {
	if err := admission.Ask(ctx, perdure.MaxStoredBytes+perdure.MaxDefinitionVersions*versionRoom); err != nil {
		return nil, err
	}
	d, head, err := svc.Store.StoredDefinition(ctx, r.Name, r.Version)
	if err != nil {
		return nil, Unreachable(err)
	}
	if d == nil {
		return nil, kernel.ErrNoDefinition(r)
	}
	v := &operate.DefinitionView{Name: d.Name, Version: d.Version, Hash: hex.EncodeToString(d.Hash[:]), Current: head.Current, Latest: head.Latest,
		CreatedAt: d.CreatedAt, Author: d.Author, UpdatedAt: head.UpdatedAt}
	versions, err := svc.Store.DefinitionVersions(ctx, r.Name)
	if err != nil {
		return nil, Unreachable(err)
	}
	for i := range versions {
		w := &versions[i]
		v.Versions = append(v.Versions, operate.DefinitionVersion{Version: w.Version, Hash: hex.EncodeToString(w.Hash[:]), CreatedAt: w.CreatedAt, Author: w.Author})
	}
	if whole {
		v.Definition = d.Text
	}
	return v, nil
}

// ListDefinitions implements operate.Definitions.
func (svc *Service) ListDefinitions(ctx context.Context, limit int, cursor string) (*perdure.Page[operate.DefinitionView], error) {
	limit = pageSize(limit)
	after, err := hex.DecodeString(cursor)
	if err != nil {
		return nil, perdure.Refuse(perdure.CodeInvalid, "the cursor is not one of a list of definitions")
	}
	if err := admission.Ask(ctx, limit*versionRoom); err != nil {
		return nil, err
	}
	heads, err := svc.Store.DefinitionHeads(ctx, string(after), limit+1)
	if err != nil {
		return nil, Unreachable(err)
	}
	page := &perdure.Page[operate.DefinitionView]{Items: []operate.DefinitionView{}}
	for i, h := range heads {
		if i == limit {
			page.NextCursor = hex.EncodeToString([]byte(heads[i-1].Name))
			break
		}
		page.Items = append(page.Items, operate.DefinitionView{Name: h.Name, Current: h.Current, Latest: h.Latest, UpdatedAt: h.UpdatedAt})
	}
	return page, nil
}

// PromoteDefinition implements operate.Definitions.
func (svc *Service) PromoteDefinition(ctx context.Context, name string, version int, author string) (*operate.DefinitionView, error) {
	if err := svc.ended(); err != nil {
		return nil, err
	}
	if err := kernel.CheckDefinitionName(name); err != nil {
		return nil, err
	}
	r := kernel.DefinitionRef{Name: name, Version: version}
	if version < 1 {
		return nil, perdure.Refuse(perdure.CodeInvalid, "version is a number from 1 on, not %d", version)
	}
	if err := svc.Scheduler.PromoteDefinition(ctx, r, author); err != nil {
		return nil, Unreachable(err)
	}
	return svc.definitionView(ctx, r, false)
}

// DeleteDefinition implements operate.Definitions.
func (svc *Service) DeleteDefinition(ctx context.Context, ref, author string) error {
	if err := svc.ended(); err != nil {
		return err
	}
	r, err := kernel.ParseDefinitionRef(ref)
	if err != nil {
		return err
	}
	if err := svc.Scheduler.DeleteDefinition(ctx, r, author); err != nil {
		return Unreachable(err)
	}
	return nil
}

// named returns the text of the stored definition that a submission names, and its name with the version.
func (svc *Service) named(ctx context.Context, ref string) (text json.RawMessage, named string, err error) {
	r, err := kernel.ParseDefinitionRef(ref)
	if err != nil {
		return nil, "", err
	}
	d, _, err := svc.Store.StoredDefinition(ctx, r.Name, r.Version)
	if err != nil {
		return nil, "", Unreachable(err)
	}
	if d == nil {
		return nil, "", kernel.ErrNoDefinition(r)
	}
	return d.Text, kernel.DefinitionRef{Name: d.Name, Version: d.Version}.String(), nil
}
