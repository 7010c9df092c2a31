package perdure_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// The message of a refused definition names the errors in the order in which Fields lists them.
func TestMessageAndFieldsHaveOneOrder(t *testing.T) {
	e := (&perdure.Error{Code: perdure.CodeInvalid, Fields: []perdure.FieldError{
		{Pointer: "/bogus", Line: 1, Message: "first in the text"},
		{Pointer: "/steps/a/with/url", Line: 4, Message: "deepest"},
		{Pointer: "/steps/b", Line: 9, Message: "last in the text"},
	}}).WithoutLines()
	at := -1
	for _, f := range e.Fields {
		next := strings.Index(e.Message, f.Pointer+": "+f.Message)
		if next <= at {
			t.Errorf("%q is not in the order of %v", e.Message, e.Fields)
		}
		at = next
	}
	if e.Fields[0].Message != "deepest" {
		t.Errorf("the first error is %q, want the deepest", e.Fields[0].Message)
	}
}
