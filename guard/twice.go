package guard

import (
	"runtime"
	"sync"
	"weak"

	"github.com/perdure/perdure"
)

// passed are the versions of the rows that runs have written in this process, until their handlers return. The row alone
// does not show whether a call is the second one of a run or a repeat: a run that is delivered twice has the same
// number. Nor does it show that the run has called before: its transaction may have failed at the end, and the row may
// be that of the other delivery.
var passed calls

type calls struct{ runs sync.Map } // weak.Pointer[perdure.Run] → row.at

func (c *calls) add(run *perdure.Run, at int64) {
	if _, known := c.runs.Swap(weak.Make(run), at); !known {
		runtime.AddCleanup(run, func(gone weak.Pointer[perdure.Run]) { c.runs.Delete(gone) }, weak.Make(run))
	}
}

// wrote reports whether this run has written the row.
func (c *calls) wrote(run *perdure.Run, found row) bool {
	at, ok := c.runs.Load(weak.Make(run))
	return ok && at == found.at && found.run == run.Number
}
