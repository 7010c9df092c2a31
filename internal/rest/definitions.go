package rest

import (
	"net/http"
	"reflect"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kernel"
	"github.com/perdure/perdure/operate"
)

type promoteBody struct {
	Version int `json:"version" minimum:"1" doc:"The version that the name means from now on"`
}

const storedExample = `{"name":"order","version":7,"hash":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","current":5,"latest":7,"createdAt":"2026-01-02T15:04:05Z","author":"anna","updatedAt":"2026-01-02T15:04:05Z",
"versions":[{"version":7,"hash":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","createdAt":"2026-01-02T15:04:05Z","author":"anna"}]}`

func (a *api) definitionRoutes() []route {
	view := reflect.TypeFor[operate.DefinitionView]()
	const one = "/v1/definitions/{name}"
	answer := func(doc string) []result {
		return []result{{status: http.StatusOK, doc: doc, of: view, example: storedExample}}
	}
	return []route{
		{
			method: http.MethodGet, path: "/v1/definitions", id: "listDefinitions", tag: "definitions", do: (*call).listDefinitions,
			summary: "List stored definitions", doc: "In the order of their names, without the definitions themselves.", params: pageParams,
			results: []result{{status: http.StatusOK, doc: "A page of names", of: reflect.TypeFor[perdure.Page[operate.DefinitionView]](), example: `{"items":[{"name":"order","current":5,"latest":7,"updatedAt":"2026-01-02T15:04:05Z"}]}`}},
		},
		{
			method: http.MethodGet, path: one, id: "getStoredDefinition", tag: "definitions", do: (*call).getStored,
			summary: "Get a stored definition", doc: "NAME@VERSION is a version, NAME the current one.", results: answer("The version, with the definition"),
			problems: []int{http.StatusNotFound, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodPut, path: one, id: "putDefinition", tag: "definitions", do: (*call).putStored,
			summary: "Store a definition", doc: "As a new version of the name. The same definition is the same version. The first version becomes the current one; later ones are promoted. What depends on the input is checked with each submission.",
			headers: authorParam, body: &media{types: []string{mediaJSON, mediaYAML}, of: reflect.TypeFor[definitionBody](), example: definitionExample},
			results: []result{
				{status: http.StatusOK, doc: "A version has this definition already", of: view, example: storedExample},
				{status: http.StatusCreated, doc: "The new version", of: view, example: storedExample},
			},
			problems: []int{http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodPost, path: one + "/promote", id: "promoteDefinition", tag: "definitions", do: (*call).promoteStored,
			summary: "Make a version the current one", headers: authorParam, body: &media{of: reflect.TypeFor[promoteBody](), example: `{"version":7}`},
			results: answer("The version"), problems: []int{http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity},
		},
		{
			method: http.MethodDelete, path: one, id: "deleteDefinition", tag: "definitions", do: (*call).deleteStored,
			summary: "Delete a stored definition", doc: "NAME@VERSION is a version, which must not be the current one; NAME all of them. Jobs that were made from it are kept as they are.", headers: authorParam,
			results: []result{{status: http.StatusNoContent, doc: "It was deleted"}}, problems: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
		},
	}
}

func utcStored(v *operate.DefinitionView) *operate.DefinitionView {
	out := *v
	utc(&out.CreatedAt, &out.UpdatedAt)
	out.Versions = nil
	for _, version := range v.Versions {
		utc(&version.CreatedAt)
		out.Versions = append(out.Versions, version)
	}
	return &out
}

func (c *call) listDefinitions() error {
	q := reader{query: c.query}
	limit, cursor := q.limit(), q.cursor()
	if q.err != nil {
		return q.err
	}
	page, err := c.Service.ListDefinitions(c.ctx(), limit, cursor)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, pageOf(page, utcStored))
}

func (c *call) getStored() error {
	ref, err := c.path("name")
	if err != nil {
		return err
	}
	v, err := c.Service.GetDefinition(c.ctx(), ref)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcStored(v))
}

// definitionName reads the name in the path of a call that takes no version.
func (c *call) definitionName() (string, error) {
	name, err := c.path("name")
	if err != nil {
		return "", err
	}
	if err := kernel.CheckDefinitionName(name); err != nil {
		return "", badPart("path", "name", "must be 1 to 128 letters, digits, `.`, `_` and `-`, starting with a letter or digit, without a version")
	}
	return name, nil
}

func (c *call) putStored() error {
	name, err := c.definitionName()
	if err != nil {
		return err
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	body, mediaType, err := c.readDefinition()
	if err != nil {
		return err
	}
	v, created, err := c.Service.PutDefinition(c.ctx(), name, body, mediaType, author)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.json(status, utcStored(v))
}

func (c *call) promoteStored() error {
	name, err := c.definitionName()
	if err != nil {
		return err
	}
	author, err := c.author()
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	version := 0
	root := doc.root()
	for field, v := range root.fields() {
		switch string(field) {
		case "version":
			version = int(v.integer(1, 1<<53))
		default:
			v.unknown("version")
		}
	}
	root.need("version", version != 0)
	if err := doc.err(); err != nil {
		return err
	}
	v, err := c.Service.PromoteDefinition(c.ctx(), name, version, author)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, utcStored(v))
}

func (c *call) deleteStored() error {
	ref, author, err := c.actOn("name")
	if err != nil {
		return err
	}
	if err := c.Service.DeleteDefinition(c.ctx(), ref, author); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
