package storetest

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/kernel"
)

var storedChecks = []check{
	{"Stored/VersionsAreAddedAndDeleted", storedVersions},
	{"Stored/ConflictsAreRetried", storedConflicts},
}

func stored(name string, version int) *kernel.StoredDefinition {
	return &kernel.StoredDefinition{Name: name, Version: version, Hash: [32]byte{byte(version)}, Text: []byte(`{"type":"` + name + `"}`), Author: "anna", CreatedAt: at(time.Duration(version) * time.Hour)}
}

func head(name string, current, latest int) kernel.DefinitionHead {
	return kernel.DefinitionHead{Name: name, Current: current, Latest: latest, UpdatedAt: at(time.Duration(latest) * time.Hour)}
}

func (s *suite) putDefinition(now kernel.DefinitionHead, was *kernel.DefinitionHead, added *kernel.StoredDefinition) {
	s.Helper()
	s.update(func(tx kernel.Tx) { s.must(tx.PutDefinition(now, was, added)) })
}

func (s *suite) storedIs(name string, version int, want *kernel.StoredDefinition, wantHead *kernel.DefinitionHead) {
	s.Helper()
	got, gotHead, err := s.store.StoredDefinition(ctx, name, version)
	s.must(err)
	s.equal("definition", got, want)
	s.equal("its head", gotHead, wantHead)
}

// Versions are added, the current one is found by the name alone, and they are deleted one by one or with the name.
func storedVersions(s *suite) {
	one, two, other := head("order", 1, 1), head("order", 1, 2), head("import", 1, 1)
	s.putDefinition(one, nil, stored("order", 1))
	s.putDefinition(two, &one, stored("order", 2))
	s.putDefinition(other, nil, stored("import", 1))
	s.storedIs("order", 0, stored("order", 1), &two)
	s.storedIs("order", 2, stored("order", 2), &two)
	s.storedIs("order", 3, nil, nil)
	s.storedIs("none", 0, nil, nil)
	promoted := head("order", 2, 2)
	s.putDefinition(promoted, &two, nil)
	s.storedIs("order", 0, stored("order", 2), &promoted)

	without := func(versions ...int) (all []kernel.StoredDefinition) {
		for _, v := range versions {
			d := *stored("order", v)
			d.Text = nil
			all = append(all, d)
		}
		return all
	}
	versions, err := s.store.DefinitionVersions(ctx, "order")
	s.must(err)
	s.equal("versions", versions, without(2, 1))
	for after, want := range map[string][]kernel.DefinitionHead{"": {other, promoted}, "import": {promoted}, "order": nil} {
		heads, err := s.store.DefinitionHeads(ctx, after, 10)
		s.must(err)
		s.equal("names after "+after, heads, want)
	}
	heads, err := s.store.DefinitionHeads(ctx, "", 1)
	s.must(err)
	s.equal("the first name", heads, []kernel.DefinitionHead{other})
	s.update(func(tx kernel.Tx) {
		n, err := tx.CountDefinitions()
		s.must(err)
		s.equal("names", n, 2)
		h, err := tx.LockDefinition("order")
		s.must(err)
		s.equal("locked", h, &promoted)
		none, err := tx.LockDefinition("none")
		s.must(err)
		s.equal("locked, of no name", none, (*kernel.DefinitionHead)(nil))
		all, err := tx.VersionsOf("order")
		s.must(err)
		s.equal("versions in a transaction", all, without(2, 1))
		s.must(tx.DeleteDefinition("order", 1))
	})
	s.storedIs("order", 1, nil, nil)
	s.storedIs("order", 0, stored("order", 2), &promoted)
	s.update(func(tx kernel.Tx) { s.must(tx.DeleteDefinition("order", 0)) })
	s.storedIs("order", 0, nil, nil)
	s.storedIs("order", 2, nil, nil)
	s.storedIs("import", 0, stored("import", 1), &other)
}

// If another transaction has changed the row of a name, the transaction is stale, and nothing of it is stored.
func storedConflicts(s *suite) {
	one := head("order", 1, 1)
	s.putDefinition(one, nil, stored("order", 1))
	for name, was := range map[string]*kernel.DefinitionHead{"new": nil, "another current": {Name: "order", Current: 2, Latest: 1}, "another latest": {Name: "order", Current: 1, Latest: 2}} {
		err := s.store.Update(ctx, func(tx kernel.Tx) error {
			return tx.PutDefinition(head("order", 3, 3), was, stored("order", 3))
		})
		if !errors.Is(err, kernel.ErrStale) {
			s.Errorf("%s: %v", name, err)
		}
	}
	s.storedIs("order", 0, stored("order", 1), &one)
	s.storedIs("order", 3, nil, nil)
}
