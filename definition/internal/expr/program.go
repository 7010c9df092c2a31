package expr

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
)

// Compiled is the result of compiling the text of an expression.
type Compiled struct {
	Expr  *Expression // an allocation of its own: a definition that keeps it does not keep the program
	Paths []Path      // what it reads
	prog  *vm.Program // nil: the value of its path
}

// Programs caches compiled expressions: definitions of one type are submitted again and again, and their expressions
// are evaluated in each job. The zero value is ready.
type Programs struct {
	once  sync.Once
	cache *lru.Cache[programKey, *Compiled]
}

type programKey struct {
	src   string
	truth bool
	loop  Loop
}

// MaxProgramBytes bounds the programs that are kept. A usual one takes 1 or 2 KB, the largest some 100 KB.
const MaxProgramBytes = 16 << 20

// CompileWork is the work of compiling one byte of an expression, as budgets count it.
const CompileWork = 16

// Compile compiles src, or returns it from the cache. If truth is set, the result of src must be true or false. The
// error is the budget's.
func (p *Programs) Compile(src string, truth bool, loop Loop, budget *kernel.Budget) (*Compiled, *Fault, error) {
	p.once.Do(func() { p.cache = lru.New[programKey](MaxProgramBytes, (*Compiled).bytes) })
	if c, ok := p.cache.Get(programKey{src, truth, loop}); ok {
		return c, nil, nil
	}
	if err := budget.Err(); err != nil {
		return nil, nil, err
	}
	c, bad := compileExpression(src, truth, loop)
	if bad != nil {
		return nil, bad, nil
	}
	c.Expr.programs = p
	p.cache.Put(programKey{c.Expr.src, truth, loop}, c)
	if c.prog == nil {
		return c, nil, nil // there was little to do
	}
	return c, nil, budget.Spend(CompileWork * len(src))
}

// program returns the program of an expression that was compiled before. If it was evicted, compiling it again is charged to
// the budget of the call, but not to the work of the rendering: whether a rendering does too much work must not depend
// on the cache.
func (p *Programs) program(x *Expression, budget *kernel.Budget) (*Compiled, error) {
	c, bad, err := p.Compile(x.src, x.condition, x.loop, budget)
	if bad != nil {
		err = errors.New(bad.Message) // not reached: the same text was compiled without fault
	}
	return c, err
}

// Bytes is about how much memory the programs in the cache take.
func (p *Programs) Bytes() int { return p.cache.Bytes() }

// Has reports whether the program of src is in the cache.
func (p *Programs) Has(src string, truth bool) bool {
	_, ok := p.cache.Get(programKey{src: src, truth: truth})
	return ok
}

// overhead is about how many bytes a compiled expression takes in addition to those counted below: its entry in the
// cache, the allocations of the program, and the names of the functions that it calls.
const overhead = 1 << 10

// bytes is about how much memory it keeps.
func (c *Compiled) bytes() int {
	n := int(unsafe.Sizeof(*c)) + c.Expr.bytes() + overhead
	if c.Expr.path == nil {
		for i := range c.Paths {
			n += c.Paths[i].bytes()
		}
	}
	if c.prog == nil {
		return n
	}
	n += cap(c.prog.Bytecode)*int(unsafe.Sizeof(vm.Opcode(0))) + cap(c.prog.Arguments)*int(unsafe.Sizeof(0)) +
		cap(c.prog.Locations())*int(unsafe.Sizeof(file.Location{})) + cap(c.prog.Constants)*int(unsafe.Sizeof(any(nil)))
	for _, constant := range c.prog.Constants {
		switch v := constant.(type) {
		case string:
			n += int(unsafe.Sizeof(v)) + len(v)
		case *pattern:
			n += v.bytes()
		default:
			n += int(unsafe.Sizeof(0))
		}
	}
	return n
}

// bytes is about how much memory an expression keeps without its program.
func (x *Expression) bytes() int {
	n := int(unsafe.Sizeof(*x)) + len(x.src)
	if x.path != nil {
		n += x.path.bytes()
	}
	return n
}

// bytes is about how much memory a path keeps.
func (p *Path) bytes() int {
	n := int(unsafe.Sizeof(*p)) + len(p.Step) + cap(p.Selectors)*int(unsafe.Sizeof(Selector{}))
	for i := range p.Selectors {
		n += len(p.Selectors[i].Name)
	}
	return n
}

// bytes is about how much memory a regular expression keeps: its parts, and the machine that it is matched with.
func (p *pattern) bytes() int { return 150 * p.states }
