package sim

import "github.com/perdure/perdure/internal/virtual"

type (
	loop    = virtual.Loop
	process = virtual.Process
	event   = virtual.Event
)

var startTime = virtual.Start
