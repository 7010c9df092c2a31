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
	Ready       int                  `json:"ready"`
	ReadyCapped bool                 `json:"readyCapped,omitempty"`
	RoomAt      time.Time            `json:"roomAt,omitzero"` // when the rate has room for another permit, if it has none now
	Holders     []perdure.HolderView `json:"holders,omitempty"`
}
