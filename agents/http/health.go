package http

// health is what one request has shown about the host.
type health uint8

const (
	unclear health = iota // nothing: this side has ended the request
	well
	ill
)
