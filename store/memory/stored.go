package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/kernel"
)

// storedKey names a version of a stored definition.
type storedKey struct {
	name    string
	version int
}

func (tx *tx) LockDefinition(name string) (*kernel.DefinitionHead, error) {
	h, ok := tx.definitions[name]
	if !ok {
		return nil, nil
	}
	return &h, nil
}

func (tx *tx) CountDefinitions() (int, error) { return len(tx.definitions), nil }

func (tx *tx) VersionsOf(name string) ([]kernel.StoredDefinition, error) {
	return tx.versionsOf(name), nil
}

func (d *data) versionsOf(name string) (all []kernel.StoredDefinition) {
	for k, v := range d.versions {
		if k.name == name {
			v.Text = nil
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b kernel.StoredDefinition) int { return cmp.Compare(b.Version, a.Version) })
	return all
}

func (tx *tx) PutDefinition(now kernel.DefinitionHead, was *kernel.DefinitionHead, added *kernel.StoredDefinition) error {
	there, ok := tx.definitions[now.Name]
	if ok != (was != nil) || ok && (there.Current != was.Current || there.Latest != was.Latest) {
		tx.failed = cmp.Or(tx.failed, kernel.ErrStale)
		return kernel.ErrStale
	}
	now.UpdatedAt = storedTime(now.UpdatedAt)
	set(tx, tx.definitions, now.Name, now)
	if added != nil {
		v := *added
		v.Text, v.CreatedAt = slices.Clone(v.Text), storedTime(v.CreatedAt)
		set(tx, tx.versions, storedKey{v.Name, v.Version}, v)
	}
	return nil
}

func (tx *tx) DeleteDefinition(name string, version int) error {
	for k := range tx.versions {
		if k.name == name && (version == 0 || k.version == version) {
			remove(tx, tx.versions, k)
		}
	}
	if version == 0 {
		remove(tx, tx.definitions, name)
	}
	return nil
}

func (s *Store) StoredDefinition(ctx context.Context, name string, version int) (*kernel.StoredDefinition, *kernel.DefinitionHead, error) {
	type found struct {
		version *kernel.StoredDefinition
		head    *kernel.DefinitionHead
	}
	f, err := view(ctx, s, func() (f found) {
		head, ok := s.definitions[name]
		if !ok {
			return f
		}
		if version == 0 {
			version = head.Current
		}
		if v, ok := s.versions[storedKey{name, version}]; ok {
			v.Text = slices.Clone(v.Text)
			f = found{&v, &head}
		}
		return f
	})
	return f.version, f.head, err
}

func (s *Store) DefinitionVersions(ctx context.Context, name string) ([]kernel.StoredDefinition, error) {
	return view(ctx, s, func() []kernel.StoredDefinition { return s.versionsOf(name) })
}

func (s *Store) DefinitionHeads(ctx context.Context, after string, max int) ([]kernel.DefinitionHead, error) {
	return view(ctx, s, func() (all []kernel.DefinitionHead) {
		for _, h := range s.definitions {
			if h.Name > after {
				all = append(all, h)
			}
		}
		slices.SortFunc(all, func(a, b kernel.DefinitionHead) int { return cmp.Compare(a.Name, b.Name) })
		return firstN(max, all)
	})
}
