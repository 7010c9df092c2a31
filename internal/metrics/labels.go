package metrics

import "sync"

const (
	// maxLabelValues bounds the values of labels that definitions choose: types and agents. Each value costs a series
	// for each combination of the other labels, and stays until the node ends. One of the values is otherLabel.
	maxLabelValues = 200
	otherLabel     = "other"
)

// labels are the values of one label. The first maxLabelValues - 1 values are kept; every further value is counted as
// otherLabel.
type labels struct {
	mu   sync.RWMutex
	kept map[string]struct{}
}

func newLabels() *labels { return &labels{kept: make(map[string]struct{})} }

// value returns the label value for s.
func (l *labels) value(s string) string {
	l.mu.RLock()
	_, known := l.kept[s]
	full := len(l.kept) >= maxLabelValues-1
	l.mu.RUnlock()
	switch {
	case known:
		return s
	case full:
		return otherLabel
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.kept[s]; !known && len(l.kept) >= maxLabelValues-1 {
		return otherLabel
	}
	l.kept[s] = struct{}{}
	return s
}
