package operate_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

// A bulk act that could succeed on no job is refused as a whole, at the field that is wrong, and with what to do.
func TestBulkRequestThatCanNeverSucceedIsRefused(t *testing.T) {
	done, unsure := perdure.Done, perdure.Unsure
	large := json.RawMessage(`"` + strings.Repeat("x", perdure.MaxPayloadBytes) + `"`)
	now := time.Now()
	for _, c := range []struct {
		pointer string
		code    perdure.Code
		edit    func(*operate.BulkRequest)
	}{
		{"/act", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act = "delete" }},
		{"/step", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act = perdure.VerbUndo }},
		{"/step", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Step = "" }},
		{"/step", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Step = "a b" }},
		{"/step", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Step = "charge\n" }},
		{"/step", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Step = strings.Repeat("s", perdure.MaxNameLength+1) }},
		{"/as", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.As = &done }},
		{"/as", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act, r.Input = perdure.VerbSettle, nil }},
		{"/as", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act, r.Input, r.As = perdure.VerbSettle, nil, &unsure }},
		{"/output", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Output = json.RawMessage(`1`) }},
		{"/output", perdure.CodeTooLarge, func(r *operate.BulkRequest) {
			r.Act, r.Input, r.As, r.Output = perdure.VerbSettle, nil, &done, large
		}},
		{"/input", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act = perdure.VerbSkip }},
		{"/input", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Input = nil }},
		{"/input", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Input = json.RawMessage{} }},
		{"/input", perdure.CodeTooLarge, func(r *operate.BulkRequest) { r.Input = large }},
		{"/newKey", perdure.CodeInvalid, func(r *operate.BulkRequest) { r.Act, r.Step, r.Input, r.NewKey = perdure.VerbUndo, "", nil, true }},
		{"/filter/since", perdure.CodeInvalid, func(r *operate.BulkRequest) {
			r.Filter.Since, r.Filter.Until = now, now.Add(-time.Second)
		}},
	} {
		r := operate.BulkRequest{Act: perdure.VerbEdit, Step: "charge", Input: json.RawMessage(`{}`), Filter: &operate.BulkFilter{Type: "order"}, Reason: "r"}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		c.edit(&r)
		err := r.Check()
		var e *perdure.Error
		if !errors.As(err, &e) || e.Code != c.code || len(e.Fields) != 1 || e.Fields[0].Pointer != c.pointer || e.Hint == "" || e.Fields[0].Hint == "" {
			t.Errorf("%s: %+v", c.pointer, err)
		}
	}
	r := operate.BulkRequest{Act: perdure.VerbEdit, Step: "charge", NewKey: true, IDs: []string{"order-1"}, Reason: "r"}
	if err := r.Check(); err != nil {
		t.Errorf("an edit with a new key: %v", err)
	}
}

// A filter that a bulk act forgets would make it act on other jobs than those that a list with the same filter shows.
func TestEachFilterOfAListIsOneOfBulkActs(t *testing.T) {
	ofLists := []string{"OldestFirst", "WithCount", "WithSummary", "Limit", "Cursor"}
	query := reflect.TypeFor[perdure.JobQuery]()
	for i := range query.NumField() {
		name := query.Field(i).Name
		if slices.Contains(ofLists, name) {
			continue
		}
		var q perdure.JobQuery
		switch f := reflect.ValueOf(&q).Elem().Field(i); f.Interface().(type) {
		case []perdure.Phase:
			f.Set(reflect.ValueOf([]perdure.Phase{perdure.Parked}))
		case *perdure.State:
			f.Set(reflect.ValueOf(new(perdure.Done)))
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"a": "b"}))
		case time.Time:
			f.Set(reflect.ValueOf(time.Now()))
		default:
			f.SetString("x")
		}
		filter := operate.FilterOf(&q)
		if got := filter.Query(); filter.IsEmpty() || !reflect.DeepEqual(got, q) {
			t.Errorf("%s: the filter %+v gives the query %+v", name, filter, got)
		}
	}
}
