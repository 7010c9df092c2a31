package expr

import (
	"unsafe"
)

const (
	intBytes     = int(unsafe.Sizeof(0))
	pointerBytes = 64 // of a place in the text, as messages name it
)

func (c *Condition) Bytes() int {
	return int(unsafe.Sizeof(*c)) + c.expr.bytes() + intBytes*cap(c.refs)
}

func (t *Template) Bytes() int {
	n := int(unsafe.Sizeof(*t)) + cap(t.tail) + cap(t.parts)*int(unsafe.Sizeof(part{})) + intBytes*cap(t.refs)
	for i := range t.parts {
		n += cap(t.parts[i].before) + t.parts[i].expr.bytes() + pointerBytes
	}
	for i := range t.secrets {
		n += int(unsafe.Sizeof(t.secrets[i])) + len(t.secrets[i].Pointer) + len(t.secrets[i].Text)
	}
	return n
}
