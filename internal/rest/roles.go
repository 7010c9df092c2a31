package rest

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

type (
	holdBody struct {
		Holder string           `json:"holder" maxLength:"200" doc:"Names one process, and is never used by two at once"`
		TTL    perdure.Duration `json:"ttl" doc:"For how long the holder leads from now on: 2s to 5m"`
	}
	releaseBody struct {
		Holder string `json:"holder" maxLength:"200" doc:"The holder that gives the role up"`
	}
	roleKind string
)

func (roleKind) Schema(huma.Registry) *huma.Schema { return words(operate.RoleKinds...) }

func (a *api) roleRoutes() []route {
	hold := reflect.TypeFor[operate.RoleHold]()
	problems := []int{http.StatusForbidden, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}
	return []route{
		{
			method: http.MethodGet, path: "/v1/roles", id: "listRoles", tag: "operations", do: (*call).listRoles,
			summary: "List roles", doc: "Those of the nodes first (kind node), then those that programs hold (kind held), each in the order of names. A leader or standby whose time is over is left out.",
			results: []result{{status: http.StatusOK, doc: "All roles", of: reflect.TypeFor[list[operate.RoleState]](), example: rolesExample}},
		},
		{
			method: http.MethodPost, path: "/v1/roles/{name}/hold", id: "holdRole", tag: "agents", do: (*call).holdRole,
			summary: "Lead a role",
			doc: "If the role has no leader, the holder leads it with a new epoch. If the holder leads already, its time is extended. Otherwise the answer names the leader. To repeat the call is safe. " +
				"The holder must stop its work before its time is over, counted from when it sent the call. What it writes elsewhere must carry the epoch, so that the receiver can refuse a lower one: a process can be paused for longer than its time. " +
				"At most 1,000 names; another is a conflict. The names of the nodes' own roles are forbidden.",
			body:     &media{of: reflect.TypeFor[holdBody](), example: `{"holder":"web1/4711","ttl":"10s"}`},
			results:  []result{{status: http.StatusOK, doc: "Whether the holder leads, and the epoch of the present leader", of: hold, example: holdExample}},
			problems: problems,
		},
		{
			method: http.MethodPost, path: "/v1/roles/{name}/release", id: "releaseRole", tag: "agents", do: (*call).releaseRole,
			summary: "Give up a role", doc: "Another holder may lead at once. If the holder does not lead, nothing happens.",
			body:     &media{of: reflect.TypeFor[releaseBody](), example: `{"holder":"web1/4711"}`},
			results:  []result{{status: http.StatusOK, doc: "The role without this holder", of: hold, example: `{"leads":false,"epoch":7}`}},
			problems: problems,
		},
	}
}

func (c *call) listRoles() error {
	all, err := c.Service.ListRoles(c.ctx())
	if err != nil {
		return err
	}
	out := list[operate.RoleState]{Items: make([]operate.RoleState, len(all))}
	for i, r := range all {
		utc(&r.Until, &r.StandbyUntil)
		out.Items[i] = r
	}
	return c.json(http.StatusOK, &out)
}

func (c *call) holdRole() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	r := operate.RoleRequest{Name: name}
	root := doc.root()
	for field, v := range root.fields() {
		switch string(field) {
		case "holder":
			r.Holder = v.name(perdure.MaxHolderLength)
		case "ttl":
			r.TTL = perdure.Duration(v.duration(operate.MinRoleTTL, operate.MaxRoleTTL))
		default:
			v.unknown("holder", "ttl")
		}
	}
	root.need("holder", r.Holder != "")
	root.need("ttl", r.TTL != 0)
	if err := doc.err(); err != nil {
		return err
	}
	return c.roleHold(c.Service.HoldRole(c.ctx(), r))
}

func (c *call) releaseRole() error {
	name, err := c.path("name")
	if err != nil {
		return err
	}
	doc, err := c.document(maxSmallBody, false)
	if err != nil {
		return err
	}
	holder, root := "", doc.root()
	for field, v := range root.fields() {
		if string(field) != "holder" {
			v.unknown("holder")
			continue
		}
		holder = v.name(perdure.MaxHolderLength)
	}
	root.need("holder", holder != "")
	if err := doc.err(); err != nil {
		return err
	}
	return c.roleHold(c.Service.ReleaseRole(c.ctx(), name, holder))
}

func (c *call) roleHold(h *operate.RoleHold, err error) error {
	if err != nil {
		return err
	}
	out := *h
	utc(&out.Until)
	return c.json(http.StatusOK, &out)
}
