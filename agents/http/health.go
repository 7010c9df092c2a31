package http

// health is what one request has shown of the other side.
type health uint8

const (
	unclear health = iota // nothing: cut short by us
	well
	ill
)
