package rest

import (
	"net/http"

	"github.com/perdure/perdure/console"
)

const mediaHTML = "text/html"

// mountConsole adds the console at /ui/, and redirects from the paths at which a browser looks for it. The console is no
// part of the API: OpenAPI does not describe these paths.
func (a *api) mountConsole() {
	a.mux.Handle("/ui/", console.Handler(a.Console))
	a.mux.HandleFunc("GET /ui", a.toConsole)
	a.mux.Handle("GET /{$}", a.handler(route{anyQuery: true, do: func(c *call) error {
		if !accepts(c.r, mediaHTML) {
			return noSuchPath(c.r)
		}
		a.toConsole(c.w, c.r)
		return nil
	}}))
}

func (a *api) toConsole(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", a.Console)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	w.WriteHeader(http.StatusSeeOther)
}
