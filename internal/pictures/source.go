package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is the code of the module, as far as the pictures show it.
type source struct {
	module   string
	packages map[string]*pkg // by directory; "": the root
}

// pkg is one package, without its tests.
type pkg struct {
	dir      string
	imports  []string            // directories of packages of this module
	declared map[string]bool     // functions, types, constants; methods as Type.Method; fields as Type.field
	calls    map[string]bool     // names of what it calls
	strings  map[string]bool     // string literals
	consts   map[string][]string // constants by type, of blocks that begin with one of this type, in order
}

// others are directories with modules of their own.
var others = []string{"tools", "bench", "brokers"}

// read reads the module in dir. Files count whatever their build constraints say, so that the result is the same on
// each machine.
func read(dir string) (*source, error) {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	src := &source{module: strings.TrimSpace(strings.TrimPrefix(first, "module ")), packages: map[string]*pkg{}}
	err = fs.WalkDir(os.DirFS(dir), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" || slices.Contains(others, file)):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(file, ".go"), strings.HasSuffix(file, "_test.go"):
			return nil
		}
		return src.add(dir, file)
	})
	return src, err
}

func (src *source) add(dir, file string) error {
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, filepath.FromSlash(file)), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	in := path.Dir(file)
	if in == "." {
		in = ""
	}
	p := src.packages[in]
	if p == nil {
		p = &pkg{dir: in, declared: map[string]bool{}, calls: map[string]bool{}, strings: map[string]bool{}, consts: map[string][]string{}}
		src.packages[in] = p
	}
	for _, spec := range tree.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if ours, ok := strings.CutPrefix(imp+"/", src.module+"/"); ok {
			if ours = strings.TrimSuffix(ours, "/"); !slices.Contains(p.imports, ours) {
				p.imports = append(p.imports, ours)
			}
		}
	}
	ast.Inspect(tree, p.note)
	return nil
}

func (p *pkg) note(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		name := n.Name.Name
		if n.Recv != nil {
			name = receiver(n.Recv.List[0].Type) + "." + name
		}
		p.declared[name] = true
	case *ast.TypeSpec:
		p.declared[n.Name.Name] = true
		p.members(n)
	case *ast.GenDecl:
		p.constants(n)
	case *ast.ValueSpec:
		for _, id := range n.Names {
			p.declared[id.Name] = true
		}
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.SelectorExpr:
			p.calls[f.Sel.Name] = true
		case *ast.Ident:
			p.calls[f.Name] = true
		}
	case *ast.SelectorExpr: // a method as a value
		p.calls[n.Sel.Name] = true
	case *ast.BasicLit:
		if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			p.strings[s] = true
		}
	}
	return true
}

// constants notes those of a block: the type of the first is that of the others.
func (p *pkg) constants(d *ast.GenDecl) {
	if d.Tok != token.CONST {
		return
	}
	var typ string
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if id, ok := v.Type.(*ast.Ident); ok {
			typ = id.Name
		}
		if typ == "" {
			return
		}
		for _, id := range v.Names {
			p.consts[typ] = append(p.consts[typ], id.Name)
		}
	}
}

// has reports whether the package declares a name, or a method or field of this name.
func (p *pkg) has(name string) bool {
	if p.declared[name] {
		return true
	}
	for d := range p.declared {
		if strings.HasSuffix(d, "."+name) {
			return true
		}
	}
	return false
}

// members notes the fields of a struct and the methods of an interface, with those of interfaces that it embeds.
func (p *pkg) members(t *ast.TypeSpec) {
	var fields *ast.FieldList
	switch of := t.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			p.declared[t.Name.Name+"."+id.Name] = true
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// ref is a piece of code that a picture names: Name of the package in dir.
type ref struct{ dir, name string }

// check returns an error if the code has no such name.
func (src *source) check(r ref) error {
	p := src.packages[r.dir]
	switch {
	case p == nil:
		return fmt.Errorf("there is no package %q", r.dir)
	case !p.declared[r.name]:
		return fmt.Errorf("package %q has no %s", r.dir, r.name)
	}
	return nil
}

// checkCall returns an error if the package in dir does not call what r names.
func (src *source) checkCall(dir string, r ref) error {
	if err := src.check(r); err != nil {
		return err
	}
	called := r.name[strings.LastIndex(r.name, ".")+1:]
	if p := src.packages[dir]; p == nil || !p.calls[called] {
		return fmt.Errorf("package %q does not call %s of package %q", dir, r.name, r.dir)
	}
	return nil
}
