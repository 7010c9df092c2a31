package kernel

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/perdure/perdure"
)

// Schema says which programs may use a store. A program has the number of its last migration. An older program may go
// on to use a store that was migrated by a newer one if the migrations in between allow it; so two versions can run side
// by side during an upgrade.
type Schema struct {
	Version   int // of the last migration that was applied
	MinReader int // the oldest program that reads the store correctly
	MinWriter int // the oldest program that may write to it: a node, and every command that changes something
}

var schemaLine = regexp.MustCompile(`(?m)^-- schema: min_reader (\d+), min_writer (\d+)$`)

// After is the schema once a migration is applied, whose text says which programs it allows:
//
//	-- schema: min_reader 1, min_writer 2
func (s Schema) After(version int, migration string) (Schema, error) {
	found := schemaLine.FindStringSubmatch(migration)
	if found == nil {
		return s, fmt.Errorf("migration %d does not say which programs it allows", version)
	}
	reader, _ := strconv.Atoi(found[1])
	writer, _ := strconv.Atoi(found[2])
	if reader > writer || writer > version {
		return s, fmt.Errorf("migration %d allows readers from %d and writers from %d", version, reader, writer)
	}
	return Schema{version, max(s.MinReader, reader), max(s.MinWriter, writer)}, nil
}

// Admit refuses a program that may not write to the store. store names it in the message.
func (s Schema) Admit(program int, store string) error {
	switch {
	case s.Version < program:
		return &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("%s has schema version %d, and this program needs %d", store, s.Version, program),
			Hint:    "run `perdure migrate`, or start with --migrate"}
	case program < s.MinWriter:
		return &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("%s has schema version %d, which programs of version %d may not write to: they must have %d at least", store, s.Version, program, s.MinWriter),
			Hint:    "use a newer perdure; a schema does not go back"}
	}
	return nil
}
