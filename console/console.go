// Package console serves Perdure's web console: pages for operators, which use the REST API (docs/console.md).
//
// A node started with `perdure serve` has it at /ui/. A program that serves the API of a node itself (package rest)
// mounts it beside the API with one line:
//
//	mux.Handle("/perdure/", http.StripPrefix("/perdure", rest.Handler(n)))
//	mux.Handle("/perdure/ui/", console.Handler("/perdure/ui/"))
//
// The console is a page of TypeScript. `make console` compiles it with npm into dist/, and the next `go build` embeds
// that directory. A binary that was built without npm has a page in its place that says so; everything else works.
//
// The package answers with files and does nothing else: the page in the browser calls the API. It renders nothing on
// the server, keeps no session, and reads no store.
package console

import (
	"embed"
	"io/fs"
	"net/http"
	"sync"
)

// dist has missing.html, which is in the repository, and the compiled console if it was built.
//
//go:embed dist
var dist embed.FS

// files reads the embedded files once for all handlers of the process.
var files = sync.OnceValue(func() *site {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name is a constant
	}
	s, err := readSite(sub)
	if err != nil {
		panic(err) // embedded files are always readable
	}
	return s
})

// Handler serves the console. base is its path as browsers see it, with a slash at both ends: /ui/, or /perdure/ui/
// if the server, or a proxy in front of it, adds a prefix. The REST API must be in the directory above: for /perdure/ui/
// it is /perdure/v1/. The handler may be mounted with or without http.StripPrefix. It panics if base is not such a path.
//
// The API decides what a caller may do. The files of the console are the same for every caller.
func Handler(base string) http.Handler {
	return files().handler(base)
}

// Built reports whether the console was compiled into this program.
func Built() bool { return files().built }
