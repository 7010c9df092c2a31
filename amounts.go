package perdure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/plain"
)

// Amounts are numbers by name: what a host has, or what a step requires of it. The amount of "cpu" is in thousandths of a
// CPU, and that of "memory" in bytes. All others count whole things, such as "slots" or "gpu". In JSON, cpu is a number
// with at most three decimals, and memory a text such as "4GiB", or a number of bytes.
type Amounts map[string]int64

// MarshalJSON implements json.Marshaler. The names are in order, and equal amounts have equal texts.
func (a Amounts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, name), ':')
		b = append(b, amountJSON(name, a[name])...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Amounts) UnmarshalJSON(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	*a = make(Amounts, len(fields))
	for name, value := range fields {
		if err := a.set(name, value); err != nil {
			return err
		}
	}
	return nil
}

func (a Amounts) set(name string, value json.RawMessage) error {
	text := string(value)
	if unquoted := ""; json.Unmarshal(value, &unquoted) == nil {
		if name != plain.AmountMemory {
			return fmt.Errorf("%s: expected a number, found text", name)
		}
		text = unquoted
	}
	n, err := plain.ParseAmount(name, text)
	if err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	a[name] = n
	return nil
}

func amountJSON(name string, n int64) string {
	if name == plain.AmountMemory {
		return `"` + plain.AmountText(name, n) + `"`
	}
	return plain.AmountText(name, n)
}

// Requires is what a step requires of the host that runs it: amounts, labels, and the grid. A label with the value "*" is
// satisfied by any value. In JSON, the amounts are fields beside labels and grid.
type Requires struct {
	Amounts Amounts
	Labels  map[string]string
	Grid    string
}

const (
	requiresLabels = "labels"
	requiresGrid   = "grid"
)

// MarshalJSON implements json.Marshaler.
func (r Requires) MarshalJSON() ([]byte, error) {
	b, err := r.Amounts.MarshalJSON()
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal(struct {
		Labels map[string]string `json:"labels,omitempty"`
		Grid   string            `json:"grid,omitempty"`
	}{r.Labels, r.Grid})
	switch {
	case err != nil || len(rest) == 2:
		return b, err
	case len(b) == 2:
		return rest, nil
	}
	return append(append(b[:len(b)-1], ','), rest[1:]...), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Requires) UnmarshalJSON(b []byte) error {
	*r = Requires{}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	for name, value := range fields {
		var err error
		switch name {
		case requiresLabels:
			err = json.Unmarshal(value, &r.Labels)
		case requiresGrid:
			err = json.Unmarshal(value, &r.Grid)
		default:
			if r.Amounts == nil {
				r.Amounts = Amounts{}
			}
			err = r.Amounts.set(name, bytes.TrimSpace(value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
