package kernel

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/perdure/perdure"
)

// Schema determines which programs may use a store. The number of a program is that of its last migration. An older
// program may continue to use a store that a newer one has migrated if the migrations in between allow it. So two
// versions can run at the same time during an upgrade.
type Schema struct {
	Version   int // the last migration that was applied
	MinReader int // the oldest program that can read the store correctly
	MinWriter int // the oldest program that may write to it: as a node, or with a command that changes something
}

var schemaLine = regexp.MustCompile(`(?m)^-- schema: min_reader (\d+), min_writer (\d+)$`)

// After returns the schema once a migration is applied. The text of a migration has a line that gives the oldest
// programs that it allows:
//
//	-- schema: min_reader 1, min_writer 2
func (s Schema) After(version int, migration string) (Schema, error) {
	found := schemaLine.FindStringSubmatch(migration)
	if found == nil {
		return s, fmt.Errorf("migration %d has no line \"-- schema: min_reader N, min_writer N\"", version)
	}
	reader, _ := strconv.Atoi(found[1])
	writer, _ := strconv.Atoi(found[2])
	if reader > writer || writer > version {
		return s, fmt.Errorf("migration %d allows readers from %d and writers from %d", version, reader, writer)
	}
	return Schema{version, max(s.MinReader, reader), max(s.MinWriter, writer)}, nil
}

// Admit returns an error if a program may not write to the store. store names the store in the message.
func (s Schema) Admit(program int, store string) error {
	switch {
	case s.Version < program:
		return &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("%s has schema version %d, and this program needs %d", store, s.Version, program),
			Hint:    "run `perdure migrate`, or start with --migrate"}
	case program < s.MinWriter:
		return &perdure.Error{Code: perdure.CodeSchema,
			Message: fmt.Sprintf("%s has schema version %d, which needs a program of version %d at least; this program has %d", store, s.Version, s.MinWriter, program),
			Hint:    "use a newer perdure; a schema cannot be downgraded"}
	}
	return nil
}
