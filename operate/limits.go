package operate

import (
	"time"

	"github.com/perdure/perdure"
)

// MaxKeysShown bounds the keys of a limit in one answer.
const MaxKeysShown = 100

// LimitKeyQuery selects keys of a limit.
type LimitKeyQuery struct {
	Name  string // of the limit
	Key   string // only this key, whether steps wait for it or not, with the holders of its permits; empty: those for which steps wait
	Limit int    // at most MaxKeysShown; 0: all of these
}

// LimitKeyView is a key of a limit, with its bounds.
type LimitKeyView struct {
	Key string `json:"key"`
	perdure.KeyLimit
	Used int `json:"used"` // sum of the amounts of the permits with the key
	// Ready is how many ready steps wait for room of the key, as far as searches for runs have found it to be full. A step that
	// waits for several limits counts for one of them. Of very many steps, not all are counted: then ReadyCapped is set.
	Ready       int  `json:"ready"`
	ReadyCapped bool `json:"readyCapped,omitempty"`
	// NeverFit is how many of these steps need more permits at once than the bounds allow: they wait until a bound is raised.
	NeverFit int `json:"neverFit,omitempty"`
	// RoomAt is when the rate has room for what the first of the steps needs, without those that never fit; if no step waits,
	// for one permit. It is missing if there is room now.
	RoomAt  time.Time            `json:"roomAt,omitzero"`
	Holders []perdure.HolderView `json:"holders,omitempty"`
}
