package definition

import (
	"encoding/json"
	"testing"

	"github.com/perdure/perdure"
)

// Locate finds the places of faults in another file than a definition, and orders them as they stand there. The place of what
// is missing is that of what should have it.
func TestLocate(t *testing.T) {
	src := []byte("name: x\njob:\n  input: [1, {a~b: 2}]\n")
	err := Locate(src, YAML, &perdure.Error{Code: perdure.CodeInvalid, Fields: []perdure.FieldError{
		{Pointer: "/job/input/1/a~0b", Message: "is small"}, {Pointer: "/job/definition", Message: "is required"}, {Pointer: "/name", Message: "is short"},
	}})
	want := `f:1:7: name: is short
    name: x
          ^
f:3:3: job.definition: is required
      input: [1, {a~b: 2}]
      ^
f:3:20: job.input.1.a~0b: is small
      input: [1, {a~b: 2}]
                       ^
`
	if got := FormatError("f", src, err); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// A value that was given beside the text has no line: its fault names the field.
func TestFaultOfAValueBesideTheText(t *testing.T) {
	src := []byte("type: t\ninput: {sku: 7}\ninputSchema: {properties: {sku: {type: integer}}}\nsteps: {a: {agent: x}}\n")
	_, err := Parse(src, YAML, Options{Input: map[string]json.RawMessage{"sku": json.RawMessage(`"x"`)}})
	want := "f: /input/sku: does not fit inputSchema: got string, want integer\n"
	if got := FormatError("f", src, err); got != want {
		t.Errorf("%s\nwant: %s", got, want)
	}
	if want := "/input/sku: does not fit inputSchema: got string, want integer"; err.Error() != want {
		t.Errorf("%s; want: %s", err, want)
	}
}
