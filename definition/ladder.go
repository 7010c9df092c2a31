package definition

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/internal/kernel"
)

func (d *decoder) retry(n *text.Node, p *text.Pointer) *perdure.Retry {
	if n.Kind != text.Object {
		d.mismatch(n, p, "an object such as {attempts: 5, backoff: 1s}")
		return nil
	}
	r := &perdure.Retry{}
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		switch k.Name {
		case "attempts":
			r.Attempts = d.count(v, p, "attempts", 1, perdure.MaxAttempts)
		case "backoff":
			r.Backoff = d.duration(v, p)
		case "maxBackoff":
			r.MaxBackoff = d.duration(v, p)
		case "notOn":
			r.NotOn = d.codes(v, p)
		default:
			d.unknown(retryFields, "retry", k, p)
		}
	}
	if b := r.Backoff; b > 0 && r.MaxBackoff > 0 && r.MaxBackoff < b {
		d.Add(p.Member("maxBackoff"), n.Get("maxBackoff").At, "maxBackoff %s is below backoff %s", r.MaxBackoff, b)
	} else if b == 0 && r.MaxBackoff > 0 && time.Duration(r.MaxBackoff) < perdure.DefaultBackoff {
		d.Add(p.Member("maxBackoff"), n.Get("maxBackoff").At, "maxBackoff %s is below backoff, which is %s by default", r.MaxBackoff, perdure.DefaultBackoff)
	}
	return r
}

// codes reads a list of error codes.
func (d *decoder) codes(n *text.Node, p *text.Pointer) []string {
	if n.Kind != text.List {
		d.mismatch(n, p, "a list of error codes")
		return nil
	}
	var codes []string
	for i := range n.Kids {
		v, p := &n.Kids[i], p.Item(i)
		switch {
		case !d.string(v, p):
		case v.Text == "":
			d.Add(p, v.At, "an empty error code")
		case len(v.Text) > perdure.MaxCodeLength:
			d.AddTooLarge(p, v.At, "an error code of %d characters; at most %d", len(v.Text), perdure.MaxCodeLength)
		default:
			codes = append(codes, v.Text)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// ladder reads one rung, or a list of them.
func (d *decoder) ladder(n *text.Node, p *text.Pointer) kernel.Ladder {
	if n.Kind != text.List {
		r, ok := d.rung(n, p)
		if !ok {
			return nil
		}
		return kernel.Ladder{r}
	}
	switch {
	case len(n.Kids) == 0:
		d.Add(p, n.At, "a ladder without rungs").WithHint("leave it out, or write park")
	case len(n.Kids) > perdure.MaxRungs:
		d.AddTooLarge(p, n.At, "%d rungs; at most %d", len(n.Kids), perdure.MaxRungs)
		return nil
	}
	var l kernel.Ladder
	end := ""
	for i := range n.Kids {
		v, p := &n.Kids[i], p.Item(i)
		if end != "" {
			d.Add(p, v.At, "never reached: the ladder ends at `%s` above it", end)
			break
		}
		r, ok := d.rung(v, p)
		if !ok {
			continue
		}
		if r.Kind == kernel.RungPark || r.Kind == kernel.RungUndo || r.Kind == kernel.RungSkip {
			end = string(r.Kind)
		}
		l = append(l, r)
	}
	return l
}

var rungWords = []string{"park", "undo", "skip", "wait", "restart", "alert"}

// rung reads one rung: a word, or an object of one.
func (d *decoder) rung(n *text.Node, p *text.Pointer) (r kernel.Rung, ok bool) {
	if n.Kind == text.String {
		switch r.Kind = kernel.RungKind(n.Text); r.Kind {
		case kernel.RungPark, kernel.RungUndo, kernel.RungSkip:
			return r, true
		case kernel.RungWait, kernel.RungRestart, kernel.RungAlert:
			d.Add(p, n.At, "`%s` needs a value", n.Text).WithHint("{wait: 1h, times: 4}, {restart: 3}, {alert: NAME}")
			return r, false
		}
		d.Add(p, n.At, "unknown word %s in onFailure", text.Quote(n.Text)).WithHint("%s", text.Suggest(n.Text, rungWords))
		return r, false
	}
	if n.Kind != text.Object || len(n.Kids) == 0 {
		d.mismatch(n, p, "park, undo, skip, {wait: 1h, times: 4}, {restart: N} or {alert: NAME}")
		return r, false
	}
	before := len(d.List)
	for i, k := range n.Keys {
		v, p := &n.Kids[i], p.Member(k.Name)
		word := kernel.RungKind(k.Name)
		switch word {
		case kernel.RungWait, kernel.RungRestart, kernel.RungAlert:
			if r.Kind != "" {
				d.Add(p, k.At, "two words in one rung").WithHint("each rung is an entry of its own in the list")
				return r, false
			}
			r.Kind = word
		}
		switch word {
		case kernel.RungWait:
			r.For = d.duration(v, p)
		case kernel.RungRestart:
			r.Times = d.count(v, p, "restart", 1, perdure.MaxRestarts)
		case kernel.RungAlert:
			r.Name = d.name(v, p)
		case "times":
			if n.Get("wait") == nil {
				d.Add(p, k.At, "`times` without `wait`")
				return r, false
			}
			r.Times = d.count(v, p, "times", 1, perdure.MaxWaitTimes)
		case kernel.RungPark, kernel.RungUndo, kernel.RungSkip:
			d.Add(p, k.At, "`%s` is a word without a value", k.Name)
		default:
			d.Add(p, k.At, "unknown word %s in onFailure", text.Quote(k.Name)).WithHint("%s", text.Suggest(k.Name, append(rungWords, "times")))
		}
	}
	if r.Kind == kernel.RungWait && r.Times == 0 {
		r.Times = 1
	}
	return r, len(d.List) == before && r.Kind != ""
}
