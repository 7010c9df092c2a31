package negotiate

import (
	"net/http"
	"testing"
)

func TestGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"":                        false,
		"gzip":                    true,
		"br, GZIP":                true,
		"gzip;q=0":                false,
		"gzip; q=0.0":             false,
		"gzip;q=0.001":            true,
		"*":                       true,
		"*;q=0":                   false,
		"gzip;q=0, *":             false,
		"*;q=0, gzip":             true,
		"identity":                false,
		"br;q=1.0, gzip;q=0.8, *": true,
		";;;":                     false,
		"gzip;q=x":                true,
	} {
		if got := Gzip(http.Header{"Accept-Encoding": {header}}); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
	if !Gzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) || Gzip(nil) {
		t.Error("several headers, or none")
	}
}

func TestNames(t *testing.T) {
	for header, want := range map[string]bool{
		"":                                     false,
		"text/event-stream":                    true,
		"Text/Event-Stream; charset=utf-8":     true,
		"application/json, text/event-stream":  true,
		"text/event-stream;q=0":                false,
		"*/*":                                  false,
		"text/*":                               false,
		"text/html,application/xml;q=0.9,*/*;": false,
	} {
		if got := Names(http.Header{"Accept": {header}}, "text/event-stream"); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for header, want := range map[string]bool{
		``: false, `W/"a"`: true, `"a"`: true, `"b", W/"a"`: true, `"b"`: false, `*`: true, `a`: false, `,`: false, `"A"`: false,
	} {
		if got := Matches([]string{header}, `W/"a"`); got != want {
			t.Errorf("%s: %v, want %v", header, got, want)
		}
	}
}
