//go:build !linux

package postgres

import "time"

// bound does nothing here: the system's own limits hold.
func bound(uintptr, time.Duration) {}
