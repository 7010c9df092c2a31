package rows

import (
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/perdure/perdure/internal/kernel"
)

// Every field of a job and a step has exactly one column of its kind, except fields that never change.
func TestEachFieldHasOneColumn(t *testing.T) {
	kinds := map[Kind][]reflect.Kind{Small: {reflect.Uint8}, Flag: {reflect.Bool}, Int: {reflect.Int}, Number: {reflect.Int64},
		Text: {reflect.String}, Word: {reflect.String}, Time: {reflect.Struct}, Span: {reflect.Int64}}
	for _, c := range []struct {
		row   reflect.Type
		job   bool
		fixed []string
	}{
		{reflect.TypeFor[kernel.Step](), false, []string{"StepRef", "Name", "Type", "Priority"}},
		{reflect.TypeFor[kernel.Job](), true, []string{"ID", "Key", "Type", "Priority", "Labels", "States", "Hash", "Shape", "Input", "InputStoredApart", "CreatedAt"}},
	} {
		at := map[uintptr]ID{}
		for id := firstChanging; id < All; id++ {
			if Columns[id].Job == c.job {
				if other, exists := at[Columns[id].offset]; exists {
					t.Errorf("%s and %s are the same field", Columns[other].Name, Columns[id].Name)
				}
				at[Columns[id].offset] = id
			}
		}
		fixed := map[string]bool{}
		for _, name := range c.fixed {
			fixed[name] = true
		}
		for i := range c.row.NumField() {
			f := c.row.Field(i)
			id, exists := at[f.Offset]
			switch {
			case fixed[f.Name]:
			case !exists:
				t.Errorf("%s.%s has no column: it would not be stored", c.row.Name(), f.Name)
			case kinds[Columns[id].Kind][0] != f.Type.Kind():
				t.Errorf("%s.%s is a %s, but column %s is of kind %d", c.row.Name(), f.Name, f.Type, Columns[id].Name, Columns[id].Kind)
			}
			delete(at, f.Offset)
		}
		if len(at) > 0 {
			t.Errorf("columns without a field: %v", at)
		}
	}
	if All > 100 {
		t.Errorf("%d columns leave no room for those of the stores", All)
	}
}

// A difference is found in the column that has it and in no other, and each value that is set is read back.
func TestDiffFindsTheChangedColumn(t *testing.T) {
	for id := firstChanging; id < All; id++ {
		c := &Columns[id]
		var a, b struct {
			j kernel.Job
			s kernel.Step
		}
		row := RowOf(&a.j, &a.s)
		switch c.Kind {
		case Text, Word:
			if row.SetText(c, "x"); row.Text(c) != "x" {
				t.Errorf("%s: %q", c.Name, row.Text(c))
			}
		case Time:
			if row.SetTime(c, time.UnixMicro(7)); !row.Time(c).Equal(time.UnixMicro(7)) {
				t.Errorf("%s: %s", c.Name, row.Time(c))
			}
		default:
			if row.SetInt(c, 1); row.Int(c) != 1 {
				t.Errorf("%s: %d", c.Name, row.Int(c))
			}
		}
		if found := DiffJobs(&a.j, &b.j).Or(DiffSteps(&a.s, &b.s)); found != SetOf(id) {
			t.Errorf("%s: the difference is in %v", c.Name, found)
		}
		if c.offset >= max(unsafe.Sizeof(a.j), unsafe.Sizeof(a.s)) {
			t.Errorf("the offset of %s is outside its struct", c.Name)
		}
	}
	s := SetOf(Job, 64, MaxID)
	var ids []ID
	for id := range s.IDs {
		ids = append(ids, id)
	}
	if len(ids) != 3 || ids[0] != Job || ids[1] != 64 || ids[2] != MaxID || s.Len() != 3 || s.Has(63) || !s.Has(64) {
		t.Errorf("%v of %v", ids, s)
	}
}
