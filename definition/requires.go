package definition

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/plain"
)

// requires reads what a step requires of its host.
func (d *decoder) requires(n *text.Node, p *text.Pointer) *perdure.Requires {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object such as {cpu: 2, memory: 4GiB}")
		return nil
	}
	r := &perdure.Requires{}
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		switch k.Name {
		case "labels":
			r.Labels = d.hostLabels(v, p, true)
		case "grid":
			if d.string(v, p) {
				d.hostWord(v.Text, v.At, p, "the grid")
				r.Grid = v.Text
			}
		default:
			d.amount(r, k, v, p)
		}
	}
	if len(r.Amounts) > perdure.MaxAmounts {
		d.AddTooLarge(p, n.At, "%d amounts; at most %d", len(r.Amounts), perdure.MaxAmounts)
	}
	if size := len(kernel.DemandOf(r)); size > perdure.MaxDemandBytes {
		d.AddTooLarge(p, n.At, "%d bytes; at most %d", size, perdure.MaxDemandBytes)
	}
	return r
}

// amount reads an amount that a step requires.
func (d *decoder) amount(r *perdure.Requires, k text.Key, v *text.Node, p *text.Pointer) {
	d.hostWord(k.Name, k.At, p, "the name")
	memory := k.Name == plain.AmountMemory
	if v.Kind != text.Number && (!memory || v.Kind != text.String) {
		f := d.mismatch(v, p, "a number")
		if strings.Contains(v.Text, "${") {
			f.WithHint("what a step requires cannot be computed")
		}
		return
	}
	amount, err := plain.ParseAmount(k.Name, v.Text)
	switch {
	case err != nil:
		d.Add(p, v.At, "%s %s", text.Quote(v.Text), err.Error())
	case amount == 0:
		d.Add(p, v.At, "%s is above 0", k.Name).WithHint("leave it out if the step needs none")
	}
	if r.Amounts == nil {
		r.Amounts = perdure.Amounts{}
	}
	r.Amounts[k.Name] = amount
}

// prefers reads the labels of the hosts that a step prefers.
func (d *decoder) prefers(n *text.Node, p *text.Pointer) *kernel.Preferences {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object such as {labels: {cache: warm}}")
		return nil
	}
	w := &kernel.Preferences{}
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		if k.Name != "labels" {
			d.unknown(prefersFields, "prefers", k, p)
			continue
		}
		w.Labels = d.hostLabels(v, p, true)
	}
	if n.Get("labels") == nil {
		d.Add(p, n.At, "`labels` is missing").WithHint("prefers: {labels: {cache: warm}}")
	}
	return w
}

// place reads how a host is chosen among those that fit.
func (d *decoder) place(n *text.Node, p *text.Pointer) string {
	switch {
	case !d.string(n, p):
	case n.Text != kernel.PlacePack && n.Text != kernel.PlaceSpread:
		d.Add(p, n.At, "unknown place %s", text.Quote(n.Text)).WithHint("pack fills one host after the other, spread the emptiest first")
	}
	return n.Text
}

// hostLabels reads labels of hosts. If anyValue is true, a value may be *.
func (d *decoder) hostLabels(n *text.Node, p *text.Pointer, anyValue bool) map[string]string {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object of text")
		return nil
	}
	if len(n.Kids) > perdure.MaxLabels {
		d.AddTooLarge(p, n.At, "%d labels; at most %d", len(n.Kids), perdure.MaxLabels)
		return nil
	}
	if len(n.Kids) == 0 {
		return nil
	}
	labels := make(map[string]string, len(n.Kids))
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		d.hostWord(k.Name, k.At, p, "the name of the label")
		if d.string(v, p) && !(anyValue && v.Text == "*") {
			d.hostWord(v.Text, v.At, p, "the value of the label")
		}
		labels[k.Name] = v.Text
	}
	return labels
}

func (d *decoder) hostWord(word string, at int32, p *text.Pointer, what string) {
	if err := plain.CheckHostWord(word); err != nil && !d.stored {
		d.Add(p, at, "%s %s", what, err.Error())
	}
}

// sameHost reads whether a step is undone on the host that has done it.
func (d *decoder) sameHost(n *text.Node, p *text.Pointer) string {
	if d.string(n, p) {
		switch n.Text {
		case kernel.SameHostPrefer, kernel.SameHostRequire, kernel.SameHostAny:
			return n.Text
		}
		d.Add(p, n.At, "unknown sameHost %s", text.Quote(n.Text)).WithHint("prefer: the host that has done the step goes first; require: no other; any: all are equal")
	}
	return ""
}

// placement refuses words about hosts that have no effect.
func (d *decoder) placement(s *kernel.StepDefinition, src *stepSource) {
	if u := s.Undo; u != nil && u.SameHost != "" && !d.stored {
		agent := cmp.Or(u.Agent, s.Agent)
		if agent != kernel.AgentExec && (s.Requires == nil || agent != s.Agent) {
			d.Add(src.pointer.Member("undo").Member("sameHost"), src.undoAt, "`sameHost` has no effect: the undo runs on no host").WithHint("leave it out")
		}
	}
	if s.Requires != nil || s.Agent == kernel.AgentExec || d.stored {
		return
	}
	for _, k := range src.node.Keys {
		if k.Name == "prefers" || k.Name == "place" {
			d.Add(src.pointer.Member(k.Name), k.At, "`%s` has no effect without `requires`", k.Name).WithHint("requires: {slots: 1} makes the step run on a host")
		}
	}
}

// stopWithin reads the time between TERM and KILL.
func (d *decoder) stopWithin(n *text.Node, p *text.Pointer) perdure.Duration {
	within := d.duration(n, p)
	if time.Duration(within) > perdure.MaxStopWithin && !d.stored {
		d.Add(p, n.At, "%s is over %s", within, plain.Duration(perdure.MaxStopWithin)).WithHint("a program that needs longer to stop should save its state earlier")
	}
	return within
}

// signsOfLife refuses a heartbeat, and a completeWithin, that leave no time to stop the program before the lock ends.
func (d *decoder) signsOfLife(s *kernel.StepDefinition, src *stepSource) {
	if d.stored {
		return
	}
	if within := cmp.Or(s.CompleteWithin, perdure.Duration(perdure.DefaultCompleteWithin)); within < 2*s.StopWithin {
		d.Add(src.pointer.Member("stopWithin"), src.node.Get("stopWithin").At, "stopWithin %s is more than half of completeWithin, which is %s", s.StopWithin, within).
			WithHint("completeWithin: %s, or a shorter stopWithin; without stopWithin, a program has at most a quarter of completeWithin to stop", 2*s.StopWithin)
	}
	if s.Heartbeat == 0 || s.Heartbeat >= 2*s.StopWithin {
		return
	}
	d.Add(src.pointer.Member("heartbeat"), src.node.Get("heartbeat").At, "heartbeat %s is less than twice stopWithin %s", s.Heartbeat, s.StopWithin).
		WithHint("heartbeat: %s, or leave it out", 2*s.StopWithin)
}

func appendSignsOfLife(b []byte, s *kernel.StepDefinition) []byte {
	b = appendDuration(b, `,"heartbeat":`, s.Heartbeat)
	b = appendDuration(b, `,"progressWithin":`, s.ProgressWithin)
	return appendDuration(b, `,"stopWithin":`, s.StopWithin)
}

func appendPlacement(b []byte, s *kernel.StepDefinition) []byte {
	if s.Requires != nil {
		requires, _ := s.Requires.MarshalJSON() // a map of texts and numbers never fails
		b = appendRaw(b, `,"requires":`, requires)
	}
	if s.Prefers != nil {
		prefers, _ := json.Marshal(s.Prefers) // as above
		b = appendRaw(b, `,"prefers":`, prefers)
	}
	return appendText(b, `,"place":`, s.Place)
}

// requiresBytes estimates the memory of what a step requires and prefers.
func requiresBytes(s *kernel.StepDefinition) (n int) {
	const entry = 64 // of a map
	if r := s.Requires; r != nil {
		n += 128 + entry*(len(r.Amounts)+2*len(r.Labels))
	}
	if s.Prefers != nil {
		n += 64 + 2*entry*len(s.Prefers.Labels)
	}
	return n
}
