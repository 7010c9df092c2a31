package rest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/perdure/perdure"
)

// A job is written in one pass, byte for byte as encoding/json writes it.
func TestJobIsEncodedAsJSON(t *testing.T) {
	done := perdure.Done
	for name, job := range map[string]*perdure.JobView{
		"no steps": {Type: "t", Labels: map[string]string{"a": "<b>"}},
		"steps": {Type: "t", Then: &done, Input: json.RawMessage(`{"a": "<&>"}`), Alerts: []perdure.AlertView{{ID: 1, Message: "m"}},
			Steps: perdure.StepViews{{Name: "a", Output: json.RawMessage(`{"x": [1, 2]}`)}, {Name: "b-2", LastError: &perdure.RunError{Message: "\u2028"}}}},
	} {
		var got, want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(job); err != nil {
			t.Fatal(err)
		}
		if err := encodeJSON(&got, job); err != nil || got.String() != want.String() {
			t.Errorf("%s: %v\n%s\n%s", name, err, &got, &want)
		}
	}
}
