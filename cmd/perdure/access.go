package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/perdure/perdure/internal/oidc"
	"github.com/perdure/perdure/internal/rest"
	"github.com/perdure/perdure/internal/tlsfiles"
)

// accessFlags are the flags for access: who may call a node, and how its connections are protected.
type accessFlags struct {
	insecure bool
	proxied  bool
	trusted  []string
	proxies  rest.Proxies // after check
	tls      tlsfiles.Config

	oidc       oidc.Config
	secretFile string
	rules      []string
	provider   *oidc.Provider // after check; nil: none
}

func (f *accessFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.insecure, "insecure", false, "let every caller act without a token, also from other machines")
	fs.StringVar(&f.tls.Cert, "tls-cert", "", "serve HTTPS with the certificates in this PEM `FILE`; it is read again when it changes")
	fs.StringVar(&f.tls.Key, "tls-key", "", "`FILE` with the private key of --tls-cert")
	fs.StringVar(&f.tls.ClientCA, "tls-client-ca", "", "require client certificates of the authorities in this PEM `FILE`")
	fs.BoolVar(&f.proxied, "behind-proxy", false, "accept tokens over plain HTTP from other machines: a proxy in front serves HTTPS")
	fs.StringVar(&f.oidc.Issuer, "oidc-issuer", "", "log users of the console in at the OpenID Connect provider with this `URL`")
	fs.StringVar(&f.oidc.ClientID, "oidc-client-id", "", "`ID` of the node as a client of the provider")
	fs.StringVar(&f.secretFile, "oidc-client-secret-file", "", "`FILE` with the secret of that client")
	fs.StringVar(&f.oidc.GroupsClaim, "oidc-groups-claim", "groups", "`CLAIM` with the groups of a user")
	fs.StringArrayVar(&f.rules, "oidc-role", nil, "give a user role to users with a value of a claim: `ROLE=CLAIM:VALUE` (repeatable)")
	fs.StringSliceVar(&f.trusted, "trusted-proxies", nil, "`NETWORKS` (CIDR) of proxies whose X-Forwarded-For names the caller")
}

func (f *accessFlags) check(publicURL string) (err error) {
	if f.proxies, err = rest.ParseProxies(f.trusted); err != nil {
		return usagef("--trusted-proxies: %v", err)
	}
	switch {
	case (f.tls.Cert == "") != (f.tls.Key == ""):
		return &usageError{msg: "--tls-cert and --tls-key belong together", hint: "give both"}
	case f.tls.ClientCA != "" && f.tls.Cert == "":
		return &usageError{msg: "--tls-client-ca needs --tls-cert and --tls-key", hint: "client certificates are a part of TLS"}
	}
	for _, file := range []struct{ flag, path string }{{"tls-cert", f.tls.Cert}, {"tls-key", f.tls.Key}, {"tls-client-ca", f.tls.ClientCA}} {
		if file.path == "" {
			continue
		}
		if _, err := os.Stat(file.path); err != nil {
			return usagef("--%s: %v", file.flag, err)
		}
	}
	return f.checkOIDC(publicURL)
}

// maxSecret bounds a file with a secret.
const maxSecret = 64 << 10

func (f *accessFlags) checkOIDC(publicURL string) error {
	if f.oidc.Issuer == "" {
		if f.oidc.ClientID != "" || f.secretFile != "" || len(f.rules) > 0 {
			return &usageError{msg: "settings of OpenID Connect need --oidc-issuer", hint: "add, for example, --oidc-issuer https://login.example.com"}
		}
		return nil
	}
	if publicURL == "" {
		return &usageError{msg: "--oidc-issuer needs --public-url", hint: "the provider sends users back to PUBLIC-URL/ui/oidc/callback"}
	}
	f.oidc.Rules = nil
	for _, text := range f.rules {
		rule, err := oidc.ParseRule(text)
		if err != nil {
			return usagef("--oidc-role: %v", err)
		}
		f.oidc.Rules = append(f.oidc.Rules, rule)
	}
	if f.secretFile != "" {
		text, err := os.ReadFile(f.secretFile)
		if err == nil && len(text) > maxSecret {
			err = errors.New("the file is too large")
		}
		if err != nil {
			return usagef("--oidc-client-secret-file: %v", err)
		}
		f.oidc.ClientSecret = strings.TrimSpace(string(text))
	}
	f.oidc.Redirect = strings.TrimRight(publicURL, "/") + "/ui/oidc/callback"
	var err error
	if f.provider, err = oidc.New(f.oidc); err != nil {
		return &usageError{msg: "OpenID Connect: " + err.Error(), hint: "--oidc-issuer URL --oidc-client-id ID --oidc-role operator=groups:sre"}
	}
	return nil
}

// tokens says which callers need a token. beyond is true if other machines can connect, directly or through a proxy.
func (f *accessFlags) tokens(beyond bool) rest.Tokens {
	switch {
	case f.insecure:
		return rest.TokensNever
	case beyond || f.provider != nil:
		return rest.TokensAlways
	}
	return rest.TokensOnceAdmin
}

// mayListen refuses to serve other machines without tokens, or with tokens that every machine on the network could read.
func (f *accessFlags) mayListen(listen, publicURL string, hasAdmin bool) error {
	beyond, proxied := listensBeyond(listen), f.behindProxy(publicURL)
	if !beyond && !proxied || f.insecure {
		return nil
	}
	switch {
	case !hasAdmin && f.provider == nil:
		why := fmt.Sprintf("--listen %s: other machines can connect", listen)
		if !beyond && f.proxied {
			why = "--behind-proxy: other machines can connect through the proxy"
		} else if !beyond {
			why = "--public-url: other machines can connect under this URL"
		}
		return &usageError{msg: why + ", and the store has no admin token",
			hint: "create one with: perdure tokens create --name NAME --role admin --store URL; or let every caller act with --insecure"}
	case beyond && f.tls.Cert == "" && !f.proxied:
		return &usageError{msg: fmt.Sprintf("--listen %s: tokens would cross the network unencrypted", listen),
			hint: "give --tls-cert and --tls-key, or --behind-proxy if a proxy in front serves HTTPS, or --insecure"}
	}
	return nil
}

// behindProxy reports whether other machines reach the node through a proxy, which makes its callers look like local ones
// if it is on the node's machine.
func (f *accessFlags) behindProxy(publicURL string) bool {
	u, err := url.Parse(publicURL)
	return f.proxied || publicURL != "" && (err != nil || !isLocalHost(u.Hostname()))
}

// secured returns the listener with TLS, if it is configured.
func (f *accessFlags) secured(l net.Listener) (net.Listener, error) {
	if f.tls.Cert == "" {
		return l, nil
	}
	cfg, err := tlsfiles.New(f.tls)
	if err != nil {
		return nil, &usageError{msg: fmt.Sprintf("the files of --tls-cert, --tls-key and --tls-client-ca cannot be used: %v", err)}
	}
	return tls.NewListener(l, cfg), nil
}

// scheme is the scheme of the node's URL.
func (f *accessFlags) scheme() string {
	if f.tls.Cert != "" {
		return "https"
	}
	return "http"
}

// isBeyond reports whether other machines can connect to an address.
func isBeyond(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// listensBeyond is isBeyond for a value of --listen, before it is used. A host name other than localhost counts as beyond.
func listensBeyond(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return true
	}
	return !isLocalHost(host)
}

// isLocalHost reports whether only this machine connects to a host: localhost, or an address of loopback.
func isLocalHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
