package kernel

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// head returns a share with steps n, n+1 and so on.
func head(value string, served int64, first, n int) ShareHead {
	h := ShareHead{Share: Share{ID: ShareIDOf(value), Value: value, Served: served}, Whole: true}
	for i := range n {
		h.Steps = append(h.Steps, Candidate{StepRef: StepRef{Index: first + i}})
	}
	return h
}

// Over any run of steps, two shares that both have more get runs in proportion to their weights, within one run of each.
func TestSharesGetRunsByTheirWeights(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		set := &perdure.AgentSettings{Weights: map[string]int{}}
		var heads []ShareHead
		highest := int64(0)
		for i := range 2 + r.IntN(8) {
			value := fmt.Sprintf("v%d", i)
			if r.IntN(2) == 0 {
				set.Weights[value] = 1 + r.IntN(9)
			}
			served := int64(r.IntN(5)) * FairUnit / 2
			highest = max(highest, served)
			heads = append(heads, head(value, served, 1000*i, 5+r.IntN(200)))
		}
		order, short, more := FairOrder(1000, heads, FairFloor(highest), set, nil)
		if short || more {
			t.Fatal("ends early")
		}
		got, total := make([]int, len(heads)), 0
		for _, h := range heads {
			total += len(h.Steps)
		}
		if len(order) != min(1000, total) {
			t.Fatalf("seed %d: %d of %d", seed, len(order), total)
		}
		from := make([]int, len(heads)) // when the numbers of all shares are settled: the differences of the beginning are used up
		for n, c := range order {
			i := c.Index / 1000
			if c.Index != 1000*i+got[i] {
				t.Fatalf("seed %d: steps of a share are not in order", seed)
			}
			got[i]++
			if n == 3*len(heads) {
				copy(from, got)
			}
			for a := range heads {
				for b := range heads {
					wa, wb := weightOf(set, heads[a].Value), weightOf(set, heads[b].Value)
					if got[a] == len(heads[a].Steps) || got[b] == len(heads[b].Steps) {
						continue
					}
					// Served so far, from where both began. They differ by a unit at the beginning, and by a run of each.
					x := max(heads[a].Served, FairFloor(highest)) + int64(got[a])*(FairUnit/wa)
					y := max(heads[b].Served, FairFloor(highest)) + int64(got[b])*(FairUnit/wb)
					if got[a] > 0 && x-y > FairUnit/wa+FairUnit {
						t.Fatalf("seed %d: after %d steps share %d is %d ahead of %d", seed, n, a, x-y, b)
					}
				}
			}
		}
	}
}

// The result is certain: it ends where unread steps or shares may come first.
func TestFairOrderIsCertain(t *testing.T) {
	set := &perdure.AgentSettings{}
	a, b := head("a", 5*FairUnit, 0, 2), head("b", 5*FairUnit, 1000, 5)
	a.Whole = false
	if order, short, _ := FairOrder(10, []ShareHead{a, b}, 0, set, nil); !short || len(order) > 5 {
		t.Error(order, short)
	}
	a.Whole = true
	end := Share{ID: 1, Served: 7 * FairUnit}
	order, short, more := FairOrder(10, []ShareHead{a, b}, 0, set, &end)
	if short || !more || len(order) != 5 {
		t.Error(order, short, more)
	}
	if order, _, more := FairOrder(4, []ShareHead{a, b}, 0, set, &end); more || len(order) != 4 {
		t.Error(order, more)
	}
	if order, _, more := FairOrder(10, []ShareHead{a, b}, 8*FairUnit, set, &end); !more || len(order) != 2 { // all are at the floor
		t.Error(order, more)
	}
}

// What a share is charged begins at the floor.
func TestChargeBeginsAtTheFloor(t *testing.T) {
	c := Charge{Amount: 3}
	if got := []int64{c.Served(10, 4), c.Served(4, 10), FairFloor(5), FairFloor(3*FairUnit + 1)}; !slices.Equal(got, []int64{13, 13, 0, 2*FairUnit + 1}) {
		t.Error(got)
	}
}

// A share is a part of what a step needs, beside permits and a demand, and is no permit (F332).
func TestShareAmongNeeds(t *testing.T) {
	for _, needs := range []Needs{"", `[{"name":"ads","key":"a"}]`, `[{"name":"host:cpu=1000;;"}]`, `[{"name":"ads"},{"name":"host:cpu=1000;;"}]`, `[{"name":"ads","job":true}]`} {
		for _, value := range []string{"gold", "a\"b\\", "{\"name\":\"host:x\"}", "ö]}", "1"} {
			n := needs.WithShare(value)
			if n.Share() != value || n.Demand() != needs.Demand() || !slices.Equal(n.List(), needs.List()) || !json.Valid([]byte(n)) {
				t.Errorf("%s with %q: %s", needs, value, n)
			}
			if n.WithShare("") != needs || n.WithShare("b").WithShare(value) != n {
				t.Errorf("%s with %q: %s", needs, value, n.WithShare(""))
			}
			if d := n.withDemand("slots=1;;"); d.Share() != value || d.Demand() != "slots=1;;" || d.withDemand(needs.Demand()) != n {
				t.Errorf("%s: %s", n, d)
			}
			if w := n.withJob(`[{"name":"m"}]`); w.Share() != value || w.withoutJob() != n.withoutJob() {
				t.Errorf("%s: %s", n, w)
			}
			s := &Step{Type: "t", Agent: "a", Phase: perdure.Ready, Needs: n}
			l, ok := LaneFor(s)
			s.Needs = n.WithShare("other")
			other, _ := LaneFor(s)
			if !ok || l.Share != ShareIDOf(value) || l.Class < 0 || l.Lane.Plain() || l.Kind != other.Kind || l.Class == other.Class || l.Lane == other.Lane {
				t.Errorf("%s: %+v, %+v", n, l, other)
			}
		}
	}
}

// Values that are no text, number, true or false have no share; long ones and those with control characters are cut, and
// remain different (F332).
func TestShareOfValue(t *testing.T) {
	long := strings.Repeat("ö", 200)
	for value, want := range map[string]string{`"gold"`: "gold", `12.50`: "12.50", `true`: "true", `null`: "", `""`: "", `{"a":1}`: "", `[1]`: ""} {
		if got := shareText(json.RawMessage(value)); got != want {
			t.Errorf("%s: %q", value, got)
		}
	}
	seen := map[string]bool{}
	for _, value := range []string{long, long + "a", "a\nb", "a\tb", "x" + long} {
		quoted, _ := json.Marshal(value)
		got := shareText(quoted)
		if seen[got] || CheckLimitKey(got) != nil || got != shareText(quoted) {
			t.Errorf("%q: %q: %v", value, got, CheckLimitKey(got))
		}
		seen[got] = true
	}
}
