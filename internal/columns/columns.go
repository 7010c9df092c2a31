// Package columns measures how wide texts are where each character takes one column or two: on terminals and, about, in
// drawings.
package columns

import (
	"unicode"

	"golang.org/x/text/width"
)

// Of returns how many columns a text takes: ideographs, Hangul and most emoji take two, and combining marks and joiners
// none.
func Of(s string) int {
	n := 0
	for _, r := range s {
		n += OfRune(r)
	}
	return n
}

// OfRune returns how many columns a character takes.
func OfRune(r rune) int {
	if r < 0x300 { // the common case
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) || r == '\u200c' || r == '\u200d' {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
