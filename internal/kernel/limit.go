package kernel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// Limit bounds how many permits are held at the same time. Permits of "job:TYPE" are held by the jobs of a type, those
// of "agent:NAME" by the runs of an agent, and those of any other name by the runs of the steps, and by the jobs, that name
// the limit.
// Permits are rows, counted when needed. There is no counter that could become wrong.
//
// A rate bounds how many permits are taken in a time, whether they are given back or not. Its bucket is a row.
type Limit struct {
	Name    string
	Max     int                 // of all permits; Unbounded: no bound
	Rate    Rate                // of all permits
	PerKey  int                 // of the permits with the same key; Unbounded: no bound
	KeyRate Rate                // of the permits with the same key
	Keys    map[string]KeyBound // of single keys; nil if there are none
	Ordered bool                // permits with the same key are taken in the order of submission

	Taken // of all permits, if it was read (Tx.LockLimits)
}

// KeyBound bounds the permits with one key. What it does not bound is bounded as for all keys of the limit.
type KeyBound struct {
	Max  int // Unbounded: no bound of its own
	Rate Rate
}

// BoundsKeys reports whether the limit bounds the permits with single keys.
func (l *Limit) BoundsKeys() bool {
	return l.PerKey != Unbounded || l.KeyRate.Bounds() || len(l.Keys) > 0
}

// Room returns how many permits are left at now. They were counted.
func (l *Limit) Room(now time.Time) int { return room(l.Max, l.Rate, l.Taken, now) }

// ForKey returns the bounds of a key. An empty key has none.
func (l *Limit) ForKey(key string) KeyBound {
	if key == "" {
		return KeyBound{Max: Unbounded}
	}
	b, own := l.Keys[key]
	if !own || b.Max == Unbounded {
		b.Max = l.PerKey
	}
	if !b.Rate.Bounds() {
		b.Rate = l.KeyRate
	}
	return b
}

// Taken is what is taken of a limit, or of one of its keys.
type Taken struct {
	Used   int         // sum of the amounts of the permits that are held
	Bucket             // of the rate
	First  FirstInLine // of a key: the first in its line
}

// ClosedKey is a key of a limit, and how many steps are ready and wait for room of it; at least MaxKeyReady if there are more
// in one lane.
type ClosedKey struct {
	Key   string
	Ready int
	Wants []Want // what these steps need, in the order of the first steps that need it
}

// Want counts steps that wait for a key of a limit and need the same of it.
type Want struct {
	Amount  int // permits with the key
	OfLimit int // permits of the limit, whatever their keys
	Steps   int
}

// ClosedKeys collects the keys of a limit from its closed lanes.
type ClosedKeys struct {
	Limit string
	keys  []ClosedKey
	at    map[string]int
}

// Add adds a closed lane with some ready steps, which have these needs. Lanes of a key are added in their order.
func (c *ClosedKeys) Add(key string, of Needs, ready int) {
	if ready == 0 {
		return
	}
	i, known := c.at[key]
	if !known {
		if c.at == nil {
			c.at = map[string]int{}
		}
		i = len(c.keys)
		c.at[key], c.keys = i, append(c.keys, ClosedKey{Key: key})
	}
	needs, w := of.List(), Want{Amount: 1}
	for _, n := range needs {
		if n.LimitKey == (LimitKey{c.Limit, key}) {
			w.Amount = n.Amount
		}
	}
	w.OfLimit = max(w.Amount, ofLimit(needs, c.Limit))
	k := &c.keys[i]
	k.Ready += ready
	same := slices.IndexFunc(k.Wants, func(o Want) bool { return o.Amount == w.Amount && o.OfLimit == w.OfLimit })
	if same < 0 {
		same, k.Wants = len(k.Wants), append(k.Wants, w)
	}
	k.Wants[same].Steps += ready
}

// First returns at most max of the keys: those with the most steps first, and then in their order.
func (c *ClosedKeys) First(max int) []ClosedKey {
	slices.SortFunc(c.keys, func(a, b ClosedKey) int { return cmp.Or(b.Ready-a.Ready, cmp.Compare(a.Key, b.Key)) })
	return c.keys[:min(max, len(c.keys))]
}

// NeverFit returns how many of the steps that wait for a key need more permits than its bounds, or those of the limit, ever
// allow. A bound of 0 stops all steps: it is not too small for some of them.
func (l *Limit) NeverFit(k *ClosedKey) (steps int) {
	for _, w := range k.Wants {
		if !l.mayFit(k.Key, w) {
			steps += w.Steps
		}
	}
	return steps
}

func (l *Limit) mayFit(key string, w Want) bool {
	fits := func(amount, largest int) bool { return amount <= largest || largest == 0 }
	of := l.ForKey(key)
	return fits(w.Amount, largest(of.Max, of.Rate)) && fits(w.OfLimit, largest(l.Max, l.Rate))
}

// KeyRoomAt returns when the rate of a key has room for the first step that waits for it, without those that never fit; if no step
// waits, for one permit. Zero: there is room now, or never, or the key has no rate.
func (l *Limit) KeyRoomAt(k *ClosedKey, full Bucket, now time.Time) time.Time {
	rate, amount := l.ForKey(k.Key).Rate, 1
	if i := slices.IndexFunc(k.Wants, func(w Want) bool { return l.mayFit(k.Key, w) }); i >= 0 {
		amount = k.Wants[i].Amount
	} else if len(k.Wants) > 0 {
		return time.Time{}
	}
	if !rate.Bounds() || amount > rate.Burst {
		return time.Time{}
	}
	if at := rate.RoomAt(full, now, amount); at.After(now) {
		return at
	}
	return time.Time{}
}

// Bounds of a search for the keys that most steps wait for (Reader.ClosedKeys).
const (
	MaxKeyLanes = 10_000
	MaxKeyReady = 1000
)

// Unbounded is the value of Max or PerKey for a limit without that bound.
const Unbounded = -1

// LimitKind distinguishes limits by what holds their permits.
type LimitKind uint8

const (
	LimitOfJobs  LimitKind = iota // the jobs of a type
	LimitOfAgent                  // the runs of an agent
	LimitNamed                    // the runs of the steps, and the jobs, that name the limit
)

const (
	jobLimitPrefix   = "job:"
	agentLimitPrefix = "agent:"
)

func JobLimit(typ string) string     { return jobLimitPrefix + typ }
func AgentLimit(agent string) string { return agentLimitPrefix + agent }

// SplitLimit returns what a limit bounds: a type, an agent, or steps that name it (of is then the limit's own name). ok
// is false if name cannot be the name of a limit. Names that users choose have no colon.
func SplitLimit(name string) (kind LimitKind, owner string, ok bool) {
	prefix, owner, prefixed := strings.Cut(name, ":")
	switch {
	case !prefixed:
		return LimitNamed, name, plain.IsName(name) && len(name) <= perdure.MaxNameLength
	case prefix == "job":
		return LimitOfJobs, owner, owner != ""
	case prefix == "agent":
		return LimitOfAgent, owner, owner != ""
	}
	return LimitNamed, "", false
}

// LimitKey is a limit and one of its keys. An empty key stands for permits without a key.
type LimitKey struct{ Name, Key string }

// Compare orders by name, then by key.
func (k LimitKey) Compare(o LimitKey) int {
	return cmp.Or(strings.Compare(k.Name, o.Name), strings.Compare(k.Key, o.Key))
}

func (k LimitKey) String() string {
	if k.Key == "" {
		return k.Name
	}
	return fmt.Sprintf("%s, key %s", k.Name, k.Key)
}

// LimitHolder is a row that holds a permit.
type LimitHolder struct {
	Job    perdure.JobID
	Step   string // empty: the job itself
	Run    int64
	Key    string
	Amount int
}

// Need is a number of permits that a step holds while it runs.
type Need struct {
	LimitKey
	Amount int
	OfJob  bool // its job holds the permits, from then on
	Line   LineRank
}

// ofLimit returns the number of permits of a limit among needs, whatever their keys.
func ofLimit(needs []Need, name string) (amount int) {
	for _, n := range needs {
		if n.Name == name {
			amount += n.Amount
		}
	}
	return amount
}

// Needs are the permits that a step needs, sorted by name and key, in the form of the step's row: a JSON list of
// {"name", "key"?, "amount"?, "line"?, "job"?}. The first of them may be the step's share, see Share, and the last
// its demand on a host, see Demand. Empty: none.
type Needs string

// needJSON is a need in JSON. In a definition its key may be any scalar.
type needJSON struct {
	Name   string          `json:"name"`
	Key    json.RawMessage `json:"key,omitempty"`
	Amount int             `json:"amount,omitempty"`
	Line   LineRank        `json:"line,omitempty"`
	Job    bool            `json:"job,omitempty"` // the last field: see jobField
}

// NeedsFrom reads the rendered `limits` of a step.
func NeedsFrom(rendered json.RawMessage) (Needs, error) {
	needs, err := parseNeeds(rendered)
	if err != nil {
		return "", err
	}
	return NeedsOf(needs), nil
}

// NeedsOf returns these needs, in order. Two needs of the same holder with the same name and key are one, with the sum of
// their amounts.
func NeedsOf(needs []Need) Needs {
	if len(needs) == 0 {
		return ""
	}
	needs = slices.Clone(needs)
	slices.SortFunc(needs, func(a, b Need) int {
		return cmp.Or(a.LimitKey.Compare(b.LimitKey), cmp.Compare(holderOrder(a), holderOrder(b)))
	})
	merged := needs[:0]
	for _, n := range needs {
		if last := len(merged) - 1; last >= 0 && merged[last].LimitKey == n.LimitKey && merged[last].OfJob == n.OfJob {
			merged[last].Amount += n.Amount
			continue
		}
		merged = append(merged, n)
	}
	list := make([]needJSON, len(merged))
	for i, n := range merged {
		list[i] = needJSON{Name: n.Name, Line: n.Line, Job: n.OfJob}
		if n.Key != "" {
			list[i].Key, _ = json.Marshal(n.Key) // a string always can
		}
		if n.Amount != 1 {
			list[i].Amount = n.Amount
		}
	}
	b, _ := json.Marshal(list)
	return Needs(b)
}

// PermitIndex returns the index under which stores keep a permit that the row of a step holds: -1 if its job holds it.
func (n *Need) PermitIndex(step int) int {
	if n.OfJob {
		return -1
	}
	return step
}

// StoredPermit returns a permit that a store keeps under an index, and the step whose row holds it.
func StoredPermit(job perdure.JobID, index int, k LimitKey, amount int) (StepRef, Need) {
	n := Need{LimitKey: k, Amount: amount, OfJob: index < 0}
	return StepRef{job, max(index, 0)}, n
}

// holderOrder puts the need of a job behind that of its step.
func holderOrder(n Need) int {
	if n.OfJob {
		return 1
	}
	return 0
}

// jobField marks the need of a job. Within a text, the quotation marks would be escaped.
const jobField = `,"job":true}`

// withJob returns the needs of a step together with those of its job. A ready step has them until its job has its permits,
// so that the step is in a lane that is closed while a key of the job has no room. A definition names no limit for both: jobs that
// hold permits could wait for each other.
func (n Needs) withJob(of Needs) Needs {
	if of == "" {
		return n
	}
	list := n.List()
	for _, need := range of.List() {
		need.OfJob = true
		list = append(list, need)
	}
	return n.withList(list)
}

// withoutJob returns the needs without those of the job.
func (n Needs) withoutJob() Needs {
	if !n.hasJob() {
		return n
	}
	return n.withList(slices.DeleteFunc(n.List(), func(need Need) bool { return need.OfJob }))
}

// withList returns the needs with these permits in place of theirs, and the same demand and share.
func (n Needs) withList(list []Need) Needs {
	return NeedsOf(list).withDemand(n.Demand()).WithShare(n.Share())
}

// hasJob reports whether needs of the job are among them.
func (n Needs) hasJob() bool { return strings.Contains(string(n), jobField) }

func parseNeeds(b []byte) ([]Need, error) {
	var list []needJSON
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	needs := make([]Need, len(list))
	for i, n := range list {
		needs[i] = Need{LimitKey{Name: n.Name}, cmp.Or(n.Amount, 1), n.Job, n.Line}
		if n.Key == nil {
			continue
		}
		var err error
		if needs[i].Key, err = LimitKeyText(n.Key); err != nil {
			return nil, fmt.Errorf("the key of limit %s %w", n.Name, err)
		}
	}
	return needs, nil
}

// LimitKeyText returns the text of a rendered key. null is refused, because a step without a key would not be subject to
// the bound on each key.
func LimitKeyText(rendered json.RawMessage) (string, error) {
	key := string(rendered)
	switch key[0] {
	case '"':
		if err := json.Unmarshal(rendered, &key); err != nil {
			return "", err
		}
	case 'n':
		return "", errors.New("is null: it must be text, a number, true or false")
	case '{', '[':
		return "", errors.New("is an object or a list: it must be text, a number, true or false")
	}
	return key, CheckLimitKey(key)
}

// CheckLimitKey returns what is wrong with the key of a limit. The message continues a sentence that begins with the
// key's name.
func CheckLimitKey(key string) error {
	switch {
	case key == "":
		return errors.New("is empty")
	case len(key) > perdure.MaxLimitKeyBytes:
		return fmt.Errorf("has %d bytes; at most %d", len(key), perdure.MaxLimitKeyBytes)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl):
		return errors.New("has control characters, or is not UTF-8")
	}
	return nil
}

// List returns the permits in order, without the share and the demand. It panics if the row is damaged.
func (n Needs) List() []Need {
	if n == "" {
		return nil
	}
	if _, n = n.cutShare(); n == "" {
		return nil
	}
	if n = n.withDemand(""); n == "" {
		return nil
	}
	if list, ok := n.plainList(); ok {
		return list
	}
	list, err := parseNeeds([]byte(n))
	if err != nil {
		panic(fmt.Sprintf("the limits of a step's row cannot be read: %v", err))
	}
	return list
}

// plainList is a fast List for rows as NeedsFrom writes them, without escaped characters. A row is read several times in
// each transaction.
func (n Needs) plainList() (list []Need, ok bool) {
	rest := string(n)
	if len(rest) < 2 || rest[0] != '[' || strings.IndexByte(rest, '\\') >= 0 {
		return nil, false
	}
	list = make([]Need, 0, 1)
	for rest[0] != ']' {
		need := Need{Amount: 1}
		rest = rest[1:] // the bracket or comma
		if need.Name, rest, ok = cutText(rest, `{"name":"`); !ok {
			return nil, false
		}
		if key, after, has := cutText(rest, `,"key":"`); has {
			need.Key, rest = key, after
		}
		if after, has := strings.CutPrefix(rest, `,"amount":`); has {
			end := strings.IndexByte(after, '}')
			amount, err := strconv.Atoi(after[:max(end, 0)])
			if err != nil || amount < 1 {
				return nil, false
			}
			need.Amount, rest = amount, after[end:]
		}
		if after, has := strings.CutPrefix(rest, lineField); has {
			if after == "" || after[0] < '1' || after[0] > '0'+byte(RankNew) {
				return nil, false
			}
			need.Line, rest = LineRank(after[0]-'0'), after[1:]
		}
		if after, has := strings.CutPrefix(rest, jobField); has {
			need.OfJob, rest = true, rest[len(rest)-len(after)-1:]
		}
		if len(rest) < 2 || rest[0] != '}' {
			return nil, false
		}
		list, rest = append(list, need), rest[1:]
	}
	return list, rest == "]"
}

// cutText cuts off a prefix and the text behind it, up to the next quotation mark.
func cutText(s, prefix string) (text, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(s, prefix); !ok {
		return "", s, false
	}
	text, rest, ok = strings.Cut(rest, `"`)
	return text, rest, ok
}

// NeedsAny reports whether a step needs a permit of one of these limits. permit means that its job already holds the
// permit of its type.
func (s *Step) NeedsAny(limits []string, permit bool) bool {
	if len(limits) == 0 {
		return false
	}
	if !permit && slices.Contains(limits, JobLimit(s.Type)) {
		return true
	}
	return slices.ContainsFunc(s.Needs.List(), func(n Need) bool { return slices.Contains(limits, n.Name) })
}

// Kept reports whether stores keep the permits of a limit. Those of a named limit are always kept, so that they are
// known when the limit is set. Those of other limits are kept only if the limit is set (defined), because every run
// would hold one.
func (k LimitKey) Kept(defined map[string]bool) bool {
	kind, _, _ := SplitLimit(k.Name)
	return kind == LimitNamed || defined[k.Name]
}

// LimitOf returns a limit with these bounds. The error tells what is wrong with its name or its bounds.
func LimitOf(name string, set perdure.LimitSettings) (Limit, error) {
	l := Limit{Name: name, Max: Unbounded, PerKey: Unbounded}
	kind, owner, ok := SplitLimit(name)
	if !ok || len(owner) > perdure.MaxNameLength {
		return l, &perdure.Error{Code: perdure.CodeInvalid, Message: "\"" + plain.Clip(name, perdure.MaxClippedText) + "\" is not the name of a limit",
			Hint: "job:TYPE, agent:NAME, or a name of your own: letters, digits, `.`, `_` and `-`"}
	}
	if (set.PerKey != nil || len(set.Keys) > 0) && kind != LimitNamed {
		return l, &perdure.Error{Code: perdure.CodeInvalid, Message: "limit " + name + " has no keys", Hint: "only limits that steps name in `limits` have keys"}
	}
	if err := l.setBounds(&set); err != nil {
		return l, err
	}
	switch {
	case set.PerKey != nil && l.PerKey == Unbounded && !l.KeyRate.Bounds():
		return l, &perdure.Error{Code: perdure.CodeInvalid, Message: "perKey has no bound", Hint: "give max, rate, or both"}
	case l.Max == Unbounded && !l.Rate.Bounds() && !l.BoundsKeys():
		return l, &perdure.Error{Code: perdure.CodeInvalid, Message: "limit " + name + " has no bound", Hint: "give max, rate, perKey or keys"}
	}
	if err := CheckOrder(&set); err != nil {
		return l, err
	}
	return l, nil
}

func (l *Limit) setBounds(set *perdure.LimitSettings) (err error) {
	if len(set.Keys) > perdure.MaxLimitKeys {
		return perdure.Refuse(perdure.CodeInvalid, "keys has %d keys; at most %d", len(set.Keys), perdure.MaxLimitKeys)
	}
	l.Ordered = set.Order == OrderSubmitted
	all := perdure.KeyLimit{Max: set.Max, Rate: set.Rate, Burst: set.Burst}
	of := cmp.Or(set.PerKey, &perdure.KeyLimit{})
	if l.Max, l.Rate, err = boundsOf("", all); err != nil {
		return err
	}
	if l.PerKey, l.KeyRate, err = boundsOf("perKey", *of); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(set.Keys)) {
		if err := CheckLimitKey(key); err != nil {
			return perdure.Refuse(perdure.CodeInvalid, "a name in keys %s", err)
		}
		at := "keys." + plain.Clip(key, perdure.MaxClippedText)
		var b KeyBound
		if b.Max, b.Rate, err = boundsOf(at, set.Keys[key]); err != nil {
			return err
		}
		if b == (KeyBound{Max: Unbounded}) {
			return &perdure.Error{Code: perdure.CodeInvalid, Message: at + " has no bound", Hint: "give max, rate, or both"}
		}
		if l.Keys == nil {
			l.Keys = make(map[string]KeyBound, len(set.Keys))
		}
		l.Keys[key] = b
	}
	return nil
}

// CheckOrder returns what is wrong with the order of a limit. With one permit for each key, the next job of a key begins
// when the one before it has released the permit.
func CheckOrder(set *perdure.LimitSettings) *perdure.Error {
	switch {
	case set.Order == "":
		return nil
	case set.Order != OrderSubmitted:
		return &perdure.Error{Code: perdure.CodeInvalid, Message: "order is \"" + plain.Clip(set.Order, perdure.MaxClippedText) + "\"", Hint: "the only order is " + OrderSubmitted}
	case set.PerKey == nil || set.PerKey.Max == nil || *set.PerKey.Max != 1:
		return &perdure.Error{Code: perdure.CodeInvalid, Message: "order needs a perKey.max of 1", Hint: "with it, the jobs of a key run one after the other"}
	}
	for _, key := range slices.Sorted(maps.Keys(set.Keys)) {
		if most := set.Keys[key].Max; most != nil && *most > 1 {
			return &perdure.Error{Code: perdure.CodeInvalid, Message: fmt.Sprintf("order needs a max of at most 1 for each key, and that of keys.%s is %d", plain.Clip(key, perdure.MaxClippedText), *most)}
		}
	}
	return nil
}

// boundsOf checks the bounds at a place of the settings; it is empty for those of all permits.
func boundsOf(at string, set perdure.KeyLimit) (most int, r Rate, err error) {
	of := ""
	if at != "" {
		of = " of " + at
	}
	if most = Unbounded; set.Max != nil {
		if most = *set.Max; most < 0 || most > perdure.MaxLimit {
			return most, r, perdure.Refuse(perdure.CodeInvalid, "max%s is 0 to %d", of, perdure.MaxLimit)
		}
	}
	switch {
	case set.Rate != "":
		if r, err = ParseRate(set.Rate, set.Burst); err != nil {
			field, rest, _ := strings.Cut(err.Error(), " ")
			return most, r, perdure.Refuse(perdure.CodeInvalid, "%s%s %s", field, of, rest)
		}
	case set.Burst != 0:
		return most, r, &perdure.Error{Code: perdure.CodeInvalid, Message: "burst" + of + " has no rate", Hint: "give a rate such as 5/s, or leave out the burst"}
	}
	return most, r, nil
}

// Settings returns the bounds of the limit.
func (l *Limit) Settings() (set perdure.LimitSettings) {
	all := settingsOf(l.Max, l.Rate)
	set.Max, set.Rate, set.Burst = all.Max, all.Rate, all.Burst
	if l.Ordered {
		set.Order = OrderSubmitted
	}
	if of := settingsOf(l.PerKey, l.KeyRate); of != (perdure.KeyLimit{}) {
		set.PerKey = &of
	}
	for key, b := range l.Keys {
		if set.Keys == nil {
			set.Keys = make(map[string]perdure.KeyLimit, len(l.Keys))
		}
		set.Keys[key] = settingsOf(b.Max, b.Rate)
	}
	return set
}

func settingsOf(most int, r Rate) (set perdure.KeyLimit) {
	if most != Unbounded {
		set.Max = &most
	}
	if r.Bounds() {
		set.Rate, set.Burst = r.String(), r.Burst
	}
	return set
}

// Settings returns the bounds of a key.
func (b KeyBound) Settings() perdure.KeyLimit { return settingsOf(b.Max, b.Rate) }

// KeysWithRoom returns those of the keys that have permits left at now, for a step that is ready: lanes need not stay closed
// for them.
func KeysWithRoom(keys []LimitKey, limits []Limit, use map[LimitKey]Taken, now time.Time) (open []LimitKey) {
	for _, k := range keys {
		i := slices.IndexFunc(limits, func(l Limit) bool { return l.Name == k.Name })
		if i < 0 || limits[i].ForKey(k.Key).room(use[k], now) > 0 && !(limits[i].Ordered && use[k].First.Waits()) {
			open = append(open, k)
		}
	}
	return open
}

// room returns how many permits are left at now.
func (b KeyBound) room(u Taken, now time.Time) int { return room(b.Max, b.Rate, u, now) }

func room(most int, r Rate, u Taken, now time.Time) int {
	left := perdure.MaxLimit
	if most != Unbounded {
		left = max(most-u.Used, 0)
	}
	if r.Bounds() {
		left = min(left, r.Room(u.Bucket, now))
	}
	return left
}

// largest returns the largest amount that can be taken at once.
func largest(most int, r Rate) int {
	amount := perdure.MaxLimit
	if most != Unbounded {
		amount = most
	}
	if r.Bounds() {
		amount = min(amount, r.Burst)
	}
	return amount
}

// RatesText returns what a store keeps of a limit besides Max and PerKey, as JSON: the settings without these two. Empty:
// nothing.
func (l *Limit) RatesText() string {
	set := l.Settings()
	if set.Max = nil; set.PerKey != nil {
		set.PerKey.Max = nil
		if *set.PerKey == (perdure.KeyLimit{}) {
			set.PerKey = nil
		}
	}
	if b, _ := json.Marshal(set); string(b) != "{}" {
		return string(b)
	}
	return ""
}

// StoredLimit returns a limit as a store keeps it. rates is what RatesText has returned; it panics if it is damaged.
func StoredLimit(name string, max, perKey int, rates string) Limit {
	l := Limit{Name: name, Max: max, PerKey: perKey}
	if rates == "" {
		return l
	}
	var set perdure.LimitSettings
	err := json.Unmarshal([]byte(rates), &set)
	if err == nil {
		err = l.setBounds(&set)
	}
	if err != nil {
		panic(fmt.Sprintf("the rates of limit %s cannot be read: %v", name, err))
	}
	l.Max, l.PerKey = max, perKey
	return l
}

// StoredBucket returns a bucket as a store keeps it: its FullAt in nanoseconds since 1970, 0 for a full one; and its Permit.
func StoredBucket(fullAt, permit int64) Bucket {
	if fullAt == 0 {
		return Bucket{}
	}
	return Bucket{time.Unix(0, fullAt).UTC(), time.Duration(permit)}
}
