package rest

import (
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/perdure/perdure/internal/graph"
	"github.com/perdure/perdure/operate"
)

const mediaSVG = "image/svg+xml"

func (a *api) graphRoutes() []route {
	drawing := reflect.TypeFor[operate.Graph]()
	return []route{
		{
			method: http.MethodGet, path: "/v1/jobs/{id}/graph", id: "getGraph", tag: "jobs", do: (*call).graph,
			summary:  "Get a drawing of a job's steps",
			doc:      "Leads to the drawing of the job's definition, /v1/shapes/{hash}/graph, which all jobs with the same steps share.",
			results:  []result{{status: http.StatusSeeOther, doc: "Where the drawing is", of: reflect.TypeFor[graphPlace](), example: `{"hash":"9f2c6b0e4d1a8c7730b5e2f1a4d6c8e9"}`, headers: map[string]string{"Location": "The path of the drawing"}}},
			problems: []int{http.StatusNotFound},
		},
		{
			method: http.MethodGet, path: "/v1/shapes/{hash}/graph", id: "getShapeGraph", tag: "jobs", do: (*call).shapeGraph,
			summary:  "Get a drawing of the steps of a definition",
			doc:      "Steps as boxes and edges as lines of points, in pixels. With `Accept: image/svg+xml` it is a picture. The drawing of a hash never changes.",
			results:  []result{{status: http.StatusOK, doc: "The drawing", types: []string{mediaJSON, mediaSVG}, of: drawing, example: graphExample}},
			problems: []int{http.StatusNotFound},
		},
	}
}

// graphPlace names the drawing of a job.
type graphPlace struct {
	Hash string `json:"hash"`
}

func (c *call) graph() error {
	ref, err := c.path("id")
	if err != nil {
		return err
	}
	g, err := c.Service.Graph(c.ctx(), ref)
	if err != nil {
		return err
	}
	// Relative to /v1/jobs/ID/graph, so that it is right below any prefix that a proxy removes from paths.
	c.w.Header().Set("Location", "../../shapes/"+g.Hash+"/graph")
	return c.json(http.StatusSeeOther, graphPlace{g.Hash})
}

func (c *call) shapeGraph() error {
	hash, err := c.path("hash")
	if err != nil {
		return err
	}
	g, err := c.Service.ShapeGraph(c.ctx(), hash)
	if err != nil {
		return err
	}
	c.w.Header().Set("Vary", "Accept")
	c.w.cacheable = true
	if accepts(c.r, mediaSVG) {
		picture := graph.SVG(g, "Steps of the definition "+g.Hash, nil)
		if err := c.settle(len(picture)); err != nil {
			return err
		}
		writeBody(c.w, http.StatusOK, mediaSVG, picture)
		return nil
	}
	return c.json(http.StatusOK, g)
}

// accepts reports whether the caller names a media type in Accept.
func accepts(r *http.Request, mediaType string) bool {
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			if name, params, err := mime.ParseMediaType(part); err == nil && name == mediaType && params["q"] != "0" {
				return true
			}
		}
	}
	return false
}
