package definition

import (
	"slices"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
)

func (d *decoder) retry(n *node, p *pointer) *perdure.Retry {
	if n.kind != kindObject {
		d.wrong(n, p, "an object such as {attempts: 5, backoff: 1s}")
		return nil
	}
	r := &perdure.Retry{}
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		switch k.name {
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
		d.add(p.member("maxBackoff"), n.get("maxBackoff").at, "maxBackoff %s is below backoff %s", r.MaxBackoff, b)
	} else if b == 0 && r.MaxBackoff > 0 && time.Duration(r.MaxBackoff) < perdure.DefaultBackoff {
		d.add(p.member("maxBackoff"), n.get("maxBackoff").at, "maxBackoff %s is below backoff, which is %s if nothing is said", r.MaxBackoff, perdure.DefaultBackoff)
	}
	return r
}

// codes reads a list of error codes.
func (d *decoder) codes(n *node, p *pointer) []string {
	if n.kind != kindList {
		d.wrong(n, p, "a list of error codes")
		return nil
	}
	var codes []string
	for i := range n.kids {
		v, p := &n.kids[i], p.item(i)
		switch {
		case !d.string(v, p):
		case v.text == "":
			d.add(p, v.at, "an empty error code")
		case len(v.text) > perdure.MaxCodeLength:
			d.large(p, v.at, "an error code of %d characters; at most %d", len(v.text), perdure.MaxCodeLength)
		default:
			codes = append(codes, v.text)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// ladder reads one rung, or a list of them.
func (d *decoder) ladder(n *node, p *pointer) kernel.Ladder {
	if n.kind != kindList {
		r, ok := d.rung(n, p)
		if !ok {
			return nil
		}
		return kernel.Ladder{r}
	}
	switch {
	case len(n.kids) == 0:
		d.add(p, n.at, "a ladder without rungs").hinted("leave it out, or write park")
	case len(n.kids) > perdure.MaxRungs:
		d.large(p, n.at, "%d rungs; at most %d", len(n.kids), perdure.MaxRungs)
		return nil
	}
	var l kernel.Ladder
	end := ""
	for i := range n.kids {
		v, p := &n.kids[i], p.item(i)
		if end != "" {
			d.add(p, v.at, "never reached: the ladder ends at `%s` above it", end)
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
func (d *decoder) rung(n *node, p *pointer) (r kernel.Rung, ok bool) {
	if n.kind == kindString {
		switch r.Kind = kernel.RungKind(n.text); r.Kind {
		case kernel.RungPark, kernel.RungUndo, kernel.RungSkip:
			return r, true
		case kernel.RungWait, kernel.RungRestart, kernel.RungAlert:
			d.add(p, n.at, "`%s` needs a value", n.text).hinted("{wait: 1h, times: 4}, {restart: 3}, {alert: NAME}")
			return r, false
		}
		d.add(p, n.at, "unknown word %s in onFailure", quote(n.text)).hinted("%s", suggest(n.text, rungWords))
		return r, false
	}
	if n.kind != kindObject || len(n.kids) == 0 {
		d.wrong(n, p, "park, undo, skip, {wait: 1h, times: 4}, {restart: N} or {alert: NAME}")
		return r, false
	}
	before := len(d.list)
	for i, k := range n.keys {
		v, p := &n.kids[i], p.member(k.name)
		word := kernel.RungKind(k.name)
		switch word {
		case kernel.RungWait, kernel.RungRestart, kernel.RungAlert:
			if r.Kind != "" {
				d.add(p, k.at, "two words in one rung").hinted("each rung is an entry of its own in the list")
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
			if n.get("wait") == nil {
				d.add(p, k.at, "`times` without `wait`")
				return r, false
			}
			r.Times = d.count(v, p, "times", 1, perdure.MaxWaitTimes)
		case kernel.RungPark, kernel.RungUndo, kernel.RungSkip:
			d.add(p, k.at, "`%s` is a word without a value", k.name)
		default:
			d.add(p, k.at, "unknown word %s in onFailure", quote(k.name)).hinted("%s", suggest(k.name, append(rungWords, "times")))
		}
	}
	if r.Kind == kernel.RungWait && r.Times == 0 {
		r.Times = 1
	}
	return r, len(d.list) == before && r.Kind != ""
}
