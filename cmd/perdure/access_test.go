package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/perdure/perdure/internal/oidc"
	"github.com/perdure/perdure/node"
	"github.com/perdure/perdure/store/memory"
)

// A node that other machines reach, directly or through a proxy on its own machine, does not start without tokens.
func TestServeNeedsTokensBehindAProxy(t *testing.T) {
	const local, outside, public = "127.0.0.1:7420", "10.0.0.5:7420", "https://perdure.example.com"
	proxied, insecure, login := accessFlags{proxied: true}, accessFlags{proxied: true, insecure: true}, accessFlags{provider: &oidc.Provider{}}
	for name, c := range map[string]struct {
		flags          accessFlags
		listen, public string
		hasAdmin       bool
		refused        bool
	}{
		"on its own":                     {accessFlags{}, local, "", false, false},
		"behind a proxy":                 {proxied, local, "", false, true},
		"behind a proxy, localhost":      {proxied, "localhost:7420", "", false, true},
		"behind a proxy, with an admin":  {proxied, local, "", true, false},
		"behind a proxy, insecure":       {insecure, local, "", false, false},
		"with a public URL":              {accessFlags{}, local, public, false, true},
		"with a public URL and an admin": {accessFlags{}, local, public, true, false},
		"with a public URL and logins":   {login, local, public, false, false},
		"with a local public URL":        {accessFlags{}, local, "http://localhost:7420/perdure", false, false},
		"with a local address as URL":    {accessFlags{}, local, "http://[::1]:7420", false, false},
		"with a public address as URL":   {accessFlags{}, local, "http://192.0.2.1", false, true},
		"beyond loopback":                {proxied, outside, "", false, true},
		"beyond loopback, unencrypted":   {accessFlags{}, outside, "", true, true},
	} {
		err := c.flags.mayListen(c.listen, c.public, c.hasAdmin)
		if usage := new(usageError); (err != nil) != c.refused || err != nil && (!errors.As(err, &usage) || usage.hint == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Behind a proxy, callers stay refused when the admin token is gone that the store had when the node started.
func TestTokensAreAlwaysNeededBehindAProxy(t *testing.T) {
	store := memory.New()
	defer store.Close()
	n := node.New(store, node.Config{})
	for name, c := range map[string]struct {
		flags serveFlags
		want  int
	}{
		"on its own":     {serveFlags{}, http.StatusOK},
		"behind a proxy": {serveFlags{access: accessFlags{proxied: true}}, http.StatusUnauthorized},
		"public URL":     {serveFlags{hosts: hostNameFlags{public: "https://perdure.example.com"}}, http.StatusUnauthorized},
	} {
		c.flags.maxConns = 10
		h := newServer(n, context.Background(), &c.flags, false, slog.New(slog.DiscardHandler)).Handler
		r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/limits", nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d, want %d", name, w.Code, c.want)
		}
	}
}
