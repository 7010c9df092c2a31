//go:build !linux

package keeper

// MaybeRun does nothing: keepers run on Linux only.
func MaybeRun() {}
