//go:build !unix

package descriptors

// systemLimit is not known: other systems have no such limit for sockets.
func systemLimit() (uint64, bool) { return unlimitedLimit, true }
