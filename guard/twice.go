package guard

import (
	"runtime"
	"sync"
	"weak"

	"github.com/perdure/perdure"
)

// passed are the versions of their rows that runs have written here, for as long as their handlers have them. The row
// alone does not tell a second call from a repeat: a run that was delivered twice has the same number. Nor does it that
// a run has been through: its transaction may have failed at the end, and the row be that of the other delivery.
var passed calls

type calls struct{ runs sync.Map } // weak.Pointer[perdure.Run] → row.at

func (c *calls) add(run *perdure.Run, at int64) {
	if _, there := c.runs.Swap(weak.Make(run), at); !there {
		runtime.AddCleanup(run, func(gone weak.Pointer[perdure.Run]) { c.runs.Delete(gone) }, weak.Make(run))
	}
}

// wrote says whether what is there was written by this run.
func (c *calls) wrote(run *perdure.Run, there row) bool {
	at, ok := c.runs.Load(weak.Make(run))
	return ok && at == there.at && there.run == run.Number
}
