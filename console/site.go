package console

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/negotiate"
)

// site is the console as it is served.
type site struct {
	page   []byte           // index.html, with basePlace in it; or missing.html
	assets map[string]asset // by name
	built  bool
}

// asset is a file whose name contains a hash of its content.
type asset struct {
	mediaType string
	plain     []byte
	gzipped   []byte // nil: not smaller
}

const (
	indexFile   = "index.html"
	missingFile = "missing.html"
	assetDir    = "assets"

	// basePlace is where index.html gets the base of its relative links.
	basePlace = `<base href="/ui/">`

	// minGzip is the size below which compression is not worth its headers.
	minGzip = 1 << 10
)

// readSite reads the files of dist/.
func readSite(files fs.FS) (*site, error) {
	name := indexFile
	page, err := fs.ReadFile(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		name = missingFile
		page, err = fs.ReadFile(files, name)
	}
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(page, []byte(basePlace)) {
		return nil, fmt.Errorf("%s lacks %s", name, basePlace)
	}
	s := &site{page: page, built: name == indexFile, assets: map[string]asset{}}
	names, err := fs.Glob(files, assetDir+"/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		plain, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		s.assets[path.Base(name)] = asset{mediaType: mediaType(name), plain: plain, gzipped: gzipped(plain)}
	}
	return s, nil
}

// mediaType does not depend on the tables of the operating system, as mime.TypeByExtension does.
func mediaType(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// gzipped compresses b; nil if that makes it no smaller.
func gzipped(b []byte) []byte {
	if len(b) < minGzip {
		return nil
	}
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	_, _ = w.Write(b)                                       // a bytes.Buffer returns no error
	_ = w.Close()
	if out.Len() >= len(b) {
		return nil
	}
	return out.Bytes()
}

func (s *site) handler(base string) http.Handler {
	if !strings.HasPrefix(base, "/") || !strings.HasSuffix(base, "/") || strings.HasPrefix(base, "//") || strings.ContainsAny(base, "?#\\") {
		panic(fmt.Sprintf("console: the base %q is not a path with a slash at both ends, such as /ui/", base))
	}
	place := `<base href="` + html.EscapeString(base) + `">`
	page := bytes.Replace(s.page, []byte(basePlace), []byte(place), 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "the console answers GET and HEAD only", http.StatusMethodNotAllowed)
			return
		}
		if name, ok := assetName(r.URL.Path); ok {
			s.serveAsset(w, r, name)
			return
		}
		// Every other path is a page of the console, which its script shows. The browser asks for it each time, so
		// that it gets the assets of the running version.
		send(w, r, "text/html; charset=utf-8", "no-cache", page)
	})
}

// policy allows the page its own files and the API of its own origin, and nothing else: no inline script or style, no
// frame around it, no other server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"

// assetName is the last element of a path that leads into the directory of assets. No page of the console has such a
// path, because neither keys nor ids contain a slash. The prefix before it does not matter.
func assetName(urlPath string) (name string, ok bool) {
	dir, name := path.Split(urlPath)
	return name, strings.HasSuffix(dir, "/"+assetDir+"/") || dir == assetDir+"/"
}

func (s *site) serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := s.assets[name]
	if !ok {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "there is no such file in this version of the console; reload the page", http.StatusNotFound)
		return
	}
	body := a.plain
	if a.gzipped != nil {
		w.Header().Set("Vary", "Accept-Encoding")
		if negotiate.Gzip(r.Header) {
			w.Header().Set("Content-Encoding", "gzip")
			body = a.gzipped
		}
	}
	send(w, r, a.mediaType, "public, max-age=31536000, immutable", body)
}

func send(w http.ResponseWriter, r *http.Request, mediaType, caching string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Cache-Control", caching)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error means that the browser has gone
	}
}
