package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

const testPage = `<!doctype html><base href="/ui/"><script type="module" src="assets/main-AAAA.js"></script>`

var testScript = strings.Repeat("console.log('perdure');\n", 200)

func testSite(t *testing.T) *site {
	t.Helper()
	s, err := readSite(fstest.MapFS{
		"index.html":            {Data: []byte(testPage)},
		"missing.html":          {Data: []byte(`<base href="/ui/">missing`)},
		"assets/main-AAAA.js":   {Data: []byte(testScript)},
		"assets/style-BBBB.css": {Data: []byte("a{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, h http.Handler, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryPageIsTheIndexWithItsBase(t *testing.T) {
	for _, base := range []string{"/ui/", "/perdure/ui/", `/a&"b/ui/`} {
		h := testSite(t).handler(base)
		for _, path := range []string{"/ui/", "/ui/jobs", "/ui/jobs/order-1042?tab=steps", "/perdure/ui/alerts", "/jobs/assets", "/"} {
			resp := get(t, h, path)
			body := bodyOf(t, resp)
			want := `<base href="` + strings.NewReplacer("&", "&amp;", `"`, "&#34;").Replace(base) + `">`
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) || !strings.Contains(body, "assets/main-AAAA.js") {
				t.Errorf("%s below %s: %d %s", path, base, resp.StatusCode, body)
			}
			if got := resp.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
				t.Errorf("%s: Content-Type %q", path, got)
			}
			if got := resp.Header.Get("Cache-Control"); got != "no-cache" {
				t.Errorf("%s: Cache-Control %q: a browser would keep the page of an older version", path, got)
			}
		}
	}
}

func TestAnswersHaveTheHeadersOfSecurity(t *testing.T) {
	want := map[string]string{
		"Content-Security-Policy":    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
		"X-Content-Type-Options":     "nosniff",
		"Referrer-Policy":            "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin",
	}
	h := testSite(t).handler("/ui/")
	for _, path := range []string{"/ui/", "/ui/assets/main-AAAA.js", "/ui/assets/none.js"} {
		resp := get(t, h, path)
		for name, value := range want {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
}

func TestAssetsAreCachedAndCompressed(t *testing.T) {
	h := testSite(t).handler("/ui/")
	for _, c := range []struct {
		path, accept string
		gzipped      bool
		mediaType    string
		body         string
	}{
		{"/ui/assets/main-AAAA.js", "", false, "text/javascript; charset=utf-8", testScript},
		{"/ui/assets/main-AAAA.js", "br, gzip;q=0.5", true, "text/javascript; charset=utf-8", testScript},
		{"/ui/assets/main-AAAA.js", "*", true, "text/javascript; charset=utf-8", testScript},
		{"/ui/assets/main-AAAA.js", "gzip;q=0, *", false, "text/javascript; charset=utf-8", testScript},
		{"/other/ui/assets/main-AAAA.js", "gzip", true, "text/javascript; charset=utf-8", testScript},
		{"assets/main-AAAA.js", "identity", false, "text/javascript; charset=utf-8", testScript},
		{"/ui/assets/style-BBBB.css", "gzip", false, "text/css; charset=utf-8", "a{}"}, // too small
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = c.path
		if c.accept != "" {
			r.Header.Set("Accept-Encoding", c.accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body := w.Body.Bytes()
		if (w.Header().Get("Content-Encoding") == "gzip") != c.gzipped {
			t.Errorf("%s with %q: Content-Encoding %q", c.path, c.accept, w.Header().Get("Content-Encoding"))
			continue
		}
		if c.gzipped {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if w.Code != http.StatusOK || string(body) != c.body || w.Header().Get("Content-Type") != c.mediaType {
			t.Errorf("%s: %d, %q, %d bytes", c.path, w.Code, w.Header().Get("Content-Type"), len(body))
		}
		if got := w.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s: Cache-Control %q", c.path, got)
		}
		if vary := w.Header().Get("Vary"); strings.HasSuffix(c.path, ".js") && vary != "Accept-Encoding" {
			t.Errorf("%s: Vary %q", c.path, vary)
		}
	}
}

func TestMissingAssetIsNotFound(t *testing.T) {
	for _, path := range []string{"/ui/assets/main-OLD.js", "/ui/assets/", "/ui/assets/index.html"} {
		resp := get(t, testSite(t).handler("/ui/"), path)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, Cache-Control %q", path, resp.StatusCode, resp.Header.Get("Cache-Control"))
		}
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	w := httptest.NewRecorder()
	testSite(t).handler("/ui/").ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ui/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("%d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
	w = httptest.NewRecorder()
	testSite(t).handler("/ui/").ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/ui/", nil))
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d with %d bytes, Content-Length %q", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

// Without a build there is a page that says how to get the console. It is in the repository.
func TestWithoutABuildThePageSaysSo(t *testing.T) {
	text, err := dist.ReadFile("dist/" + missingFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSite(fstest.MapFS{missingFile: {Data: text}})
	if err != nil {
		t.Fatal(err)
	}
	if s.built {
		t.Error("a directory without index.html counts as built")
	}
	resp := get(t, s.handler("/perdure/ui/"), "/ui/jobs")
	if body := bodyOf(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, "make console") || !strings.Contains(body, `<base href="/perdure/ui/">`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if strings.Contains(string(text), "style") || strings.Contains(string(text), "<script") {
		t.Error("the page has a style or a script, which its policy forbids")
	}
}

func TestInvalidBasesAreRefused(t *testing.T) {
	for _, base := range []string{"", "ui/", "/ui", "//evil.example/", "/ui/?a/", "/ui/#/", `/\evil.example/`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("the base %q is accepted", base)
				}
			}()
			testSite(t).handler(base)
		}()
	}
}

func TestAnIndexWithoutABaseIsRefused(t *testing.T) {
	if _, err := readSite(fstest.MapFS{"index.html": {Data: []byte("<!doctype html>")}}); err == nil || !strings.Contains(err.Error(), "<base") {
		t.Errorf("error %v", err)
	}
}
