package guard

import (
	"runtime"
	"sync"
	"weak"

	"perdure"
)

// passed are the runs that have gone through Do or Undo here, for as long as their handlers have them. The row
// alone does not tell a second call from a repeat: a run that was delivered twice has the same number.
var passed calls

type calls struct{ runs sync.Map } // weak.Pointer[perdure.Run]

func (c *calls) add(run *perdure.Run) {
	if _, there := c.runs.LoadOrStore(weak.Make(run), true); !there {
		runtime.AddCleanup(run, func(gone weak.Pointer[perdure.Run]) { c.runs.Delete(gone) }, weak.Make(run))
	}
}

func (c *calls) has(run *perdure.Run) bool {
	_, there := c.runs.Load(weak.Make(run))
	return there
}
