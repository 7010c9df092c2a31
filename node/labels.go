package node

import "sync"

const (
	// maxLabelValues bounds the values of a metric's label that definitions choose: types and agents. Each value costs a
	// series for each of the other labels, and stays until the node ends. One of them is otherLabel.
	maxLabelValues = 200
	otherLabel     = "other"
)

// labels are the values of one label. The first that come are kept; when all but one are, every other is counted as otherLabel.
type labels struct {
	mu   sync.RWMutex
	kept map[string]struct{}
}

func newLabels() *labels { return &labels{kept: make(map[string]struct{})} }

// value is what s is counted as.
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
