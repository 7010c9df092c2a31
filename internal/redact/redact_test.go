package redact

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

const secret = "hunter2"

// I18: the redacted form of a URL is recognizable, and contains no secret.
func TestRedactedURLHasNoSecret(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://anna:hunter2@db/x": "postgres://anna:…@db/x",
		"postgres://anna@db/x":         "postgres://anna@db/x",
		"postgres://db/x":              "postgres://db/x",
		"postgresql://anna:hunter2@h1:5432,h2:5433/x?sslmode=require": "postgresql://anna:…@h1:5432,h2:5433/x?sslmode=require",
		"postgres://db:5432/x?user=anna&password=hunter2":             "postgres://db:5432/x?user=anna&password=…",
		"postgres://db/x?p%61ssword=hunter2&sslmode=disable":          "postgres://db/x?…=…&sslmode=disable",
		"postgres://db/x?sslpassword=hunter2;sslmode=disable#hunter2": "postgres://db/x?sslpassword=…&sslmode=disable#…",
		"postgres://anna:hunter2@/x?host=/var/run/postgresql":         "postgres://anna:…@/x?host=/var/run/postgresql",
		"postgres://anna:hunter2@[::1]:5432/x":                        "postgres://anna:…@[::1]:5432/x",
		"http://127.0.0.1:7420":                                       "http://127.0.0.1:7420",
		"https://me:hunter2@perdure.example.com:8443/jobs":            "https://me:…@perdure.example.com:8443/jobs",
		"http://[::1]:7420/":                                          "http://[::1]:7420/",
		"sqlite:perdure.db":                                           "sqlite:perdure.db",
		"sqlite:///var/lib/a=b.db":                                    "sqlite:///var/lib/a=b.db",
		"sqlite:perdure.db?key=hunter2":                               "sqlite:perdure.db?key=…",
		"perdure.db":                                                  "perdure.db",
		"/var/lib/perdure.db":                                         "/var/lib/perdure.db",
		"":                                                            "",
		"memory:":                                                     "memory:",
		"host=db password=hunter2 user=anna":                          "host=…",
		"password = 'hunter2'":                                        "password …",
		"127.0.0.1:7420":                                              "127.0.0.1:7420",
		"localhost:http":                                              "localhost:…",
		"sqlit:perdure.db":                                            "sqlit:…",
		"postgres:hunter2@db":                                         "postgres:…@db",
		"anna:hunter2@db/x":                                           "anna:…@db/x",
		"postgres://anna:hunter2":                                     "postgres://anna:…",
		"postgres://anna%3Ahunter2@db/x":                              "postgres://…@db/x",
		"postgres://anna:hun@hunter2/hunter2?hunter2#hunter2@db/x?a=b@db": "postgres://anna:…@db",
	} {
		if got := URL(text); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

// broken returns ways to write a secret into a URL. Most of them are not valid URLs.
func broken(secret string) (list []string) {
	for _, scheme := range []string{"postgres://", "postgresql://", "postgres:", "postgres:/", "http://", "https://", "sqlite://", "mysql://", "", "//"} {
		for _, rest := range []string{
			"u:%s@h/d", "u:%s@h:5432/d?sslmode=disable", "u:a/%s@h/d", "u:a?%s@h/d", "u:a#%s@h/d", "u:a@%s@h/d", "u:a:%s@h/d", "u:a%%zz%s@h/d", "u:a %s@h/d",
			"u:12/%s@h/d", "u:12?%s@h/d", "u:12#%s@h/d", "u:%s", "u:%s/d", "u:%s@", "u:%s@h:port/d", ":%s@h/d", "u%%3A%s@h/d", "u:%s@[::1/d", "u:a[%s]@h/d",
			"h/d?password=%s", "h/d?user=u&password=%s&sslmode=x", "h/d?sslmode=x;password=%s", "h/d?PASSWORD=%s", "h/d?p%%61ssword=%s", "h/d?sslpassword=%s",
			"h/d?sslmode=disable password=%s", "h/d?sslmode=disable%%20password=%s", "h/d?sslmode='%s'", "?password=%s", "h/d#%s", "h?a#%s", "h:99999/d?password=%s&port=x",
			"host=h password=%s", "host=h password='a %s'", "password = %s host=h", "host=h user=u password=a\\ %s",
		} {
			list = append(list, scheme+strings.ReplaceAll(strings.ReplaceAll(rest, "%s", secret), "%%", "%"))
		}
	}
	return list
}

// I18: however malformed a URL is, neither its redacted form nor net/url's error shows a part of the password.
func TestNoSecretIsShown(t *testing.T) {
	for _, text := range broken(secret) {
		if got := URL(text); strings.Contains(got, secret) {
			t.Errorf("%s is shown as %s", text, got)
		}
		if got := URL(URL(text)); strings.Contains(got, secret) {
			t.Errorf("%s is shown as %s", text, got)
		}
		if _, err := url.Parse(text); err != nil {
			if why := ParseError(err); strings.Contains(why, secret) {
				t.Errorf("%s: %s", text, why)
			}
		}
	}
}

func TestSecretsInATextAreRedacted(t *testing.T) {
	for text, want := range map[string]string{
		"no secret at all":                                                "no secret at all",
		"http://h:7420, or http://h:7420).":                               "http://h:7420, or http://h:7420).",
		`parse "postgres://u:hunter2@h/d": net/url: invalid userinfo`:     `parse "postgres://u:…@h/d": net/url: invalid userinfo`,
		`invalid proxy address "http://me:hunter2@p:8": x`:                `invalid proxy address "http://me:…@p:8": x`,
		"cannot parse `host=h password=hunter2 user=u`: bad":              "cannot parse `host=h password=… user=u`: bad",
		"cannot parse `host=h password='hunter2 x\\'y' user=u`: bad":      "cannot parse `host=h password=… user=u`: bad",
		"Password = hunter2, sslpassword=hunter2":                         "Password = … sslpassword=…",
		"cannot reach http://me:hunter2@h:7420: dial tcp 127.0.0.1:7420.": "cannot reach http://me:…@h:7420: dial tcp 127.0.0.1:7420.",
		`parse "http://u:hunter2": invalid port ":hun\"ter2" after host`:  `parse "http://u:…": invalid port "…" after host`,
		`cannot parse host=h password=two\ hunter2 user=u`:                `cannot parse host=h password=… user=u`,
		"PERDURE_TOKEN=hunter2, access_token=hunter2 x":                   "PERDURE_TOKEN=… access_token=… x",
		`dial "postgres://u:it's"hunter2@h/d" failed`:                     `dial "postgres://u:…@h/d" failed`,
		"http://[::1]:7420/a?b=c is not it":                               "http://[::1]:7420/a?b=… is not it",
	} {
		if got := Text(text); got != want {
			t.Errorf("%s:\n%s, not\n%s", text, got, want)
		}
	}
}

func TestParseErrorIsRedacted(t *testing.T) {
	for text, want := range map[string]string{
		"http://u:hunter2":        "invalid port after the host",
		"http://u:hunter2%zz@h":   "invalid percent-encoding",
		"http://a b":              "invalid character in the host",
		"http://u:hun ter2\x7f@h": "invalid control character in URL",
		"http://u:hunter2[@h/":    "invalid userinfo",
		":hunter2":                "missing protocol scheme",
		"hunter2%":                "invalid percent-encoding",
	} {
		_, err := url.Parse(text)
		if err == nil {
			t.Errorf("%s is a URL", text)
			continue
		}
		if got := ParseError(err); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
	if got := ParseError(errors.New(`quotes "hunter2"`)); got != "it cannot be read" {
		t.Error(got)
	}
}

func TestErrorIsRedactedAndStillMatches(t *testing.T) {
	inner := &url.Error{Op: "parse", URL: "http://me:hunter2@h", Err: errors.New("x")}
	got := Error(inner)
	if got.Error() != `parse "http://me:…@h": x` || !errors.Is(got, inner) {
		t.Error(got)
	}
	if harmless := errors.New("harmless"); Error(harmless) != harmless || Error(nil) != nil { //nolint:errorlint // the very same
		t.Error("an error without a secret is replaced")
	}
}
