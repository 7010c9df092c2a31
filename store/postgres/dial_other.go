//go:build !linux

package postgres

import "time"

// bound does nothing here: the limits of the system apply.
func bound(uintptr, time.Duration) {}
