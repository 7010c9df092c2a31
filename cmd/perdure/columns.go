package main

import (
	"unicode"

	"golang.org/x/text/width"
)

// columns returns how many columns of a terminal a text takes: ideographs, Hangul and most emoji take two, and combining
// marks and joiners none.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
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
