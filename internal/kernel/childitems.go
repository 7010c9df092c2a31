package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// items are the items of a step.
type items struct {
	list  []json.RawMessage // of in
	first int               // of range
	n     int               // of range, or 1 for a step without forEach

	artifact *ArtifactHash // its lines are the items, of which list has those from number base on
	base     int
}

func (x *items) total() int {
	if x.artifact != nil {
		return x.n
	}
	return max(len(x.list), x.n)
}

func (x *items) item(i int) json.RawMessage {
	if x.list != nil {
		return x.list[i-x.base]
	}
	return strconv.AppendInt(nil, int64(x.first+i), 10)
}

// itemsOf evaluates the items of a step. digest is a hash of all that the children are made from, apart from the stored
// definition: the items, and the outputs and inputs that the input of a child reads.
func (w *Workset) itemsOf(e *entry, r *row, ps *PlanStep) (x items, digest [sha256.Size]byte, err error) {
	var missing NotLoaded
	var reads []int
	for _, t := range []Template{ps.Items, ps.Child, ps.Key} {
		if t != nil {
			reads = append(reads, t.Refs()...)
		}
	}
	if r.readsTooMuch {
		return x, digest, errReadsTooMuch
	}
	sum := sha256.New()
	for _, i := range reads {
		s, _, err := e.outputSum(i)
		if err := missing.gather(err); err != nil {
			return x, digest, err
		}
		if s != nil {
			sum.Write(s[:])
		}
	}
	if err := missing.orNil(); err != nil {
		return x, digest, err
	}
	x.n = 1
	if ps.Items != nil {
		scope, err := w.scope(e, r, perdure.Do, nil, ps.Items.Refs())
		if err != nil {
			return x, digest, err
		}
		done, err := w.evaluate(e, &Rendering{Key: RenderingKey{r.StepRef, r.Turn, OfItems}, template: ps.Items, scope: scope, reads: ps.Items.Refs()})
		if err != nil {
			return x, digest, err
		}
		if done.err != nil {
			return x, digest, fmt.Errorf("forEach: %w", done.err)
		}
		if x, err = readItems(done.Input); err != nil {
			return x, digest, err
		}
		sum.Write(done.Input)
	}
	copy(digest[:], sum.Sum(nil))
	return x, digest, nil
}

func readItems(forEach json.RawMessage) (x items, err error) {
	var arg struct {
		In       json.RawMessage
		Range    []json.Number
		Artifact json.RawMessage
	}
	d := json.NewDecoder(bytes.NewReader(forEach))
	d.UseNumber()
	if err := d.Decode(&arg); err != nil {
		return x, &ownerFault{codeItemsNotAList, "the range does not consist of two whole numbers"}
	}
	if arg.In != nil {
		x.list = []json.RawMessage{}
		if err := json.Unmarshal(arg.In, &x.list); err != nil || x.list == nil {
			return x, &ownerFault{codeItemsNotAList, "in is no list: " + plain.Clip(string(arg.In), 100)}
		}
		return x, nil
	}
	if arg.Artifact != nil {
		var a struct {
			Hash string `json:"$artifact"`
		}
		_ = json.Unmarshal(arg.Artifact, &a)
		hash, err := ParseArtifactHash(a.Hash)
		if err != nil {
			return x, &ownerFault{codeItemsNotAList, "artifact is no artifact: " + plain.Clip(string(arg.Artifact), 100)}
		}
		x.artifact = &hash
		return x, nil
	}
	var ends [2]int64
	for i := range ends {
		if len(arg.Range) != 2 {
			return x, &ownerFault{codeItemsNotAList, "the range does not consist of two whole numbers"}
		}
		if ends[i], err = arg.Range[i].Int64(); err != nil || ends[i] < -MaxRange || ends[i] > MaxRange {
			return x, &ownerFault{codeItemsNotAList, fmt.Sprintf("the range does not consist of two whole numbers up to %d", MaxRange)}
		}
	}
	if ends[1] < ends[0] {
		return x, &ownerFault{codeItemsNotAList, fmt.Sprintf("the range ends before it begins: %d, %d", ends[0], ends[1])}
	}
	return items{first: int(ends[0]), n: int(ends[1] - ends[0])}, nil
}

// childValues renders the values of the next n children: fewer if the budget is used up.
func (w *Workset) childValues(e *entry, r *row, ps *PlanStep, c *Children, x *items, n int) (values []json.RawMessage, err error) {
	labels, priority := e.job.Labels, e.job.Priority
	if ps.Job.Labels != nil {
		labels = ps.Job.Labels
	}
	if ps.Job.Priority != nil {
		priority = *ps.Job.Priority
	}
	common, err := json.Marshal(struct {
		Labels   map[string]string `json:"labels,omitempty"`
		Priority int               `json:"priority,omitempty"`
	}{labels, priority})
	if err != nil {
		return nil, err
	}
	if ps.Child == nil && ps.Key == nil {
		return slices.Repeat([]json.RawMessage{common}, n), nil
	}
	var reads []int
	for _, t := range []Template{ps.Child, ps.Key} {
		if t != nil {
			reads = append(reads, t.Refs()...)
		}
	}
	shared, err := w.scope(e, r, perdure.Do, nil, reads)
	if err != nil {
		return nil, err
	}
	scope := *shared
	if w.budget != nil { // what a rendering over the budget has used is not charged to other steps
		own := *w.budget
		scope.Budget = &own
		defer func() { w.budget.Work = max(own.Work, 0) }()
	}
	for i := range n {
		scope.Index = c.Spawned + i
		scope.Item = x.item(scope.Index)
		v := append(make([]byte, 0, len(common)+200), common[:len(common)-1]...)
		add := func(field string, value json.RawMessage) {
			if len(v) > len(`{`) {
				v = append(v, ',')
			}
			v = append(append(v, field...), value...)
		}
		if ps.Child != nil {
			in, err := bounded(ps.Child.Render(&scope))
			if scope.Budget.Err() != nil {
				return values, nil
			}
			if err != nil {
				return values, err
			}
			add(`"input":`, in)
		}
		if ps.Key != nil {
			key, err := bounded(ps.Key.Render(&scope))
			if scope.Budget.Err() != nil {
				return values, nil
			}
			if err == nil {
				key, err = keyText(key)
			}
			if err != nil {
				return values, fmt.Errorf("key: %w", err)
			}
			add(`"key":`, key)
		}
		values = append(values, append(v, '}'))
	}
	return values, nil
}

// keyText returns the value of a key as a definition has it: as text in which nothing is an expression.
func keyText(v json.RawMessage) (json.RawMessage, error) {
	switch c := v[0]; {
	case c == '"':
		return bytes.ReplaceAll(v, []byte("${"), []byte("$${")), nil
	case c == '-' || c >= '0' && c <= '9':
		return append(append([]byte{'"'}, v...), '"'), nil
	}
	return nil, errors.New("neither text nor a number: " + plain.Clip(string(v), 100))
}
