package secret

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/jsontext"
	"github.com/perdure/perdure/internal/runcontext"
)

// Redactor replaces the values of secrets in what a run reports: each by [secret NAME]. It finds a value as it is, and in
// the forms in which messages and echoed requests usually have it (see formsOf). It cannot find a value that was transformed
// in another way. A nil Redactor changes nothing. It is safe for concurrent use.
type Redactor struct {
	forms []form // the longest first
	all   *strings.Replacer
	spans *strings.Replacer // forms that may be several tokens of a JSON text
}

// Of returns the redactor of the run to which a handler's context belongs; nil if the run has no secrets. The agent host
// removes secrets from what a handler returns. A handler that cuts a text uses Part before, because a host does not
// recognize a part of a secret.
func Of(ctx context.Context) *Redactor {
	r, _ := runcontext.Redactor(ctx).(*Redactor)
	return r
}

// form is a text in which a secret may appear.
type form struct{ text, mark string }

const (
	// MinRedacted is the length in bytes from which on a value is redacted. A shorter one occurs by chance.
	MinRedacted = 4
	// minLine is the length from which on each line of a value of several lines is redacted for itself.
	minLine = 16
	// maxLines bounds these lines of one value.
	maxLines = 256
	// escapeLevels is how many times a form may be quoted again; once, if the value is larger than maxEscaped.
	escapeLevels = 3
	maxEscaped   = 8 << 10
)

// NewRedactor makes a redactor; nil if there is nothing to redact.
func NewRedactor(values []Value) *Redactor {
	r := &Redactor{}
	seen := map[string]bool{}
	for _, v := range values {
		if len(v.Text) < MinRedacted {
			continue
		}
		for _, text := range formsOf(v.Text) {
			if len(text) >= MinRedacted && !seen[text] {
				seen[text] = true
				r.forms = append(r.forms, form{text, "[secret " + v.Name + "]"})
			}
		}
	}
	if len(r.forms) == 0 {
		return nil
	}
	slices.SortStableFunc(r.forms, func(a, b form) int { return len(b.text) - len(a.text) })
	var all, spans []string
	for _, f := range r.forms {
		all = append(all, f.text, f.mark)
		if strings.ContainsAny(f.text, "{}[],:\" \t\r\n") {
			spans = append(spans, f.text, f.mark)
		}
	}
	r.all, r.spans = strings.NewReplacer(all...), strings.NewReplacer(spans...)
	return r
}

// formsOf returns a value as it is, and as URLs, JSON, Go's %q, programs, HTML and base64 have it. Of a value with several
// lines, such as a key in PEM, each long line counts as well.
func formsOf(value string) []string {
	list := []string{value, strings.TrimSpace(value)}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= minLine && len(list) < maxLines {
			list = append(list, line)
		}
	}
	for _, text := range slices.Clone(list) {
		quoted, ascii := strconv.Quote(text), strconv.QuoteToASCII(text)
		list = append(list, quoted[1:len(quoted)-1],
			string(jsontext.AppendEscaped(nil, text, false)), string(jsontext.AppendEscaped(nil, text, true)), ascii[1:len(ascii)-1],
			strings.ReplaceAll(text, `'`, `\'`), strings.ReplaceAll(quoted[1:len(quoted)-1], `'`, `\'`), // in single quotes, as Python's repr has it
			strings.ReplaceAll(text, `'`, `'\''`), strings.ReplaceAll(text, `'`, `'"'"'`), // in a shell
			(&url.URL{Path: text}).EscapedPath())
		list = append(list, percentForms(text)...)
		list = append(list, htmlForms(text)...)
	}
	// Messages quote messages: JSON in a string of JSON, for example, has each backslash twice.
	levels := escapeLevels
	if len(value) > maxEscaped {
		levels = 1
	}
	for level, from := 0, 0; level < levels; level++ {
		end := len(list)
		for _, text := range list[from:end] {
			if escaped := string(jsontext.AppendEscaped(nil, text, false)); escaped != text {
				list = append(list, escaped)
			}
		}
		from = end
	}
	return append(list, base64Forms(value)...)
}

// percentForms returns a text as URLs and forms have it. Encoders differ in the characters that they leave, and in the case
// of the digits.
func percentForms(text string) []string {
	list := []string{url.QueryEscape(text), url.PathEscape(text)}
	for _, left := range []string{"-._~", "-._~/", "-._~!'()*", "-._~!'()*;,/?:@&=+$#"} { // RFC 3986, paths, encodeURIComponent, encodeURI
		var b strings.Builder
		for i := range len(text) {
			if c := text[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(left, c) >= 0 {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		list = append(list, b.String(), strings.ReplaceAll(b.String(), "%20", "+"))
	}
	for _, form := range slices.Clone(list) {
		list = append(list, percentCode.ReplaceAllStringFunc(form, strings.ToLower))
	}
	return list
}

var percentCode = regexp.MustCompile(`%[0-9A-F]{2}`)

// htmlForms returns a text as HTML and XML have it.
func htmlForms(text string) (list []string) {
	for _, double := range []string{`"`, "&quot;", "&#34;", "&#x22;"} {
		for _, single := range []string{`'`, "&apos;", "&#39;", "&#x27;"} {
			list = append(list, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, double, `'`, single).Replace(text))
		}
	}
	return list
}

// base64Forms returns a value in base64, alone and within a longer text: there, it begins at one of three places of a group
// of four characters, and the characters at its ends depend on its neighbours, too.
func base64Forms(value string) (list []string) {
	for before := range 3 {
		shifted := append(make([]byte, before), value...)
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			list = append(list, e.EncodeToString(shifted)[(8*before+5)/6:8*len(shifted)/6])
		}
	}
	b := []byte(value)
	return append(list, base64.StdEncoding.EncodeToString(b), base64.RawStdEncoding.EncodeToString(b),
		base64.URLEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b))
}

// Text returns a text without the secrets.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	return r.all.Replace(s)
}

// Part returns a part of a longer text without the secrets, also without one that the cut has left incomplete. start and
// end say on which sides text was cut off.
func (r *Redactor) Part(s string, start, end bool) string {
	if r == nil || s == "" {
		return s
	}
	for _, f := range r.forms {
		if (start || end) && strings.Contains(f.text, s) { // s is the middle of a secret, or all of it
			return f.mark
		}
	}
	head, tail := "", ""
	if start {
		if k, mark := r.overlap(s, strings.HasPrefix, func(t string, k int) string { return t[len(t)-k:] }); k > 0 {
			head, s = mark, s[k:]
		}
	}
	if end {
		if k, mark := r.overlap(s, strings.HasSuffix, func(t string, k int) string { return t[:k] }); k > 0 {
			tail, s = mark, s[:len(s)-k]
		}
	}
	return head + r.Text(s) + tail
}

// overlap returns the length of the longest incomplete secret at one end of s, and its mark. part returns the k bytes of a
// form that would be at this end, and has reports whether s has them there.
func (r *Redactor) overlap(s string, has func(s, part string) bool, part func(text string, k int) string) (longest int, mark string) {
	for _, f := range r.forms {
		for k := min(len(f.text)-1, len(s)); k > longest; k-- {
			if has(s, part(f.text, k)) {
				longest, mark = k, f.mark
			}
		}
	}
	return longest, mark
}

// JSON returns a JSON text without the secrets: in strings, names and numbers. A number that has one becomes a string. If a
// secret is itself JSON, such as the key file of a cloud, and occurs as several values, the result may not be JSON.
func (r *Redactor) JSON(b []byte) []byte {
	if r == nil {
		return b
	}
	if !json.Valid(b) {
		return []byte(r.Text(string(b)))
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			end := endOfString(b, i)
			out = r.appendString(out, b[i:end])
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(b) && strings.IndexByte("+-.eE0123456789", b[end]) >= 0 {
				end++
			}
			if token := string(b[i:end]); r.Text(token) != token {
				out = jsontext.AppendString(out, r.Text(token), false)
			} else {
				out = append(out, token...)
			}
			i = end
		default:
			out = append(out, c)
			i++
		}
	}
	return []byte(r.spans.Replace(string(out)))
}

// endOfString returns where the string that begins at i ends.
func endOfString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// appendString appends a string of a JSON text without the secrets.
func (r *Redactor) appendString(out, literal []byte) []byte {
	s := string(literal[1 : len(literal)-1])
	if bytes.IndexByte(literal, '\\') >= 0 && json.Unmarshal(literal, &s) != nil {
		return append(out, literal...)
	}
	if shown := r.Text(s); shown != s {
		return jsontext.AppendString(out, shown, false)
	}
	return append(out, literal...)
}

// Output returns an output without the secrets. It is JSON if the output was.
func (r *Redactor) Output(output json.RawMessage) json.RawMessage {
	if r == nil || len(output) == 0 {
		return output
	}
	shown := r.JSON(output)
	if !json.Valid(shown) && json.Valid(output) {
		return jsontext.AppendString(nil, string(shown), false)
	}
	return shown
}

// Error returns err with a message without the secrets. Wrapped errors stay reachable.
func (r *Redactor) Error(err error) error {
	if r == nil || err == nil {
		return err
	}
	text := err.Error()
	if shown := r.Text(text); shown != text {
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
