package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"unicode"
)

// The OpenTelemetry library logs a setting that it cannot use, and goes on without it: traces would be lost for ever, or
// headers with the credentials of the collector be missing. So the settings are checked before the library reads them.

const otlpPrefix = "OTEL_EXPORTER_OTLP_"

// setting returns a setting of the exporter: for the traces, or for all signals; and the name of its variable.
func setting(name string) (value, variable string) {
	for _, variable := range []string{otlpPrefix + "TRACES_" + name, otlpPrefix + name} {
		if value := strings.TrimSpace(os.Getenv(variable)); value != "" {
			return value, variable
		}
	}
	return "", ""
}

// checkEnvironment returns an error that names a variable that the exporter could not use. It repeats no header, which
// may be a credential.
func checkEnvironment() error {
	for _, signal := range []string{"", "TRACES_"} {
		variable := func(name string) string { return otlpPrefix + signal + name }
		value := func(name string) string { return strings.TrimSpace(os.Getenv(variable(name))) }
		if text := value("ENDPOINT"); text != "" {
			if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
				return fmt.Errorf("%s is %q: it must be an http or https URL, such as http://localhost:4318", variable("ENDPOINT"), redacted(text))
			}
		}
		if text := value("TIMEOUT"); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 1 {
				return fmt.Errorf("%s is %q: it must be a number of milliseconds, such as 10000", variable("TIMEOUT"), text)
			}
		}
		if text := value("COMPRESSION"); text != "" && text != "gzip" && text != "none" {
			return fmt.Errorf("%s is %q: it must be gzip or none", variable("COMPRESSION"), text)
		}
		if text := value("HEADERS"); text != "" {
			if err := checkHeaders(text); err != nil {
				return fmt.Errorf("%s: %w; write NAME=VALUE,NAME=VALUE with percent-encoded values", variable("HEADERS"), err)
			}
		}
		if file := value("CERTIFICATE"); file != "" {
			text, err := os.ReadFile(file)
			if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
				err = fmt.Errorf("%s has no certificate in PEM", file)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", variable("CERTIFICATE"), err)
			}
		}
		cert, key := value("CLIENT_CERTIFICATE"), value("CLIENT_KEY")
		if (cert == "") != (key == "") {
			return fmt.Errorf("%s and %s belong together: set both", variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY"))
		}
		if cert != "" {
			if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
				return fmt.Errorf("%s and %s: %w", variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY"), err)
			}
		}
	}
	return nil
}

func checkHeaders(text string) error {
	for i, pair := range strings.Split(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !found {
			return fmt.Errorf("header %d has no =", i+1)
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }) {
			return fmt.Errorf("the name of header %d is not one of HTTP", i+1)
		}
		decoded, err := url.PathUnescape(value)
		if err == nil && strings.ContainsFunc(strings.TrimSpace(decoded), unicode.IsControl) {
			err = errors.New("a header cannot have it")
		}
		if err != nil {
			return fmt.Errorf("the value of header %s is not percent-encoded", name)
		}
	}
	return nil
}

// isTokenRune reports whether the name of a header of HTTP may have a character.
func isTokenRune(r rune) bool {
	return r <= unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

// endpoint returns the URL to which spans are sent, without a password.
func endpoint() string {
	text, variable := setting("ENDPOINT")
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	if !strings.Contains(variable, "_TRACES_") {
		u.Path = path.Join("/", u.Path, "v1/traces")
	} else if u.Path == "" {
		u.Path = "/"
	}
	return u.Redacted()
}

// redacted returns a text that may be a URL without a password.
func redacted(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "…"
}
