package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/redact"
)

// Some of what is shown on a terminal comes from jobs, agents and servers: names, inputs, errors and answers. Such text
// must not control the terminal, and must not look different from what it is.

// deceptive characters change how a terminal shows other characters, or are not visible: controls of 7 and 8 bits,
// separators of lines, and format characters (bidirectional controls, zero-width and tag characters). Joiners are not
// among them: emoji and some scripts need them. Neither are the signs of Arabic numbers, which are visible.
func deceptive(r rune) bool {
	switch {
	case r >= ' ' && r <= '~':
		return false
	case r == '\u200c', r == '\u200d', unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	case r >= 0xE0000 && r <= 0xE0FFF: // tags and variation selectors, which can encode hidden text
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// plain makes untrusted text safe for a terminal: one line without deceptive characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case deceptive(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// sgr are the sequences by which style colors text.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// safe is text of several lines without deceptive characters, except for the colors of s.
func (s style) safe(text string) string {
	if s.on && strings.Contains(text, "\x1b[") {
		var b strings.Builder
		for {
			at := sgr.FindStringIndex(text)
			if at == nil {
				break
			}
			b.WriteString(style{}.safe(text[:at[0]]) + text[at[0]:at[1]])
			text = text[at[1]:]
		}
		return b.String() + style{}.safe(text)
	}
	return strings.Map(func(r rune) rune {
		if deceptive(r) && r != '\n' {
			return utf8.RuneError
		}
		return r
	}, text)
}

// message returns a text for stderr: without secrets and deceptive characters.
func message(s string) string { return style{}.safe(redact.Text(s)) }

// escaped writes JSON, and escapes the deceptive characters that encoding/json does not escape: DEL, 8-bit controls, and
// format characters. A reader of the JSON gets the same strings. Each write must be a whole value.
type escaped struct{ w io.Writer }

func (e escaped) Write(b []byte) (int, error) {
	if _, err := e.w.Write(escapeJSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// cleaned writes lines of text without their deceptive characters.
type cleaned struct{ w io.Writer }

func (c cleaned) Write(b []byte) (int, error) {
	if _, err := io.WriteString(c.w, style{}.safe(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

func escapeJSON(b []byte) []byte {
	from := 0 // text before this position is in out
	var out []byte
	for i := 0; i < len(b); {
		r, size := rune(b[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(b[i:])
		}
		if r >= 0x7F && deceptive(r) { // lower characters are escaped already, or between values
			out = append(out, b[from:i]...)
			if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
				out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
			} else {
				out = fmt.Appendf(out, `\u%04x`, r)
			}
			from = i + size
		}
		i += size
	}
	if from == 0 {
		return b
	}
	return append(out, b[from:]...)
}
