package text

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote quotes a user's word in a message. A long word is shortened.
func Quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '`' || r == 0x7f }) || s == "" {
		return fmt.Sprintf("%q", s)
	}
	return "`" + s + "`"
}

// describe names what rest begins with, for a message.
func describe(rest []byte) string {
	if len(rest) == 0 {
		return "the end of the text"
	}
	if rest[0] == '\n' || rest[0] == '\r' {
		return "the end of the line"
	}
	r, _ := utf8.DecodeRune(rest)
	word := string(rest[:min(len(rest), 80)])
	if i := strings.IndexAny(word, " \t\r\n,:{}[]\""); i > 0 {
		word = word[:i]
	} else if i == 0 {
		word = string(r)
	}
	return Quote(strings.ToValidUTF8(word, ""))
}

// Nearest returns the candidate that differs least from word, or "" if none is similar.
func Nearest(word string, candidates []string) string {
	best, most := "", max(1, min(3, len(word)/3))+1
	for _, c := range candidates {
		if strings.EqualFold(c, word) {
			return c
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c), most); d < most {
			best, most = c, d
		}
	}
	return best
}

// Suggest is a hint that names the nearest candidate, or all of them if they are few.
func Suggest(word string, candidates []string) string {
	if nearest := Nearest(word, candidates); nearest != "" {
		return "did you mean " + Quote(nearest) + "?"
	}
	if len(candidates) == 0 || len(candidates) > 16 {
		return ""
	}
	return "there are " + strings.Join(candidates, ", ")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between a and b,
// or is limit if there are that many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 256 {
		return limit
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return min(prev[len(b)], limit)
}

// IsIdentifier reports whether s is a name that may follow a dot in an expression: letters, digits and _, no digit first.
func IsIdentifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// DidYouMean is a hint that names the nearest candidate, or "".
func DidYouMean(word string, among []string) string {
	if nearest := Nearest(word, among); nearest != "" {
		return "did you mean " + Quote(nearest) + "?"
	}
	return ""
}
