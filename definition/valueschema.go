package definition

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/definition/internal/expr"
	"github.com/perdure/perdure/definition/internal/text"
	"github.com/perdure/perdure/definition/internal/valueschema"
	"github.com/perdure/perdure/internal/kernel"
)

// valueSchema reads and compiles a JSON Schema of an input or output.
func (d *decoder) valueSchema(n *text.Node, p *text.Pointer) (json.RawMessage, kernel.ValueSchema) {
	if n.Kind != text.Object && n.Kind != text.Bool {
		d.mismatch(n, p, "a JSON Schema").WithHint("inputSchema: {type: object, required: [amount], properties: {amount: {type: integer}}}")
		return nil, nil
	}
	raw := json.RawMessage(text.AppendNode(nil, n))
	if len(raw) > perdure.MaxSchemaBytes && !d.stored {
		d.AddTooLarge(p, n.At, "a schema of %d bytes; at most %d", len(raw), perdure.MaxSchemaBytes)
		return nil, nil
	}
	compiled, err := valueschema.Compile(raw)
	if err != nil {
		var f *valueschema.Fault
		if errors.As(err, &f) {
			at, pointer := placeBelow(n, p, f.Pointer)
			d.Add(pointer, at, "not a valid JSON Schema: %s", f.Message)
		} else {
			d.Add(p, n.At, "not a valid JSON Schema: %s", err.Error())
		}
		return nil, nil
	}
	return raw, compiled
}

// checkFit records where a value does not fit a schema. n is nil if there is no value.
func (d *decoder) checkFit(n *text.Node, p *text.Pointer, value json.RawMessage, s kernel.ValueSchema) {
	for _, f := range s.Check(value) {
		at, pointer := placeBelow(n, p, f.Pointer)
		d.Add(pointer, at, "does not fit inputSchema: %s", f.Message)
	}
}

// stepSchemas checks the input of a step, if it is known at submission.
func (d *decoder) stepSchemas(s *kernel.StepDefinition, src *stepSource, ps *kernel.PlanStep, do expr.Templates) {
	if ps.Accepts == nil && ps.Returns == nil {
		return
	}
	if ps.Form != kernel.ByAgent {
		d.Add(src.pointer, src.at, "%s has no inputSchema and no outputSchema", text.Quote(s.Agent)).WithHint("it is not carried out by an agent")
		return
	}
	if ps.Accepts == nil || len(d.List) > 0 {
		return
	}
	for _, pieces := range do {
		if !pieces.Early() || d.template {
			return // known when the step is dispatched
		}
		d.fitsUnknown = true
	}
	value := s.With
	if ps.Do != nil {
		var err error
		if value, err = ps.Do.Render(&d.knownScope); err != nil {
			return // reported where the expression was compiled
		}
	}
	d.checkFit(src.with, src.pointer.Member("with"), value, ps.Accepts)
}

// placeBelow returns the place of a value below n, whose pointer is p.
func placeBelow(n *text.Node, p *text.Pointer, pointer string) (at int32, _ *text.Pointer) {
	if n != nil {
		at = n.At
	}
	if pointer == "" {
		return at, p
	}
	for _, token := range strings.Split(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		p = p.Member(token)
		if n == nil {
			continue
		}
		switch n.Kind {
		case text.Object:
			n = n.Get(token)
		case text.List:
			list := n
			n = nil
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(list.Kids) {
				n = &list.Kids[i]
			}
		default:
			n = nil
		}
		if n != nil {
			at = n.At
		}
	}
	return at, p
}
