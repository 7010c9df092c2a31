package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// story is a shop's records in short: the orders asked for, the orders that the shop accepted and was notified of ("a+"
// is done, "a-" undone), and one line "service kind order turn" after another, as time goes by.
func story(asked, taken string, lines ...string) Records {
	r := Records{Asked: strings.Fields(asked), Ledgers: map[string][]Entry{}}
	for _, id := range strings.Fields(taken) {
		id, done := strings.CutSuffix(id, "+")
		id, undone := strings.CutSuffix(id, "-")
		r.Taken = append(r.Taken, id)
		if done {
			r.Done = append(r.Done, id)
		}
		if undone {
			r.Undone = append(r.Undone, id)
		}
	}
	for i, line := range lines {
		var service, kind, order string
		turn := 1
		fmt.Sscan(line, &service, &kind, &order, &turn)
		r.Ledgers[service] = append(r.Ledgers[service], Entry{
			At: time.Unix(int64(i), 0), Kind: Kind(kind), Order: order,
			Key: fmt.Sprintf("job_%s/%s/%d", order, service, turn),
		})
	}
	return r
}

var whole = []string{"stock effect a", "payment effect a", "shipping effect a"}

func TestAudit(t *testing.T) {
	for _, c := range []struct {
		name   string
		r      Records
		end    End
		faults string // a part of each, in order, divided by |
	}{
		{"processed", story("a", "a+", whole...), Processed, ""},
		{"undone", story("a", "a-", "stock effect a", "payment effect a", "shipping tombstone a", "payment undone a", "stock undone a"), TakenBack, ""},
		{"refused at once", story("a", "a-", "stock refused a"), TakenBack, ""},
		{"overtaken by its undo", story("a", "a-", "stock asked a", "stock tombstone a", "stock tooLate a"), TakenBack, ""},

		{"missing undo", story("a", "a-", "stock effect a", "payment effect a", "payment undone a"), Half, "half done: with stock, without payment and shipping|notified otherwise"},
		{"missing step", story("a", "a-", "stock effect a", "payment effect a"), Half, "half done: with stock and payment"},
		{"double effect", story("a", "a+", append(whole, "payment effect a")...), Processed, "2 effects under key|payment: 2 effects stand"},
		{"two keys, two effects", story("a", "a+", append(whole, "payment effect a 3")...), Processed, "payment: 2 effects stand"},
		{"lost before it was taken on", story("a", "", ""), Lost, "taken on 0 times|lost"},
		{"lost afterwards", story("a", "a", "stock asked a"), Lost, "the shop was notified 0 times|lost"},
		{"never reached a service", story("a", "a-", "stock asked a"), TakenBack, ""},
		{"reported done", story("a", "a+", "stock asked a"), Lost, "lost|notified otherwise"},
		{"reported undone", story("a", "a-", whole...), Processed, "notified otherwise"},
		{"not notified", story("a", "a", whole...), Processed, "the shop was notified 0 times"},
		{"extra", story("", "", whole...), Processed, "asked for 0 times|taken on 0 times"},
		{"taken on twice", story("a", "a+ a+", whole...), Processed, "taken on 2 times"},
		{"effect after undo", story("a", "a-", "stock effect a", "stock undone a", "stock effect a"), Half, "2 effects under key|effect after its undo|half done"},
		{"effect after tombstone", story("a", "a-", "stock tombstone a", "stock effect a"), Half, "effect after its undo|half done"},
		{"undone twice", story("a", "a-", "stock effect a", "stock undone a", "stock undone a"), Half, "undone 2 times|stock: -1 effects stand|half done"},
		{"undone without effect", story("a", "a-", "stock undone a"), Half, "undone without an effect|stock: -1 effects stand|half done"},
		{"processed and undone", story("a", "a+", append(whole, "payment undone a", "payment effect a 3")...), Processed, "although something of it was undone"},
		{"wrong order", story("a", "a+", "payment effect a", "stock effect a", "shipping effect a"), Processed, "payment happened before stock"},
		{"wrong order back", story("a", "a-", "stock effect a", "payment effect a", "stock undone a", "payment undone a"), TakenBack, "stock was undone before payment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings := Audit(c.r)
			if len(findings) != 1 {
				t.Fatalf("%d findings: %+v", len(findings), findings)
			}
			f := findings[0]
			if f.End != c.end {
				t.Errorf("ended %s, want %s", f.End, c.end)
			}
			var want []string
			if c.faults != "" {
				want = strings.Split(c.faults, "|")
			}
			if len(f.Faults) < len(want) || len(want) == 0 && len(f.Faults) > 0 {
				t.Fatalf("faults %q, want %q", f.Faults, want)
			}
			for _, w := range want {
				if !strings.Contains(strings.Join(f.Faults, "\n"), w) {
					t.Errorf("faults %q are without %q", f.Faults, w)
				}
			}
			if well := printAudit(io.Discard, c.r, findings); well != (c.faults == "") {
				t.Errorf("the verdict is %v", well)
			}
		})
	}
}

func TestAuditOfNothing(t *testing.T) {
	if printAudit(io.Discard, Records{}, Audit(Records{})) {
		t.Error("no orders at all, and all is well?")
	}
}

func TestAuditKeepsKeysApart(t *testing.T) {
	r := story("a b", "a+ b-", append(whole, "stock effect b", "payment refused b", "stock undone b")...)
	r.Ledgers["stock"][1].Key = r.Ledgers["stock"][0].Key // of b, under a's
	if printAudit(io.Discard, r, Audit(r)) {
		t.Error("two orders under one key, and all is well?")
	}
}
