// Package access identifies the callers of a node: by a token, by a session of the console, or by the address from which
// they call. It knows the user roles and nothing of calls: package rest says which roles may make which call.
//
//	token.go     the text of tokens and session cookies: its parts, its checksum, its hash
//	registry.go  from a secret to an identity, with a cache that forgets after operate.CredentialCached
//	session.go   logins
//	failures.go  how often callers at one address may be wrong
//	refused.go   the audit log of refused requests
//
// A node keeps no credential longer than operate.CredentialCached without reading it again, so that one that was revoked
// is refused on every node within that time. Callers with a wrong secret cost at most one read of the store each, of which
// few are in progress at a time, and none once their address has been wrong too often.
package access
