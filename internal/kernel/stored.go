package kernel

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Definitions that are stored under a name. Each version is immutable. The name alone means the current version, which is
// the first one until another is promoted.

// StoredDefinition is one version of a definition.
type StoredDefinition struct {
	Name      string
	Version   int // from 1 on; a number is not used twice
	Hash      [32]byte
	Text      []byte // in JSON, with sorted fields
	Author    string
	CreatedAt time.Time
}

// DefinitionHead is the row of a name.
type DefinitionHead struct {
	Name      string
	Current   int // version that the name means
	Latest    int // highest version that was ever stored
	UpdatedAt time.Time
}

// DefinitionTx changes stored definitions in a transaction.
type DefinitionTx interface {
	// LockDefinition locks the row of a name, and returns it; nil if there is none.
	LockDefinition(name string) (*DefinitionHead, error)
	// CountDefinitions returns the number of names.
	CountDefinitions() (int, error)
	// VersionsOf returns the versions of a name, without their texts, the latest first.
	VersionsOf(name string) ([]StoredDefinition, error)
	// PutDefinition writes the row of a name, and a version if one is given. was is the row as it was loaded; nil if there was
	// none. If that is not so, the error is ErrStale.
	PutDefinition(now DefinitionHead, was *DefinitionHead, added *StoredDefinition) error
	// FindDefinition returns a version (0: the current one); nil if it does not exist.
	FindDefinition(name string, version int) (*StoredDefinition, error)
	// DeleteDefinition deletes a version; 0: all of them, and the name. The caller has locked the row of the name.
	DeleteDefinition(name string, version int) error
}

// DefinitionReader reads stored definitions.
type DefinitionReader interface {
	// StoredDefinition returns a version (0: the current one) with the row of its name; nil if it does not exist.
	StoredDefinition(ctx context.Context, name string, version int) (*StoredDefinition, *DefinitionHead, error)
	// DefinitionVersions returns the versions of a name, without their texts, the latest first.
	DefinitionVersions(ctx context.Context, name string) ([]StoredDefinition, error)
	// DefinitionHeads returns at most max names in order, beginning after one.
	DefinitionHeads(ctx context.Context, after string, max int) ([]DefinitionHead, error)
}

// DefinitionRef names a version of a stored definition: NAME@VERSION, or NAME for the current one (0).
type DefinitionRef struct {
	Name    string
	Version int
}

func (r DefinitionRef) String() string {
	if r.Version == 0 {
		return r.Name
	}
	return r.Name + "@" + strconv.Itoa(r.Version)
}

// ParseDefinitionRef reads the name of a stored definition, with or without a version.
func ParseDefinitionRef(text string) (r DefinitionRef, err error) {
	name, version, versioned := strings.Cut(text, "@")
	if err := CheckDefinitionName(name); err != nil {
		return r, err
	}
	r.Name = name
	if !versioned {
		return r, nil
	}
	if r.Version, err = strconv.Atoi(version); err != nil || r.Version < 1 || version[0] == '+' || version[0] == '0' {
		e := perdure.Refuse(perdure.CodeInvalid, "invalid version %q of definition %s", plain.Clip(version, 20), name)
		e.Hint = "write NAME@VERSION, such as " + name + "@7, or NAME for the current version"
		return DefinitionRef{}, e
	}
	return r, nil
}

// CheckDefinitionName refuses a text that is no name of a definition.
func CheckDefinitionName(name string) error {
	if plain.IsName(name) && len(name) <= perdure.MaxNameLength {
		return nil
	}
	e := perdure.Refuse(perdure.CodeInvalid, "invalid name %q of a definition", plain.Clip(name, perdure.MaxNameLength))
	e.Hint = fmt.Sprintf("letters, digits, `.`, `_` and `-`, starting with a letter or digit; at most %d characters", perdure.MaxNameLength)
	return e
}

// ErrNoDefinition returns the error for a stored definition that does not exist.
func ErrNoDefinition(r DefinitionRef) error {
	e := perdure.Refuse(perdure.CodeNotFound, "there is no definition %s", r)
	e.Hint = "perdure definitions lists them; perdure definitions apply FILE stores one"
	return e
}

// AddVersion returns the row of a name after a definition was put, and the version to add: nil if one with the same text is
// there already, whose number is the answer. head is nil if the name is new. versions are those that are there.
func AddVersion(head *DefinitionHead, versions []StoredDefinition, d StoredDefinition) (now DefinitionHead, added *StoredDefinition, version int, err error) {
	for i := range versions {
		if versions[i].Hash == d.Hash {
			return *head, nil, versions[i].Version, nil
		}
	}
	if len(versions) >= perdure.MaxDefinitionVersions {
		e := perdure.Refuse(perdure.CodeConflict, "definition %s has %d versions, which is the maximum", d.Name, len(versions))
		e.Hint = "delete versions that are not used: perdure definitions rm NAME@VERSION"
		return now, nil, 0, e
	}
	if head != nil {
		now = *head
	}
	now.Name, now.UpdatedAt = d.Name, d.CreatedAt
	now.Latest++
	now.Current = cmp.Or(now.Current, now.Latest)
	d.Version = now.Latest
	return now, &d, d.Version, nil
}

// MayDeleteVersion returns why a version of a definition, or all of them (0), may not be deleted; nil if it may. uses are
// the schedules that use the definition.
func MayDeleteVersion(head *DefinitionHead, version int, uses []DefinitionUse) error {
	for _, u := range uses {
		if version == 0 || cmp.Or(u.Version, head.Current) == version {
			e := perdure.Refuse(perdure.CodeConflict, "the schedule %s uses %s", u.Schedule, DefinitionRef{head.Name, u.Version})
			e.Hint = "let the schedule use another definition, or delete it: perdure schedules rm " + u.Schedule
			return e
		}
	}
	if version != head.Current {
		return nil
	}
	e := perdure.Refuse(perdure.CodeConflict, "%s@%d is the current version", head.Name, version)
	e.Hint = "promote another version first, or delete the definition with all of its versions: perdure definitions rm " + head.Name
	return e
}
