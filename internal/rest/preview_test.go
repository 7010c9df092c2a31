package rest

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/rest/resttest"
	"github.com/perdure/perdure/operate"
)

// With dryRun, an act is previewed and not performed. The act is read in the same way.
func TestDryRunIsAPreview(t *testing.T) {
	done := perdure.Done
	for call, want := range map[string]perdure.Act{
		`undo `:                                 {Verb: "undo"},
		`redo {"reason":"r"}`:                   {Verb: "redo", Reason: "r"},
		`resume {}`:                             {Verb: "resume"},
		`giveUp `:                               {Verb: "giveUp"},
		`steps/charge/resume {"newKey":true}`:   {Verb: "resume", Step: "charge", NewKey: true},
		`steps/charge/edit {"input":{"a":1.0}}`: {Verb: "edit", Step: "charge", Input: []byte(`{"a":1.0}`)},
		`steps/charge/skip `:                    {Verb: "skip", Step: "charge"},
		`steps/a%20b/settle {"as":"done","output":1}`: {Verb: "settle", Step: "a b", As: &done, Output: []byte(`1`)},
	} {
		want.Author = "Zoë"
		path, body, _ := strings.Cut(call, " ")
		for query, previews := range map[string]bool{"?dryRun=true": true, "?dryRun": true, "?dryRun=false": false, "": false} {
			svc, previewed, acted := resttest.Full(), perdure.Act{}, perdure.Act{}
			svc.OnPreview = func(_ context.Context, ref string, act perdure.Act) (*operate.Preview, error) {
				if previewed = act; ref != "j" {
					t.Errorf("ref %q", ref)
				}
				return resttest.Preview(), nil
			}
			svc.OnAct = func(_ context.Context, _ string, act perdure.Act) (*perdure.JobView, error) {
				acted = act
				return resttest.Job(), nil
			}
			w := exchange(handler(svc), "POST /v1/jobs/j/"+path+query, body, "Perdure-Author: Zoë")
			got, other := previewed, acted
			if !previews {
				got, other = acted, previewed
			}
			if w.Code != 200 || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(other, perdure.Act{}) {
				t.Errorf("%s%s: %d, previewed %+v, acted %+v", path, query, w.Code, previewed, acted)
			}
		}
	}
}

// A preview keeps digits, characters and the order of steps. Times are UTC, and empty lists are lists.
func TestPreviewIsWritten(t *testing.T) {
	w := exchange(full(), "POST /v1/jobs/j/undo?dryRun=true", "")
	for _, want := range []string{
		`{"job":{"id":"` + someJob + `"`, `"unchanged":true`, `"submittedAt":"2026-01-02T15:04:05.123456Z"`,
		`},"effects":{"dispatch":["<ship>"],"settle":["mail"],"park":["print"],"waitFor":[{"step":"charge","until":"2026-01-02T15:04:05.123456Z"},{"step":"ask"}],` +
			`"withoutUndo":["notify"],"leftOut":{"dispatch":1,"settle":2,"park":3,"waitFor":4,"withoutUndo":5}}}` + "\n",
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("not JSON: %s", w.Body)
	}
	svc := resttest.Full()
	svc.OnPreview = func(context.Context, string, perdure.Act) (*operate.Preview, error) {
		return &operate.Preview{Job: &perdure.JobView{}}, nil
	}
	w = exchange(handler(svc), "POST /v1/jobs/j/undo?dryRun=true", "")
	if want := `"effects":{"dispatch":[],"settle":[],"park":[],"waitFor":[],"withoutUndo":[]}}`; !strings.Contains(w.Body.String(), want) {
		t.Errorf("no %s in %s", want, w.Body)
	}
}

// Bad input performs nothing, and previews nothing.
func TestBadDryRunIsRefused(t *testing.T) {
	for call, pointer := range map[string]string{
		"POST /v1/jobs/j/undo?dryRun=maybe":                       "/query/dryRun",
		"POST /v1/jobs/j/undo?dryRun=1":                           "/query/dryRun",
		"POST /v1/jobs/j/undo?dryRun=true&dryRun=true":            "/query/dryRun",
		"POST /v1/jobs/j/undo?dryrun=true":                        "/query/dryrun",
		"POST /v1/jobs/j/steps/charge/skip?dryRun=true&force=yes": "/query/force",
		"POST /v1/alerts/7/close?dryRun=true":                     "/query/dryRun",
		"POST /v1/validate?dryRun=true":                           "/query/dryRun",
	} {
		svc := &resttest.Service{}
		w := exchange(handler(svc), call, "")
		if p := problemIn(t, w); w.Code != 400 || len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %d %+v", call, w.Code, p.Errors)
		}
	}
	refusal := perdure.Refuse(perdure.CodeConflict, "run 3 is in flight")
	svc := resttest.Full()
	svc.OnPreview = func(context.Context, string, perdure.Act) (*operate.Preview, error) { return nil, refusal }
	w := exchange(handler(svc), "POST /v1/jobs/j/giveUp?dryRun=true", "")
	if p := problemIn(t, w); w.Code != 409 || p.Detail != refusal.Message {
		t.Errorf("%d %+v", w.Code, p)
	}
	if w := exchange(full(), "POST /v1/jobs/j/steps/a/settle?dryRun=true", `{"as":"unsure"}`); w.Code != 422 {
		t.Error(w.Code, w.Body)
	}
}

func TestValidateIsReadAsASubmission(t *testing.T) {
	for _, test := range []struct {
		contentType, body string
		status            int
		mediaType         string
	}{
		{"application/json", `{"type":"t"}`, 200, mediaJSON},
		{"application/yaml", "type: t\r\n", 200, mediaYAML},
		{"text/plain", "type: t", 415, ""},
		{"application/json", " ", 400, ""},
		{"application/json", strings.Repeat(" ", perdure.MaxDefinitionBytes+1), 413, ""},
	} {
		svc, got := resttest.Full(), ""
		svc.OnValidate = func(_ context.Context, body []byte, mediaType string) (*operate.Validation, error) {
			if got = mediaType; string(body) != test.body {
				t.Errorf("body %q", body)
			}
			return resttest.Validation(), nil
		}
		w := exchange(handler(svc), "POST /v1/validate", test.body, "Content-Type: "+test.contentType)
		if w.Code != test.status || got != test.mediaType {
			t.Errorf("%s %.20q: %d as %s", test.contentType, test.body, w.Code, got)
		}
	}
	svc := resttest.Full()
	svc.OnValidate = func(context.Context, []byte, string) (*operate.Validation, error) {
		return nil, &perdure.Error{Code: perdure.CodeInvalid, Message: "no", Fields: []perdure.FieldError{{Pointer: "/steps/a", Message: "no"}}}
	}
	if w := exchange(handler(svc), "POST /v1/validate", "{}"); w.Code != 422 || problemIn(t, w).Errors[0].Pointer != "/steps/a" {
		t.Error(w.Code, w.Body)
	}
	svc.OnValidate = func(context.Context, []byte, string) (*operate.Validation, error) {
		return &operate.Validation{Graph: resttest.Graph()}, nil
	}
	w := exchange(handler(svc), "POST /v1/validate", "{}")
	if want := `{"plan":{"steps":0,"longestPath":{"steps":0,"time":"0s"},"limits":[],"warnings":[]},"graph":{`; !strings.HasPrefix(w.Body.String(), want) {
		t.Errorf("%s", w.Body)
	}
}
