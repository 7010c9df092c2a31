package store_test

import (
	"context"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
)

func TestOpenSelectsTheStoreByURL(t *testing.T) {
	url := pgtest.Start(t)
	for _, c := range []struct {
		url  string
		opts []store.Option
		code perdure.Code
	}{
		{"sqlite:" + t.TempDir() + "/f.db", nil, ""},
		{"sqlite:" + t.TempDir() + "/g.db", []store.Option{store.Migrated}, ""},
		{"sqlite:", nil, perdure.CodeInvalid},
		{store.Memory, []store.Option{store.Migrated}, ""},
		{url, nil, perdure.CodeSchema},
		{url, []store.Option{store.Migrated}, ""},
		{url, nil, ""},
		{"mysql://h/d", []store.Option{store.Migrated}, perdure.CodeInvalid},
		{"", nil, perdure.CodeInvalid},
		{"shop.db", nil, perdure.CodeInvalid}, // a path needs the prefix sqlite:
	} {
		s, err := store.Open(t.Context(), c.url, c.opts...)
		if perdure.CodeOf(err) != c.code || (err == nil) != (s != nil) {
			t.Errorf("%s: %v, %v", c.url, s, err)
		}
		if err != nil {
			continue
		}
		if _, err := s.Now(context.Background()); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
