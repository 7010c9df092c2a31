package ledger

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func do(step, key string, run int64, before ...string) Call {
	c := Call{Place: Place{"job", step}, Key: key, Run: run, Before: before}
	for range before {
		c.From = append(c.From, Token("k"))
	}
	return c
}

func undo(step, doKey string, run int64, before ...string) Call {
	return Call{Place: Place{"job", step}, Undo: true, Key: doKey + "/undo", DoKey: doKey, Run: run, Before: before}
}

// with returns the call with other values.
func with(c Call, from ...string) Call {
	c.From, c.Body = from, strings.Join(from, " ")
	return c
}

// A correct history has no fault, however often it is checked, and each violation is reported.
func TestFaultsOfAHistoryAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		calls []Call
		want  string // of the first fault; "": none
	}{
		"done":                       {[]Call{do("a", "k", 1), do("b", "l", 1, "a")}, ""},
		"repeated":                   {[]Call{do("a", "k", 1), do("a", "k", 2), do("a", "k", 2)}, ""},
		"undone, and done again":     {[]Call{do("a", "k", 1), undo("a", "k", 2), do("a", "m", 3)}, ""},
		"undone before it was done":  {[]Call{undo("a", "k", 2), do("a", "k", 1)}, ""},
		"two effects":                {[]Call{do("a", "k", 1), do("a", "l", 2)}, "other effects hold"},
		"too early":                  {[]Call{do("b", "l", 1, "a")}, "done before a (I9)"},
		"undone too early":           {[]Call{do("a", "k", 1), do("b", "l", 1, "a"), undo("a", "k", 2, "b")}, "undone before b (I10)"},
		"a run with two keys":        {[]Call{do("a", "k", 1), undo("a", "k", 2), do("a", "l", 2)}, "under two keys"},
		"undone with its output":     {[]Call{do("a", "k", 1), do("b", "l", 1, "a"), with(undo("b", "l", 2), Token("l")), with(undo("a", "k", 2), Token("k"))}, ""},
		"null for an output":         {[]Call{do("a", "k", 1), with(do("b", "l", 1, "a"), "")}, "a has put out"},
		"no values":                  {[]Call{do("a", "k", 1), with(do("b", "l", 1, "a"))}, "a has put out"},
		"an older output":            {[]Call{do("a", "k", 1), undo("a", "k", 2), do("a", "m", 3), do("b", "l", 1, "a")}, "a has put out"},
		"undone without its output":  {[]Call{do("a", "k", 1), do("b", "l", 1, "a"), undo("b", "l", 2), undo("a", "k", 2)}, "undone with"},
		"undone with another's":      {[]Call{do("a", "k", 1), with(undo("a", "k", 2), Token("l"))}, "its do has put out"},
		"undone with what never was": {[]Call{with(undo("a", "k", 2), Token("k"))}, "its do has put out"},
		"a key with two bodies":      {[]Call{with(do("a", "k", 1), "x"), with(do("a", "k", 2), "y")}, "comes with y"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			for _, call := range c.calls {
				l.Act(call)
			}
			faults := strings.Join(l.Faults(), "; ")
			if c.want == "" && faults != "" || !strings.Contains(faults, c.want) {
				t.Errorf("got %q, want %q", faults, c.want)
			}
		})
	}
}

func TestAuditComparesEffectsWithTheState(t *testing.T) {
	l := New()
	l.Act(do("a", "k", 1))
	if f := l.Audit("job", true, "a"); len(f) > 0 {
		t.Error(f)
	}
	if f := l.Audit("job", true, "a", "b"); len(f) != 1 {
		t.Errorf("b was never done: %v", f)
	}
	if f := l.Audit("job", false, "a"); len(f) != 1 {
		t.Errorf("a was never undone: %v", f)
	}
	l.Act(undo("a", "k", 3))
	if l.Act(do("a", "k", 2)) != Overtaken || l.Counts().Fenced != 1 {
		t.Error("a run that was overtaken has acted")
	}
	if f := l.Audit("job", false, "a"); len(f) > 0 {
		t.Error(f)
	}
}

func TestServiceActsAndRefuses(t *testing.T) {
	l := New()
	s := httptest.NewServer(l)
	defer s.Close()
	ask := func(mood, run string) int {
		r, _ := http.NewRequest(http.MethodPost, s.URL+"/?job=j&step=a&mood="+mood, nil)
		r.Header.Set("Perdure-Run", run)
		r.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		mood, run string
		want      int
	}{{"fail", "1", 500}, {"refuse", "2", 422}, {"", "3", 200}, {"", "2", 409}, {"dawdle", "4", 200}, {"", "x", 400}} {
		if got := ask(c.mood, c.run); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if f := append(l.Faults(), l.Audit("j", true, "a")...); len(f) > 0 || l.Counts().Repeats != 1 || l.Counts().Fenced != 1 {
		t.Errorf("%v, %d, %d", f, l.Counts().Repeats, l.Counts().Fenced)
	}
}
