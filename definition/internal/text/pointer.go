package text

import (
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/plain"
)

// Pointer is the path of a value in its document. It is a chain, so that only faults cost a string. The document itself
// is nil.
type Pointer struct {
	up   *Pointer
	name string
}

// Member is the member of that name.
func (p *Pointer) Member(name string) *Pointer { return &Pointer{p, name} }

// Item is the ith entry, from 0.
func (p *Pointer) Item(i int) *Pointer { return &Pointer{p, strconv.Itoa(i)} }

// MaxPointer bounds the text of a pointer: names may be as long as the definition, and many faults may be below one.
const MaxPointer = 512

// String returns the pointer as RFC 6901 defines it; one that is too long is cut, and ends with "…".
func (p *Pointer) String() string {
	if p == nil {
		return ""
	}
	up := p.up.String()
	if len(up) >= MaxPointer { // it is cut already
		return up
	}
	return plain.Shorten(up+"/"+escapeName.Replace(plain.Shorten(p.name, MaxPointer)), MaxPointer)
}

// Below returns the pointer relative to one above it, in full.
func (p *Pointer) Below(base *Pointer) string {
	if p == nil || p == base {
		return ""
	}
	return p.up.Below(base) + "/" + escapeName.Replace(p.name)
}

var escapeName = strings.NewReplacer("~", "~0", "/", "~1")
