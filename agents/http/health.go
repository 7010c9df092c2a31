package http

// health is what one request has shown about the host.
type health uint8

const (
	unknownHealth health = iota // nothing: this side has ended the request
	healthy
	unhealthy
)
