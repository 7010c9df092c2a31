package rest

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// Hosts are the host names under which clients may address this node. The zero value allows the names that need no
// configuration: IP literals, and names that cannot be registered in public DNS.
//
// A node checks the Host header of every request because of DNS rebinding: the owner of evil.example can let that name
// resolve to the node's address. For a browser, a page of http://evil.example then has the same origin as the node, so
// that no check of origins prevents it from reading every job and acting on it (F160). But its requests name
// evil.example, and a page cannot change that.
type Hosts struct {
	any   bool
	names []string // normalized
}

// Bounds of --allowed-hosts.
const (
	MaxAllowedHosts = 100
	maxHostName     = 253 // of DNS
)

// privateZones are domains in which no name can be registered in public DNS. Compose and Kubernetes use some of them
// for the names of services.
var privateZones = []string{".localhost", ".local", ".internal", ".svc", ".cluster.local"}

// ParseHosts reads the settings of a node: the URL at which its users reach it, if it has one, and further names or IP
// addresses. The name * alone allows every host.
func ParseHosts(publicURL string, allowed []string) (Hosts, error) {
	var h Hosts
	if publicURL != "" {
		name, err := hostOfURL(publicURL)
		if err != nil {
			return Hosts{}, err
		}
		h.names = append(h.names, name)
	}
	if len(allowed) > MaxAllowedHosts {
		return Hosts{}, fmt.Errorf("--allowed-hosts names %d hosts; at most %d are allowed", len(allowed), MaxAllowedHosts)
	}
	for _, text := range allowed {
		text = strings.TrimSpace(text)
		if text == "*" && len(allowed) == 1 {
			h.any = true
			break
		}
		name, err := allowedHost(text)
		if err != nil {
			return Hosts{}, err
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

// Any reports whether the check is disabled.
func (h Hosts) Any() bool { return h.any }

// ConsolePath is the path of the console as browsers see it: /ui/ below the path of --public-url, which ParseHosts has
// accepted.
func ConsolePath(publicURL string) string {
	u, err := url.Parse(publicURL)
	if err != nil {
		return "/ui/"
	}
	return strings.TrimRight(path.Clean("/"+u.EscapedPath()), "/") + "/ui/"
}

// hostOfURL reads --public-url. Its messages do not repeat the URL, which may hold a password.
func hostOfURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", errors.New("--public-url cannot be read as a URL; write https://HOST or https://HOST:PORT")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("--public-url must begin with http:// or https://")
	case u.User != nil:
		return "", errors.New("--public-url must not name a user or a password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New("--public-url must not have a query or a fragment")
	}
	name, ok := hostOf(u.Host)
	if !ok {
		return "", fmt.Errorf("--public-url: %q is not a host name or an IP address", printable(u.Host))
	}
	return name, nil
}

// allowedHost reads one name of --allowed-hosts.
func allowedHost(text string) (string, error) {
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return addr.WithZone("").String(), nil
	}
	name, ok := hostOf(text)
	shown := printable(text)
	switch {
	case text == "":
		return "", errors.New("--allowed-hosts: a name is empty")
	case strings.ContainsAny(text, "@/?#"): // not repeated: it may hold a password
		return "", errors.New("--allowed-hosts: a URL does not fit here; write the host name alone, such as perdure.example.com")
	case strings.Contains(text, "*"):
		return "", fmt.Errorf("--allowed-hosts: %q: patterns are not supported; list each name, or write '*' alone to disable the check", shown)
	case strings.Contains(text, ":"):
		return "", fmt.Errorf("--allowed-hosts: %q names a port; write the host name alone, which allows every port", shown)
	case !ok:
		return "", fmt.Errorf("--allowed-hosts: %q is not a host name; write a name that is not ASCII in its xn-- form", shown)
	}
	return name, nil
}

// healthPath is exempt from the check: it reveals nothing, and probes send any host.
const healthPath = "/healthz"

// check refuses a request for a host that is not allowed. X-Forwarded-Host does not count, because any client can send
// it.
func (h Hosts) check(r *http.Request) error {
	if h.any || r.URL.Path == healthPath || h.allows(r.Host) {
		return nil
	}
	if r.Host == "" {
		e := perdure.Refuse(perdure.CodeMisdirected, "the request names no host")
		e.Hint = "send a Host header"
		return e
	}
	e := perdure.Refuse(perdure.CodeMisdirected, "requests for host %q are not served here", printable(r.Host))
	e.Hint = "to allow this host, start the node with --public-url or --allowed-hosts"
	return e
}

// Handler passes a request on to next if its host is allowed. New's handler does so by itself.
func (h Hosts) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.check(r); err != nil {
			writeProblem(&answer{ResponseWriter: w}, problemOf(r, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allows reports whether the value of a Host header names an allowed host, with any port.
func (h Hosts) allows(header string) bool {
	host, ok := hostOf(header)
	if !ok {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || slices.Contains(h.names, host) {
		return true
	}
	if !strings.Contains(host, ".") {
		// A single label with a dot at its end is a top-level domain, and some of those have addresses.
		return !strings.Contains(header, ".")
	}
	return slices.ContainsFunc(privateZones, func(zone string) bool { return strings.HasSuffix(host, zone) })
}

// hostOf is the normalized host of HOST or HOST:PORT: an IP address without brackets and zone, or a name in lower case
// without a dot at its end. It returns false for any other text.
func hostOf(header string) (host string, ok bool) {
	if literal, found := strings.CutPrefix(header, "["); found {
		literal, port, found := strings.Cut(literal, "]")
		literal, zone, zoned := strings.Cut(literal, "%") // %25eth0 in a URL, %eth0 elsewhere
		addr, err := netip.ParseAddr(literal)
		if !found || err != nil || !addr.Is6() || zoned && zone == "" || !isPort(port) {
			return "", false
		}
		return addr.String(), true
	}
	name, port, found := strings.Cut(header, ":")
	if found && !isPort(":"+port) {
		return "", false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > maxHostName {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
	}
	return name, true
}

// isPort accepts "", ":" and ":7420".
func isPort(text string) bool {
	digits, found := strings.CutPrefix(text, ":")
	return text == "" || found && len(digits) <= len("65535") && strings.Trim(digits, "0123456789") == ""
}
