package definition

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/internal/lru"
)

// compiled is the result of compiling the text of an expression.
type compiled struct {
	expr  *expression // an allocation of its own: a definition that keeps it does not keep the program
	paths []path      // what it reads
	prog  *vm.Program // nil: the value of its path
}

// programs caches compiled expressions: definitions of one type are submitted again and again, and their expressions
// are evaluated in each job. The zero value is ready.
type programs struct {
	once  sync.Once
	cache *lru.Cache[programKey, *compiled]
}

type programKey struct {
	src   string
	truth bool
}

// maxProgramBytes bounds the programs that are kept. A usual one takes 1 or 2 KB, the largest some 100 KB.
const maxProgramBytes = 16 << 20

// compileWork is the work of compiling one byte of an expression, as budgets count it.
const compileWork = 16

// compile compiles src, or returns it from the cache. If truth is set, the result of src must be true or false. The
// error is the budget's.
func (p *programs) compile(src string, truth bool, budget *kernel.Budget) (*compiled, *misfit, error) {
	p.once.Do(func() { p.cache = lru.New[programKey](maxProgramBytes, (*compiled).bytes) })
	if c, ok := p.cache.Get(programKey{src, truth}); ok {
		return c, nil, nil
	}
	if err := budget.Err(); err != nil {
		return nil, nil, err
	}
	c, bad := compileExpr(src, truth)
	if bad != nil {
		return nil, bad, nil
	}
	c.expr.programs = p
	p.cache.Put(programKey{c.expr.src, truth}, c)
	if c.prog == nil {
		return c, nil, nil // there was little to do
	}
	return c, nil, budget.Spend(compileWork * len(src))
}

// of returns the program of an expression that was compiled before. If it was evicted, compiling it again is charged to
// the budget of the call, but not to the work of the rendering: whether a rendering does too much work must not depend
// on the cache.
func (p *programs) of(x *expression, budget *kernel.Budget) (*compiled, error) {
	c, bad, err := p.compile(x.src, x.condition, budget)
	if bad != nil {
		err = errors.New(bad.message) // not reached: the same text was compiled without fault
	}
	return c, err
}

// overhead is about how many bytes a compiled expression takes in addition to those counted below: its entry in the
// cache, the allocations of the program, and the names of the functions that it calls.
const overhead = 1 << 10

// bytes is about how much memory it keeps.
func (c *compiled) bytes() int {
	n := int(unsafe.Sizeof(*c)) + c.expr.bytes() + overhead
	if c.expr.path == nil {
		for i := range c.paths {
			n += c.paths[i].bytes()
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
func (x *expression) bytes() int {
	n := int(unsafe.Sizeof(*x)) + len(x.src)
	if x.path != nil {
		n += x.path.bytes()
	}
	return n
}

// bytes is about how much memory a path keeps.
func (p *path) bytes() int {
	n := int(unsafe.Sizeof(*p)) + len(p.step) + cap(p.pick)*int(unsafe.Sizeof(pick{}))
	for i := range p.pick {
		n += len(p.pick[i].name)
	}
	return n
}

// bytes is about how much memory a regular expression keeps: its parts, and the machine that it is matched with.
func (p *pattern) bytes() int { return 150 * p.states }
