// Package redact removes secrets from text that is shown: from URLs of stores and servers, and from messages that
// contain such URLs. Every log line, message and hint that shows a URL uses this package (I18).
//
// URLs in configuration are often invalid: a character of the password is not escaped, or a slash or the host is
// missing. net/url parses such a URL in misleading ways, and its errors quote parts of the password. Therefore the
// functions here work on the text, and show only parts that are known to be harmless.
package redact

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden replaces what is not shown.
const hidden = "…"

// URL returns what may be shown of the URL of a store or a server, or of a connection string: the scheme, the user, the
// host, the path, and parameters that are known to be harmless. It accepts any text. The less of the text it recognizes,
// the less it shows.
func URL(text string) string {
	scheme := schemeOf.FindString(text)
	rest := text[len(scheme):]
	if file := scheme == "sqlite:" || scheme == "sqlite://" && strings.HasPrefix(rest, "/"); file && !strings.ContainsAny(rest, "?#@") && !pairs.MatchString(rest) {
		return text // a file may have any name
	}
	// A password may hold any character, unescaped, so that the last @ may be anywhere.
	users := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, _, password := strings.Cut(rest[:at], ":")
		if users = shownIf(plainWord, user); password {
			users += ":" + hidden
		}
		users, rest = users+"@", rest[at+1:]
	}
	return scheme + users + place(rest)
}

// place returns what may be shown of the part after the user: HOST:PORT/PATH?PARAMETERS#FRAGMENT.
func place(text string) string {
	end := len(text)
	if i := strings.IndexAny(text, "?#= \t'\"\\"); i >= 0 {
		end = i
	}
	hosts, path, found := strings.Cut(text[:end], "/")
	list := strings.Split(hosts, ",") // a PostgreSQL URL may name several hosts
	for i, host := range list {
		list[i] = hostPort(host)
	}
	shown := strings.Join(list, ",")
	if found {
		path, _, colon := strings.Cut(path, ":")
		if shown += "/" + path; colon {
			shown += ":" + hidden
		}
	}
	switch tail := text[end:]; {
	case tail == "":
		return shown
	case tail[0] == '?':
		return shown + "?" + parameters(tail[1:])
	default: // a fragment, or host=… user=… password=…
		return shown + tail[:1] + hidden
	}
}

// hostPort hides a port that is not a number: if the host is missing, it is the password.
func hostPort(text string) string {
	end := strings.LastIndexByte(text, ']') + 1 // of an IPv6 address
	host, port, found := strings.Cut(text[end:], ":")
	if !found || strings.Trim(port, "0123456789") == "" {
		return text
	}
	return text[:end] + host + ":" + hidden
}

// harmless are parameters whose values may be shown.
var harmless = []string{"host", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout", "target_session_attrs",
	"pool_max_conns", "pool_min_conns", "default_query_exec_mode", "search_path", "statement_timeout", "lock_timeout"}

func parameters(query string) string {
	query, _, fragment := strings.Cut(query, "#")
	list := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, p := range list {
		name, value, _ := strings.Cut(p, "=")
		list[i] = shownIf(plainWord, name) + "=" + hidden
		if slices.Contains(harmless, name) && plainValue.MatchString(value) {
			list[i] = p
		}
	}
	shown := strings.Join(list, "&")
	if fragment {
		shown += "#" + hidden
	}
	return shown
}

func shownIf(fits *regexp.Regexp, text string) string {
	if fits.MatchString(text) {
		return text
	}
	return hidden
}

var (
	schemeOf   = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://|sqlite:|memory:)`)
	plainWord  = regexp.MustCompile(`^[A-Za-z0-9_.~+-]*$`)
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_.,/-]*$`)
)

// Text returns a message without the secrets of the URLs and connection strings in it. Messages of Perdure should not
// contain secrets in the first place. Text is for messages of other libraries, and a second protection for all messages.
func Text(message string) string {
	if strings.Contains(message, "//") {
		message = urls.ReplaceAllStringFunc(message, func(u string) string {
			end := len(strings.TrimRight(u, ".,;:!)}"))
			return URL(u[:end]) + u[end:]
		})
	}
	if strings.Contains(message, `invalid `) {
		message = reasons.ReplaceAllString(message, `$1"`+hidden+`"`)
	}
	if strings.Contains(message, "=") {
		message = pairs.ReplaceAllString(message, "$1$2"+hidden)
	}
	return message
}

var (
	// A URL may be in quotes, and a password may hold quotes: the URL ends at a quote after the last @.
	urls = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://(?:\\S*@)?[^\\s\"'`<>]*")
	// What net/url quotes of a URL that it cannot read: a password, where the host is missing.
	reasons = regexp.MustCompile(`(invalid (?:port|URL escape) )"(?:[^"\\]|\\.)*"`)
	pairs   = regexp.MustCompile(`(?i)\b([\w-]*(?:password|passwd|secret|token))(\s*=\s*)('(?:[^'\\]|\\.)*'?|"[^"]*"?|(?:\\.|[^\s&` + "`" + `])+)`)
)

// ParseError returns net/url's reason why a text is not a URL, without the parts of the URL that the reason quotes.
func ParseError(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	switch text := err.Error(); {
	case errors.As(err, new(url.EscapeError)):
		return "invalid percent-encoding"
	case errors.As(err, new(url.InvalidHostError)):
		return "invalid character in the host"
	case strings.HasPrefix(text, "invalid port"):
		return "invalid port after the host"
	case !strings.Contains(text, `"`):
		return strings.TrimPrefix(text, "net/url: ")
	}
	return "it cannot be read"
}

// Error returns err with Text applied to its message. Wrapped errors stay reachable.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if shown := Text(text); shown != text {
		return &shownError{shown, err}
	}
	return err
}

type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }
func (e *shownError) Unwrap() error { return e.err }
