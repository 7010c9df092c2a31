package text

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
)

// maxDepth bounds the nesting of a text.
const maxDepth = perdure.MaxDepth

// MaxFaults is how many faults one answer carries: enough to correct a file in one go, few enough to read.
const MaxFaults = 20

// MaxFaultText bounds a message and a hint, which may quote the definition.
const MaxFaultText = 1 << 10

// Fault is one thing that is wrong, at a byte offset of its text.
type Fault struct {
	Code    perdure.Code
	at      int32
	pointer *Pointer
	Message string
	hint    string
}

// Malformed is the fault of a text that cannot be read.
func Malformed(at int, format string, args ...any) *Fault {
	return &Fault{Code: perdure.CodeMalformed, at: int32(at), Message: fmt.Sprintf(format, args...)}
}

// Invalid is the fault of a value that is read and refused.
func Invalid(at int, format string, args ...any) *Fault {
	return &Fault{Code: perdure.CodeInvalid, at: int32(at), Message: fmt.Sprintf(format, args...)}
}

// TooLarge is the fault of a text or value over one of the bounds of package perdure.
func TooLarge(at int, err error) *Fault {
	return &Fault{Code: perdure.CodeTooLarge, at: int32(at), Message: err.Error()}
}

// WithHint adds how to correct it.
func (f *Fault) WithHint(format string, args ...any) *Fault {
	f.hint = fmt.Sprintf(format, args...)
	return f
}

func duplicateKey(keys []Key, i int) *Fault {
	return Invalid(int(keys[i].At), "duplicate field %s", Quote(keys[i].Name)).WithHint("keep one of the two")
}

// Faults collects the faults of one text.
type Faults struct {
	Source Source
	List   []*Fault
}

// Full reports whether there are as many faults as an answer carries.
func (fs *Faults) Full() bool { return len(fs.List) >= MaxFaults }

// Put records a fault, unless there are enough.
func (fs *Faults) Put(f *Fault) *Fault {
	if !fs.Full() {
		fs.List = append(fs.List, f)
	}
	return f
}

// Add records an invalid value at p.
func (fs *Faults) Add(p *Pointer, at int32, format string, args ...any) *Fault {
	return fs.Put(&Fault{Code: perdure.CodeInvalid, at: at, pointer: p, Message: fmt.Sprintf(format, args...)})
}

// AddTooLarge records a value over one of the bounds at p.
func (fs *Faults) AddTooLarge(p *Pointer, at int32, format string, args ...any) *Fault {
	return fs.Put(&Fault{Code: perdure.CodeTooLarge, at: at, pointer: p, Message: fmt.Sprintf(format, args...)})
}

// Err returns the faults as a *perdure.Error, in the order of the text, or nil if there are none. Its code is that of the
// first fault.
func (fs *Faults) Err() error {
	if len(fs.List) == 0 {
		return nil
	}
	slices.SortStableFunc(fs.List, func(a, b *Fault) int { return cmp.Compare(a.at, b.at) })
	e := &perdure.Error{Code: fs.List[0].Code}
	for _, f := range fs.List {
		fe := perdure.FieldError{Pointer: f.pointer.String(), Message: plain.Shorten(f.Message, MaxFaultText), Hint: plain.Shorten(f.hint, MaxFaultText)}
		fe.Line, fe.Column = fs.Source.Locate(f.at)
		e.Fields = append(e.Fields, fe)
	}
	first := e.Fields[0]
	place := fmt.Sprintf("line %d, column %d", first.Line, first.Column)
	if first.Line == 0 {
		place = first.Pointer
	}
	e.Message = place + ": " + first.Message
	e.Hint = first.Hint
	if n := len(e.Fields) - 1; n > 0 {
		e.Message += fmt.Sprintf(" (and %d more)", n)
	}
	return e
}
