package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/operate"
)

func definitionPath(ref string) string { return "/v1/definitions/" + segment(ref) }

func (c *Client) storedDefinition(ctx context.Context, req *request) (*operate.DefinitionView, int, error) {
	v := new(operate.DefinitionView)
	status, err := c.ask(ctx, req, v)
	if err != nil {
		return nil, status, err
	}
	return v, status, nil
}

// PutDefinition implements operate.Definitions.
func (c *Client) PutDefinition(ctx context.Context, name string, body []byte, mediaType, author string) (*operate.DefinitionView, bool, error) {
	v, status, err := c.storedDefinition(ctx, &request{method: http.MethodPut, path: definitionPath(name), body: body, mediaType: mediaType, author: author, repeatable: true})
	return v, status == http.StatusCreated, err
}

// GetDefinition implements operate.Definitions.
func (c *Client) GetDefinition(ctx context.Context, ref string) (*operate.DefinitionView, error) {
	v, _, err := c.storedDefinition(ctx, &request{method: http.MethodGet, path: definitionPath(ref)})
	return v, err
}

// ListDefinitions implements operate.Definitions.
func (c *Client) ListDefinitions(ctx context.Context, limit int, cursor string) (*perdure.Page[operate.DefinitionView], error) {
	query := url.Values{}
	setPage(query, limit, cursor)
	page := new(perdure.Page[operate.DefinitionView])
	_, err := c.ask(ctx, &request{method: http.MethodGet, path: "/v1/definitions", query: query}, page)
	return page, err
}

// PromoteDefinition implements operate.Definitions.
func (c *Client) PromoteDefinition(ctx context.Context, name string, version int, author string) (*operate.DefinitionView, error) {
	body, err := json.Marshal(map[string]int{"version": version})
	if err != nil {
		return nil, err
	}
	v, _, err := c.storedDefinition(ctx, &request{method: http.MethodPost, path: definitionPath(name) + "/promote", body: body, author: author, repeatable: true})
	return v, err
}

// DeleteDefinition implements operate.Definitions.
func (c *Client) DeleteDefinition(ctx context.Context, ref, author string) error {
	_, err := c.ask(ctx, &request{method: http.MethodDelete, path: definitionPath(ref), author: author}, nil)
	return err
}
