package definition

import (
	"unsafe"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/internal/kernel"
)

// shapeBytes estimates the memory of a shape, so that caches of shapes can be bounded in bytes. A test compares it with what
// the garbage collector counts.
func shapeBytes(s *kernel.Shape) int {
	n := int(unsafe.Sizeof(*s)+unsafe.Sizeof(*s.Common)) + cap(s.Text) + indexBytes*len(s.Index)
	for _, use := range s.Common.Limits {
		n += int(unsafe.Sizeof(use)) + len(use.Name) + len(use.Key)
	}
	n += cap(s.Common.Output) + schemaBytes(s.Common.InputSchema) + schemaBytes(s.Common.OutputSchema)
	if t, ok := s.Output.(*expr.Template); ok {
		n += t.Bytes()
	}
	if u := s.Common.Unique; u != nil {
		n += int(unsafe.Sizeof(*u)) + len(u.Key)
	}
	for i := range s.Steps {
		n += stepBytes(&s.Steps[i])
	}
	return n
}

const indexBytes = 64 // of a name in Shape.Index

func stepBytes(p *kernel.PlanStep) int {
	d := p.StepDefinition
	n := int(unsafe.Sizeof(*p)+unsafe.Sizeof(*d)) + len(d.Name) + len(d.Agent) + len(d.Action) + len(d.When) + cap(d.With) +
		wordSize*(cap(p.After)+cap(p.Before)) + ladderBytes(d.OnFailure) + retryBytes(d.Retry) + requiresBytes(d)
	n += schemaBytes(d.InputSchema) + schemaBytes(d.OutputSchema)
	for _, name := range d.After {
		n += int(unsafe.Sizeof(name)) + len(name)
	}
	if u := d.Undo; u != nil {
		n += int(unsafe.Sizeof(*u)) + len(u.Agent) + len(u.Action) + cap(u.With) + retryBytes(u.Retry) + len(u.SameHost)
	}
	if j := d.Job; j != nil {
		n += int(unsafe.Sizeof(*j)) + cap(j.Definition) + cap(j.Input) + cap(d.ForEach)
	}
	if c, ok := p.Test.(*expr.Condition); ok {
		n += c.Bytes()
	}
	for _, use := range d.Limits {
		n += int(unsafe.Sizeof(use)) + len(use.Name) + len(use.Key)
	}
	for _, t := range []kernel.Template{p.Do, p.Revert, p.Limits, p.Items, p.Child} {
		if t, ok := t.(*expr.Template); ok {
			n += t.Bytes()
		}
	}
	return n
}

// schemaBytes estimates the memory of a schema and of what it was compiled to.
func schemaBytes(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	return cap(text) + 2048 + 48*len(text)
}

const wordSize = int(unsafe.Sizeof(0))

func ladderBytes(l kernel.Ladder) int { return cap(l) * int(unsafe.Sizeof(kernel.Rung{})) }

func retryBytes(r *perdure.Retry) int {
	if r == nil {
		return 0
	}
	n := int(unsafe.Sizeof(*r))
	for _, code := range r.NotOn {
		n += int(unsafe.Sizeof(code)) + len(code)
	}
	return n
}

// bytes estimates the memory of a memo.
func (k *memo) bytes() int {
	return int(unsafe.Sizeof(*k)) + k.shape.Size + cap(k.rest) + cap(k.early)*int(unsafe.Sizeof(evaluatedExpression{})) + (cap(k.keys)+cap(k.unique))*int(unsafe.Sizeof(expr.Pieces{})) + len(k.uniqueKey)
}
