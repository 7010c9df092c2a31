package kernel

import (
	"testing"

	"github.com/perdure/perdure"
)

func TestSchemaAdmitsPrograms(t *testing.T) {
	for _, c := range []struct {
		schema  Schema
		program int
		ok      bool
	}{
		{Schema{3, 1, 1}, 3, true},
		{Schema{3, 1, 1}, 2, true},  // an older program beside a newer one
		{Schema{3, 1, 3}, 2, false}, // it would not understand the rows of newer programs
		{Schema{3, 1, 3}, 3, true},
		{Schema{2, 1, 1}, 3, false}, // not migrated yet
		{Schema{}, 1, false},
	} {
		if err := c.schema.Admit(c.program, "the store"); (err == nil) != c.ok || err != nil && perdure.CodeOf(err) != perdure.CodeSchema {
			t.Errorf("%+v, program %d: %v", c.schema, c.program, err)
		}
	}
}

func TestSchemaAfterMigrations(t *testing.T) {
	var s Schema
	for version, text := range []string{"-- schema: min_reader 1, min_writer 1\ncreate table a", "-- add\n-- schema: min_reader 1, min_writer 1\n", "-- schema: min_reader 1, min_writer 3\n", "-- schema: min_reader 1, min_writer 1\n"} {
		var err error
		if s, err = s.After(version+1, text); err != nil {
			t.Fatal(err)
		}
	}
	if want := (Schema{4, 1, 3}); s != want {
		t.Errorf("%+v, want %+v: what one migration forbids, no later one allows", s, want)
	}
	for _, text := range []string{"", "-- schema: min_reader 2, min_writer 1\n", "-- schema: min_reader 1, min_writer 6\n"} {
		if _, err := s.After(5, text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
