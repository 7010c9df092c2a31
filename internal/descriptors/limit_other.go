//go:build !unix

package descriptors

// systemLimit returns no limit: other systems do not limit sockets in this way.
func systemLimit() (uint64, bool) { return unlimitedLimit, true }
