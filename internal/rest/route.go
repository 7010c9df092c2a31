package rest

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// route is one call of the API: its method and path, its documentation, and the function that handles it.
type route struct {
	method, path string
	id           string // operationId
	act          string // its name in the audit log; "": id
	tag          string
	summary, doc string
	params       []param
	headers      []param
	body         *media
	results      []result
	problems     []int // statuses in addition to those that every call may answer with
	literal      bool  // the path is one of those of a route with a parameter, which answers other methods
	anyQuery     bool  // unknown parameters are ignored: load balancers and scrapers add some
	do           func(*call) error
}

// media documents a body: the type whose schema it has, and an example.
type media struct {
	types    []string // nil: application/json
	of       reflect.Type
	optional bool
	example  string
}

// result documents an answer that is not a problem.
type result struct {
	status  int
	doc     string
	types   []string
	of      reflect.Type
	example string
	headers map[string]string // documentation by name
}

// routes are all calls, in the order of the documentation.
func (a *api) routes() []route {
	return slices.Concat(a.jobRoutes(), a.runRoutes(), a.logRoutes(), a.artifactRoutes(), a.graphRoutes(), a.validateRoutes(), a.batchRoutes(), a.actRoutes(), a.signalRoutes(), a.bulkRoutes(), a.webhookRoutes(), a.scheduleRoutes(), a.hostRoutes(), a.definitionRoutes(), a.agentRoutes(), a.roleRoutes(), a.operationRoutes(), a.accessRoutes(), a.processRoutes())
}

// mount adds the calls to the router, and a problem as the answer to every other path and method.
func (a *api) mount(routes []route) {
	methods := map[string][]string{}
	for _, rt := range routes {
		if !rt.literal {
			methods[rt.path] = append(methods[rt.path], rt.method)
		}
		a.mux.Handle(rt.method+" "+rt.path, a.handler(rt))
	}
	for path, allowed := range methods {
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		a.mux.Handle(path, a.handler(route{anyQuery: true, do: notAllowed(allowed)}))
	}
	a.mux.Handle("/", a.handler(route{anyQuery: true, do: func(c *call) error { return noSuchPath(c.r) }}))
}

// actName is the name of the call in the audit log: one of kernel.AuditActs.
func (rt *route) actName() string { return cmp.Or(rt.act, rt.id) }

func (a *api) handler(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{api: a, w: w.(*answer), r: r}
		defer c.done()
		if err := c.run(&rt); err != nil {
			c.auditRefusal(&rt, err)
			c.logRefusal(&rt, err)
			a.fail(c.w, r, err)
		}
	})
}

func (c *call) run(rt *route) (err error) {
	if err := c.identify(rt); err != nil {
		return err
	}
	if !rt.anyQuery && c.r.URL.RawQuery != "" {
		if c.query, err = parseQuery(c.r.URL.RawQuery, rt.params); err != nil {
			return err
		}
	}
	return rt.do(c)
}

func notAllowed(allowed []string) func(*call) error {
	list := strings.Join(allowed, ", ")
	return func(c *call) error {
		c.w.Header().Set("Allow", list)
		e := perdure.Refuse(codeMethod, "%s does not take %s", printable(c.r.URL.Path), printable(c.r.Method))
		e.Hint = "it takes " + list
		return e
	}
}

// pageParams are the parameters of every list with pages.
var pageParams = []param{
	{name: "limit", doc: "How many at most, 1 to 500; default: 50", example: "50"},
	{name: "cursor", doc: "nextCursor of the page before"},
}

var authorParam = []param{{name: authorHeader, doc: "Who acts, for the history; default: \"rest\"", example: "anna"}}

// list is a list that has no pages.
type list[T any] struct {
	Items []T `json:"items"`
}

// pageOf returns a page with the copies of its items that show makes.
func pageOf[T any](page *perdure.Page[T], show func(*T) *T) *perdure.Page[T] {
	out := perdure.Page[T]{Items: make([]T, len(page.Items)), NextCursor: page.NextCursor}
	for i := range page.Items {
		out.Items[i] = *show(&page.Items[i])
	}
	return &out
}

// listOf returns items as a list that is written as [] if it is empty.
func listOf[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
