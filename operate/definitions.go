package operate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure"
)

// Definitions stores definitions under names, each with immutable versions. A submission may name one in place of a
// definition: {"definition": "order@7", "input": …}.
type Definitions interface {
	// PutDefinition stores a definition (mediaType application/json or application/yaml) as a new version of a name. If a
	// version has the same text, that is the answer, and created is false. The first version becomes the current one.
	PutDefinition(ctx context.Context, name string, body []byte, mediaType, author string) (v *DefinitionView, created bool, err error)
	// GetDefinition returns a version: NAME@VERSION, or NAME for the current one.
	GetDefinition(ctx context.Context, ref string) (*DefinitionView, error)
	// ListDefinitions returns a page of the current versions, in the order of their names, without the definitions.
	ListDefinitions(ctx context.Context, limit int, cursor string) (*perdure.Page[DefinitionView], error)
	// PromoteDefinition makes a version the current one.
	PromoteDefinition(ctx context.Context, name string, version int, author string) (*DefinitionView, error)
	// DeleteDefinition deletes a version, NAME@VERSION, which must not be the current one; or NAME with all of its versions.
	// Jobs that were made from it are kept as they are.
	DeleteDefinition(ctx context.Context, ref, author string) error
}

// DefinitionView is a version of a stored definition.
type DefinitionView struct {
	Name       string              `json:"name"`
	Version    int                 `json:"version,omitempty"` // missing in lists
	Hash       string              `json:"hash,omitempty"`    // SHA-256 of the definition in JSON with sorted fields; missing in lists
	Current    int                 `json:"current"`           // version that the name alone means
	Latest     int                 `json:"latest"`            // highest version that was ever stored
	CreatedAt  time.Time           `json:"createdAt,omitzero"`
	Author     string              `json:"author,omitempty"`
	UpdatedAt  time.Time           `json:"updatedAt"`            // when a version was added or promoted
	Versions   []DefinitionVersion `json:"versions,omitempty"`   // the latest first; missing in lists
	Definition json.RawMessage     `json:"definition,omitempty"` // missing in lists and in answers to PutDefinition and PromoteDefinition
}

// DefinitionVersion is a version of a stored definition, without its text.
type DefinitionVersion struct {
	Version   int       `json:"version"`
	Hash      string    `json:"hash"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author"`
}
