package client

import (
	"context"
	"net/http"

	"github.com/perdure/perdure/operate"
)

func rolePath(name, verb string) string { return "/v1/roles/" + segment(name) + "/" + verb }

// HoldRole implements operate.Roles. The holder's time counts from the call of this method, because the client may repeat
// the request.
func (c *Client) HoldRole(ctx context.Context, r operate.RoleRequest) (*operate.RoleHold, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	return c.role(ctx, rolePath(r.Name, "hold"), &r)
}

// ReleaseRole implements operate.Roles.
func (c *Client) ReleaseRole(ctx context.Context, name, holder string) (*operate.RoleHold, error) {
	return c.role(ctx, rolePath(name, "release"), map[string]string{"holder": holder})
}

func (c *Client) role(ctx context.Context, path string, in any) (*operate.RoleHold, error) {
	body, err := encode(in)
	if err != nil {
		return nil, err
	}
	hold := new(operate.RoleHold)
	if _, err := c.ask(ctx, &request{method: http.MethodPost, path: path, body: body, repeatable: true}, hold); err != nil {
		return nil, err
	}
	return hold, nil
}

// ListRoles implements operate.Roles.
func (c *Client) ListRoles(ctx context.Context) ([]operate.RoleState, error) {
	var out items[operate.RoleState]
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/roles"}, &out)
	return out.Items, err
}
