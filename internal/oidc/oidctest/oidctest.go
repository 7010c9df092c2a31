// Package oidctest is an OpenID Connect provider for tests: with a page on which a user logs in, the authorization code
// flow, and PKCE.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Provider logs users in. Its fields are set before a login, and a browser that gives the name of a user is logged in.
type Provider struct {
	*httptest.Server
	ClientID, ClientSecret string
	Redirects              string                    // the only address to which it sends browsers back; "": any
	Users                  map[string]map[string]any // claims of each user, by name
	Scopes                 []string                  // that it lists; none: it lists no scopes

	t      *testing.T
	mu     sync.Mutex
	key    *rsa.PrivateKey
	keyID  string
	served []jose.JSONWebKey
	codes  map[string]url.Values // query of the login, by code, with its user; each is used once
}

// New starts a provider that ends with the test.
func New(t *testing.T) *Provider {
	t.Helper()
	p := &Provider{t: t, ClientID: "perdure", ClientSecret: "s", Users: map[string]map[string]any{}, codes: map[string]url.Values{}}
	p.Rotate("k1")
	mux := http.NewServeMux()
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		settings := map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"}}
		if len(p.Scopes) > 0 {
			settings["scopes_supported"] = p.Scopes
		}
		p.answer(w, http.StatusOK, settings)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: p.served})
	})
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /auth", p.page)
	mux.HandleFunc("POST /auth", p.login)
	mux.HandleFunc("POST /token", p.token)
	return p
}

func (p *Provider) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// Rotate makes the provider sign with another key. The former one is not served any more.
func (p *Provider) Rotate(id string) {
	p.rotate(id, true)
}

// SignWithUnknownKey makes the provider sign with a key that it does not serve.
func (p *Provider) SignWithUnknownKey() { p.rotate("unknown", false) }

func (p *Provider) rotate(id string, serve bool) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.keyID = key, id
	if serve {
		p.served = []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: id, Algorithm: "RS256", Use: "sig"}}
	}
}

var loginPage = template.Must(template.New("").Parse(`<!doctype html><html lang="en"><title>Provider</title>
<h1>Log in at the provider</h1>
<form method="post">
<label>User <input name="user" autofocus></label>
<button name="do" value="allow">Continue</button> <button name="do" value="deny">Cancel</button>
</form>`))

// page asks for a user.
func (p *Provider) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	scopes := strings.Fields(q.Get("scope"))
	switch {
	case q.Get("client_id") != p.ClientID, p.Redirects != "" && q.Get("redirect_uri") != p.Redirects, q.Get("response_type") != "code",
		len(scopes) == 0 || scopes[0] != "openid", q.Get("code_challenge_method") != "S256", q.Get("code_challenge") == "", q.Get("state") == "", q.Get("nonce") == "":
		http.Error(w, "a wrong request: "+r.URL.RawQuery, http.StatusBadRequest)
	default:
		if err := loginPage.Execute(w, nil); err != nil {
			p.t.Error(err)
		}
	}
}

// login sends the browser back, with a code or with an error.
func (p *Provider) login(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	user := r.PostFormValue("user")
	back := url.Values{"state": {q.Get("state")}}
	switch {
	case r.PostFormValue("do") == "deny":
		back.Set("error", "access_denied")
	case p.Users[user] == nil:
		http.Error(w, "no such user", http.StatusForbidden)
		return
	default:
		back.Set("code", p.Code(q, user))
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// Code returns the code of a login of a user. query is that with which the browser came.
func (p *Provider) Code(query url.Values, user string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.codes[code] = url.Values{"nonce": query["nonce"], "code_challenge": query["code_challenge"], "redirect_uri": query["redirect_uri"], "user": {user}}
	return code
}

// token exchanges a code for an ID token.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	login := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if login == nil || login.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) || login.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		id != p.ClientID || secret != p.ClientSecret {
		p.answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.URL, "aud": p.ClientID, "sub": login.Get("user"), "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"nonce": login.Get("nonce"), "preferred_username": login.Get("user")}
	for name, value := range p.Users[login.Get("user")] {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	p.answer(w, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *Provider) sign(claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: p.keyID}}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	text, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return token
}
