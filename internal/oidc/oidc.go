// Package oidc logs users of the console in with OpenID Connect: the authorization code flow with PKCE, state and nonce.
// The protocol itself is github.com/coreos/go-oidc and golang.org/x/oauth2; this package has the settings, the state
// between the two requests of a login, and the rules that give a user role for claims.
//
//	Start     returns the address of the provider's login, and a cookie for the browser
//	Finish    takes the query with which the browser returns, and the cookie; it returns an identity, and the page to show
//
// The state of a login is in the cookie, so that any node can finish it. Only the browser that began the login has the
// cookie, so that no page can make another browser finish it (login CSRF). The provider's settings are read when the first
// user logs in, so that a node starts while the provider is down.
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/plain"
	"github.com/perdure/perdure/operate"
)

// Config has the settings of a node for a provider.
type Config struct {
	Issuer       string // URL
	ClientID     string
	ClientSecret string // "": a public client
	Redirect     string // URL of the page to which the provider sends browsers back
	GroupsClaim  string // whose values are groups; "": groups
	Rules        []Rule // at least one
	HTTP         *http.Client
}

// Rule gives a user role to users with a value of a claim.
type Rule struct {
	Role         operate.UserRole
	Claim, Value string
}

// Bounds of logins.
const (
	MaxRules     = 100
	LoginTime    = 10 * time.Minute // between Start and Finish
	providerTime = 10 * time.Second // for each request to the provider
	maxGroups    = operate.MaxTokenNames
)

// rank orders the user roles that a user can have: the highest that a rule gives counts.
var rank = []operate.UserRole{operate.Viewer, operate.Submitter, operate.Operator, operate.Admin}

// ParseRule reads ROLE=CLAIM:VALUE, such as operator=groups:sre.
func ParseRule(text string) (Rule, error) {
	role, claim, ok := strings.Cut(text, "=")
	name, value, found := strings.Cut(claim, ":")
	if !ok || !found || name == "" || value == "" {
		return Rule{}, fmt.Errorf("%q is not ROLE=CLAIM:VALUE, such as operator=groups:sre", plain.Clip(text, 100))
	}
	if !slices.Contains(rank, operate.UserRole(role)) {
		return Rule{}, fmt.Errorf("%q is not a user role that a user can have: use viewer, submitter, operator or admin", plain.Clip(role, 100))
	}
	return Rule{operate.UserRole(role), name, value}, nil
}

// Provider logs users in. It is safe for concurrent use.
type Provider struct {
	Config

	discovery atomic.Pointer[oidc.Provider] // the settings of the provider; nil: not read yet
	reading   singleflight.Group
}

// New returns a provider, or an error if its settings cannot be used. It does not connect.
func New(cfg Config) (*Provider, error) {
	if u, err := url.Parse(cfg.Issuer); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return nil, errors.New("the issuer is not a URL such as https://login.example.com")
	}
	if cfg.ClientID == "" {
		return nil, errors.New("the client id is missing")
	}
	if len(cfg.Rules) == 0 || len(cfg.Rules) > MaxRules {
		return nil, fmt.Errorf("there are %d rules for user roles; give 1 to %d", len(cfg.Rules), MaxRules)
	}
	if cfg.GroupsClaim == "" {
		cfg.GroupsClaim = "groups"
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Timeout: providerTime}
	}
	return &Provider{Config: cfg}, nil
}

// login is the state of a login between its two requests.
type login struct {
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"` // of PKCE
	To       string    `json:"t"` // the page to show after the login
	Until    time.Time `json:"u"`
}

// Start begins a login that returns to the page to. It returns the address to which the browser is sent, and its cookie.
func (p *Provider) Start(ctx context.Context, to string, now time.Time) (location, cookie string, err error) {
	client, _, err := p.client(ctx)
	if err != nil {
		return "", "", err
	}
	l := login{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to, Until: now.Add(LoginTime)}
	text, err := json.Marshal(&l)
	if err != nil {
		return "", "", err
	}
	return client.AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier)), base64.RawURLEncoding.EncodeToString(text), nil
}

var errLogin = refuse("the login is not one that this browser has begun, or it has taken too long", "log in again")

func refuse(message, hint string) error {
	return &perdure.Error{Code: perdure.CodeUnauthenticated, Message: message, Hint: hint}
}

// Finish ends a login: it exchanges the provider's code for an ID token, and verifies the token. It returns the user, and
// the page to return to, which it also returns with most errors. If the user is known and has no user role, it returns the
// error and an identity that has only a name.
func (p *Provider) Finish(ctx context.Context, query url.Values, cookie string, now time.Time) (id *operate.Identity, to string, err error) {
	var l login
	if text, err := base64.RawURLEncoding.DecodeString(cookie); err != nil || json.Unmarshal(text, &l) != nil || l.State == "" ||
		subtle.ConstantTimeCompare([]byte(l.State), []byte(query.Get("state"))) != 1 || now.After(l.Until) {
		return nil, "", errLogin
	}
	to = l.To
	if problem := query.Get("error"); problem != "" {
		return nil, to, refuse("the provider has refused the login: "+plain.Clip(plain.Text(problem), 100), "log in again, or ask the provider's operator")
	}
	client, verifier, err := p.client(ctx)
	if err != nil {
		return nil, to, err
	}
	token, err := client.Exchange(oidc.ClientContext(ctx, p.HTTP), query.Get("code"), oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return nil, to, p.failed("the provider has not accepted the code", err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, to, p.failed("the provider has sent no ID token", nil)
	}
	verified, err := verifier.Verify(oidc.ClientContext(ctx, p.HTTP), raw)
	if err != nil {
		return nil, to, p.failed("the provider's ID token is not valid", err)
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(l.Nonce)) != 1 {
		return nil, to, errLogin
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return nil, to, p.failed("the provider's claims cannot be read", err)
	}
	id, err = p.identify(verified.Subject, claims)
	return id, to, err
}

// failed returns the error for an answer of the provider with which a login cannot go on. Messages of the libraries name no secret, but they
// may be long.
func (p *Provider) failed(message string, err error) error {
	if err != nil {
		message += ": " + plain.Clip(plain.Text(err.Error()), 300)
	}
	return refuse(message, "log in again; if it fails again, compare the settings --oidc-… with those of the provider")
}

// GivesAdmin reports whether users can have the user role admin.
func (p *Provider) GivesAdmin() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Role == operate.Admin })
}

// identify returns the identity that the claims of a user give, and only the name if they give no user role.
func (p *Provider) identify(subject string, claims map[string]any) (*operate.Identity, error) {
	name := name(subject, claims)
	if !plain.IsLine(name, operate.MaxTokenNameRunes) {
		return nil, p.failed("the provider's ID token does not name the user", nil)
	}
	id := &operate.Identity{Name: name, Via: operate.ViaSession}
	best := -1
	for _, r := range p.Rules {
		if slices.Contains(values(claims, r.Claim), r.Value) {
			best = max(best, slices.Index(rank, r.Role))
		}
	}
	if best < 0 {
		return &operate.Identity{Name: name}, &perdure.Error{Code: perdure.CodeForbidden, Message: id.Name + " has no user role here", Hint: "the node's administrator can give one with --oidc-role"}
	}
	id.Role = rank[best]
	for _, group := range values(claims, p.GroupsClaim) {
		if plain.IsLine(group, perdure.MaxKeyLength) && len(id.Groups) < maxGroups {
			id.Groups = append(id.Groups, group)
		}
	}
	return id, nil
}

// name returns the author of the user's acts. Like the name of a token, it has only characters that can be printed: others
// could show it as the name of another user.
func name(subject string, claims map[string]any) string {
	for _, claim := range []string{"preferred_username", "email"} {
		if found := values(claims, claim); len(found) == 1 && plain.IsLine(found[0], operate.MaxTokenNameRunes) {
			return found[0]
		}
	}
	printed := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, plain.Text(subject))
	return plain.Clip(printed, operate.MaxTokenNameRunes)
}

// values returns the texts of a claim: one, or several. An e-mail address that the provider has not verified does not count.
func values(claims map[string]any, claim string) (list []string) {
	if verified, given := claims["email_verified"].(bool); claim == "email" && (!given || !verified) {
		return nil
	}
	switch v := claims[claim].(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			if s, ok := item.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// client returns the client of the provider, and the verifier of its ID tokens.
func (p *Provider) client(ctx context.Context) (*oauth2.Config, *oidc.IDTokenVerifier, error) {
	found, err := p.settings(ctx)
	if err != nil {
		return nil, nil, &perdure.Error{Code: perdure.CodeUnavailable, Message: "the OpenID Connect provider does not answer as it should: " + plain.Clip(plain.Text(err.Error()), 300),
			Hint: "try again later, or log in with a token"}
	}
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(), RedirectURL: p.Redirect, Scopes: scopes(found)},
		found.Verifier(&oidc.Config{ClientID: p.ClientID}), nil
}

// settings returns the settings of the provider. They are read until that succeeds once; keys that the provider rotates are
// read again by the library. Calls at the same time share one reading, so that none waits for several of them.
func (p *Provider) settings(ctx context.Context) (*oidc.Provider, error) {
	if found := p.discovery.Load(); found != nil {
		return found, nil
	}
	reading := p.reading.DoChan("", func() (any, error) {
		// The library keeps the context for reading keys later: it must not end with this call.
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.HTTP), p.Issuer)
		if err == nil {
			p.discovery.Store(found)
		}
		return found, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case read := <-reading:
		return read.Val.(*oidc.Provider), read.Err
	}
}

// scopes returns the scopes of a login. The scope groups is not part of OpenID Connect. Some providers need it for the claim
// groups, and others refuse a login with a scope that they do not have, so that it is left out if a provider lists its
// scopes without it.
func scopes(p *oidc.Provider) []string {
	all := []string{oidc.ScopeOpenID, "profile", "email"}
	var settings struct {
		Supported []string `json:"scopes_supported"`
	}
	if err := p.Claims(&settings); err == nil && len(settings.Supported) > 0 && !slices.Contains(settings.Supported, "groups") {
		return all
	}
	return append(all, "groups")
}
