package kernel

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Fair share. If an agent has `fairBy`, its ready steps are divided into shares by the value of this expression: one share
// for each customer, for example. Steps without a value are the share 0. Each share counts what was dispatched from it: a
// run counts FairUnit, divided by the weight of the share. A search takes the next step from the share that has been served
// least (start-time fair queueing). Within a share the usual order holds.
//
// A share that had nothing to dispatch for some time must not go before all others until it has caught up. So no share
// counts as served less than the floor, which is FairUnit less than the share that has been served most. A share that
// always has work is never below the floor: the search would have taken it first.
//
// For example, with weights of 1, share a has been served 100 times, and b appears. The floor is 99. So b goes first once,
// and then the two take turns.

// FairUnit is what a run of a share of weight 1 counts.
const FairUnit = 1_000_000

// FairOff is the value of fairBy after an operator has removed it. Steps that become ready are in share 0 then, and steps
// that had become ready before keep their shares, until none of them is left.
const FairOff = "null"

// ShareID identifies a share of an agent. It is a hash of the share's value; 0: the steps without a value.
type ShareID int64

// Share is a share of an agent, and how much it has been served.
type Share struct {
	ID     ShareID
	Value  string
	Served int64
}

// ShareState is a share as a view shows it.
type ShareState struct {
	Share
	Ready int // number of its ready steps, up to MaxShareReady, if they were counted
}

// MaxShareReady bounds how many ready steps of a share are counted, and MaxShareLanes in how many of its lanes.
const (
	MaxShareReady = 1000
	MaxShareLanes = 100
)

// Charge adds to what a share has been served.
type Charge struct {
	Agent  string
	ID     ShareID
	Value  string
	Amount int64
}

// FairFloor returns the least that a share counts as served, if the share that has been served most has this number.
func FairFloor(highest int64) int64 { return max(highest-FairUnit, 0) }

// Served returns what a share has been served after a charge.
func (c *Charge) Served(served, floor int64) int64 { return max(served, floor) + c.Amount }

// IsFair reports whether the settings of an agent divide its steps into shares, or have done so.
func IsFair(set perdure.AgentSettings) bool { return set.FairBy != "" }

// ViewOfShare returns a share as it is shown.
func ViewOfShare(s *ShareState, floor int64, set *perdure.AgentSettings) perdure.ShareView {
	return perdure.ShareView{Value: s.Value, Weight: int(weightOf(set, s.Value)), Ahead: float64(max(s.Served-floor, 0)) / FairUnit,
		Ready: s.Ready, ReadyCapped: s.Ready >= MaxShareReady}
}

// ShareFacts are the settings of a fair agent and its first shares, for Why.
type ShareFacts struct {
	Settings perdure.AgentSettings
	Shares   []ShareState
	Capped   bool // there are more
	Floor    int64
}

// shareText says where the share of a ready step is in the order of shares; empty if the agent is not fair.
func (f *Facts) shareText(s *Step) string {
	of, fair := f.Shares[s.Agent]
	if !fair {
		return ""
	}
	id, value := ShareOf(s.Needs)
	if id == 0 {
		return fmt.Sprintf("; fairBy of agent %s has no value for the job, so it shares with %s", s.Agent, plural(len(of.Shares), "share")+" and all such jobs")
	}
	i := slices.IndexFunc(of.Shares, func(o ShareState) bool { return o.ID == id })
	name := "share " + plain.Clip(value, perdure.MaxClippedText)
	if w := weightOf(&of.Settings, value); w > 1 {
		name += fmt.Sprintf(" (weight %d)", w)
	}
	switch {
	case i < 0 && of.Capped:
		return fmt.Sprintf("; %s comes after %d other shares or more, which have got fewer runs for their weights", name, len(of.Shares))
	case i < 0:
		return ""
	case i == 0:
		return fmt.Sprintf("; of %s, %s comes first", plural(len(of.Shares), "share"), name)
	}
	first := &of.Shares[0]
	return fmt.Sprintf("; %s comes after %s: share %s has got %.4g runs less for its weight", name, plural(i, "other share"), plain.Clip(first.Value, perdure.MaxClippedText),
		float64(max(of.Shares[i].Served, of.Floor)-max(first.Served, of.Floor))/FairUnit)
}

// fairText is the form in which stores keep the fairness of an agent's settings.
type fairText struct {
	By      string         `json:"by"`
	Weights map[string]int `json:"weights,omitempty"`
}

// FairText returns the fairness of settings as text; empty if there is none.
func FairText(set *perdure.AgentSettings) string {
	if !IsFair(*set) {
		return ""
	}
	b, _ := json.Marshal(fairText{set.FairBy, set.Weights}) // these always can
	return string(b)
}

// ReadFair sets the fairness of settings from the text of FairText.
func ReadFair(set *perdure.AgentSettings, text string) error {
	if text == "" {
		return nil
	}
	var t fairText
	err := json.Unmarshal([]byte(text), &t)
	set.FairBy, set.Weights = t.By, t.Weights
	return err
}

// weightOf returns the weight of a share; 1 if the settings have none for it.
func weightOf(set *perdure.AgentSettings, value string) int64 {
	return max(int64(set.Weights[value]), 1)
}

// ShareIDOf returns the id of the share with a value.
func ShareIDOf(value string) ShareID {
	if value == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(value))
	return max(ShareID(h.Sum64()>>1), 1)
}

// ShareOf returns the share of a step with these needs.
func ShareOf(n Needs) (id ShareID, value string) {
	value = n.Share()
	return ShareIDOf(value), value
}

// CheckFair returns what is wrong with the fairness of an agent's settings, apart from the text of the expression.
func CheckFair(set *perdure.AgentSettings) error {
	switch {
	case len(set.FairBy) > perdure.MaxFairByBytes:
		return perdure.Refuse(perdure.CodeInvalid, "fairBy has %d bytes; at most %d", len(set.FairBy), perdure.MaxFairByBytes)
	case set.FairBy == "" && len(set.Weights) > 0:
		return &perdure.Error{Code: perdure.CodeInvalid, Message: "weights has no effect without fairBy", Hint: `give fairBy, for example "job.labels.customer"`}
	case len(set.Weights) > perdure.MaxFairWeights:
		return perdure.Refuse(perdure.CodeInvalid, "weights has %d values; at most %d", len(set.Weights), perdure.MaxFairWeights)
	}
	for _, value := range slices.Sorted(maps.Keys(set.Weights)) {
		if err := CheckLimitKey(value); err != nil {
			return perdure.Refuse(perdure.CodeInvalid, "a name in weights %s", err)
		}
		if w := set.Weights[value]; w < 1 || w > perdure.MaxFairWeight {
			return perdure.Refuse(perdure.CodeInvalid, "weights.%s is %d; use 1 to %d", plain.Clip(value, perdure.MaxClippedText), w, perdure.MaxFairWeight)
		}
	}
	return nil
}

// shareField begins the need that is a share. It is the first of the needs.
const shareField = `[{"name":"share:`

// cutShare divides needs into the share, as JSON text without its quotation marks, and the rest.
func (n Needs) cutShare() (share string, rest Needs) {
	if !strings.HasPrefix(string(n), shareField) {
		return "", n
	}
	text := string(n[len(shareField):])
	end := 0
	for ; text[end] != '"'; end++ {
		if text[end] == '\\' {
			end++
		}
	}
	share, after := text[:end], text[end+len(`"}`):]
	if more, ok := strings.CutPrefix(after, ","); ok {
		return share, Needs("[" + more)
	}
	return share, ""
}

// Share returns the value of the share among the needs; empty if there is none.
func (n Needs) Share() (value string) {
	share, _ := n.cutShare()
	if share == "" || strings.IndexByte(share, '\\') < 0 {
		return share
	}
	_ = json.Unmarshal([]byte(`"`+share+`"`), &value) // WithShare has written it
	return value
}

// WithShare returns the needs with this share in place of theirs.
func (n Needs) WithShare(value string) Needs {
	_, rest := n.cutShare()
	if value == "" {
		return rest
	}
	quoted, _ := json.Marshal(value) // a string always can
	first := shareField + string(quoted[1:]) + "}"
	if rest == "" {
		return Needs(first + "]")
	}
	return Needs(first + "," + string(rest[1:]))
}

// FairBy computes the shares of an agent's steps.
type FairBy struct {
	Agent string
	Expr  Template // a compiled expression that reads the job alone
}

// UseFairness sets how the steps of agents that become ready after this call are divided into shares.
func (w *Workset) UseFairness(all []FairBy) { w.fairness = all }

// shareFor returns the share of a step that becomes ready; empty: it has none. An expression that cannot be evaluated for
// a job, for example because the label is missing, gives none: fairness never fails a job.
func (w *Workset) shareFor(e *entry, agent string) string {
	for i := range w.fairness {
		if w.fairness[i].Agent != agent {
			continue
		}
		value, err := w.fairness[i].Expr.Render(&Scope{Job: e.job})
		if err != nil {
			return ""
		}
		return shareText(value)
	}
	return ""
}

// shareText returns the text of a value: text, a number, true or false. Other values have none. A value that is too long to
// be a key, or has control characters, is cut and gets a hash in place of its end.
func shareText(value json.RawMessage) string {
	text := string(value)
	switch {
	case text == "" || text[0] == 'n' || text[0] == '{' || text[0] == '[':
		return ""
	case text[0] == '"':
		if json.Unmarshal(value, &text) != nil {
			return ""
		}
	}
	if text == "" || CheckLimitKey(text) == nil {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	hash := "~" + hex.EncodeToString(sum[:8])
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	for most := perdure.MaxLimitKeyBytes - len(hash); len(text) > most; {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:max(most, len(text)-last)]
		text = strings.ToValidUTF8(text, "")
	}
	return text + hash
}

// chargeShare counts the run that is being dispatched.
func (w *Workset) chargeShare(r *row) {
	set := w.settings[r.Agent]
	if !IsFair(set) {
		return
	}
	id, value := ShareOf(r.Needs)
	if w.charges == nil {
		w.charges = map[shareRef]*Charge{}
	}
	c := w.charges[shareRef{r.Agent, id}]
	if c == nil {
		c = &Charge{Agent: r.Agent, ID: id, Value: value}
		w.charges[shareRef{r.Agent, id}] = c
	}
	c.Amount += FairUnit / weightOf(&set, value)
}

type shareRef struct {
	agent string
	id    ShareID
}

// takeCharges returns the charges since the last call, in order.
func (w *Workset) takeCharges() (all []Charge) {
	if len(w.charges) == 0 {
		return nil
	}
	for _, c := range w.charges {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Charge) int { return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.ID, b.ID)) })
	clear(w.charges)
	return all
}

// ShareHead is the first ready steps of a share, in the order of ClaimLess.
type ShareHead struct {
	Share
	Steps []Candidate
	Whole bool // the share has no further steps
}

// FairOrder returns the first steps of shares in the order of dispatch, at most max. floor is that of the agent. If end is
// not nil, there may be further shares, which come at end or later in the order of CompareShares.
//
// If short is true, the result ends where a share has more steps than were read. If more is true, it ends where one of the
// further shares may come first.
func FairOrder(max int, heads []ShareHead, floor int64, set *perdure.AgentSettings, end *Share) (order []Candidate, short, more bool) {
	q := make(fairQueue, 0, len(heads))
	for i := range heads {
		h := &heads[i]
		if len(h.Steps) > 0 || !h.Whole {
			q = append(q, fairEntry{head: h, tag: maxOf(h.Served, floor), step: FairUnit / weightOf(set, h.Value)})
		}
	}
	heap.Init(&q)
	for len(order) < max && len(q) > 0 {
		first := &q[0]
		if end != nil {
			at := fairEntry{head: &ShareHead{Share: *end}, tag: maxOf(end.Served, floor)}
			if !fairLess(first, &at) {
				return order, false, true
			}
		}
		if first.next == len(first.head.Steps) {
			if !first.head.Whole {
				return order, true, false
			}
			heap.Pop(&q)
			continue
		}
		order = append(order, first.head.Steps[first.next])
		first.next++
		first.tag += first.step
		heap.Fix(&q, 0)
	}
	return order, false, len(order) < max && end != nil
}

func maxOf(a, b int64) int64 { return max(a, b) }

// CompareShares orders shares by what they have been served, as stores read them.
func CompareShares(a, b *Share) int {
	return cmp.Or(cmp.Compare(a.Served, b.Served), cmp.Compare(a.ID, b.ID))
}

// fairEntry is a share whose next step begins at tag, a number as Served.
type fairEntry struct {
	head *ShareHead
	next int // index in head.Steps
	tag  int64
	step int64 // what a run counts
}

func fairLess(a, b *fairEntry) bool {
	return cmp.Or(cmp.Compare(a.tag, b.tag), CompareShares(&a.head.Share, &b.head.Share)) < 0
}

type fairQueue []fairEntry

func (q fairQueue) Len() int           { return len(q) }
func (q fairQueue) Less(i, j int) bool { return fairLess(&q[i], &q[j]) }
func (q fairQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *fairQueue) Push(x any)        { *q = append(*q, x.(fairEntry)) }
func (q *fairQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
