package plain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The amounts that have a unit: thousandths of a CPU, and bytes.
const (
	AmountCPU    = "cpu"
	AmountMemory = "memory"
)

// AmountText returns an amount as people write it: 1500 of cpu is "1.5", and 1 << 30 of memory is "1GiB".
func AmountText(name string, n int64) string {
	switch name {
	case AmountCPU:
		return strconv.FormatFloat(float64(n)/1000, 'f', -1, 64)
	case AmountMemory:
		unit := 0
		for n > 0 && n%1024 == 0 && unit < len(memoryUnits)-1 {
			n, unit = n/1024, unit+1
		}
		return strconv.FormatInt(n, 10) + memoryUnits[unit]
	}
	return strconv.FormatInt(n, 10)
}

var memoryUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}

// MaxAmount is the largest amount: a pebibyte of memory, a billion CPUs.
const MaxAmount = 1 << 50

// ParseAmount reads an amount from a text as AmountText writes it. Memory may also be a number of bytes. The error
// continues a sentence that begins with the name.
func ParseAmount(name, text string) (int64, error) {
	var n int64
	var ok bool
	want := "is not a whole number of 0 or more"
	switch name {
	case AmountCPU:
		want = "is not a number of 0 or more with at most three decimals"
		n, ok = parseThousandths(text)
	case AmountMemory:
		want = "is not a size such as 4GiB, or a number of bytes"
		n, ok = parseMemory(text)
	default:
		n, ok = parseWhole(text)
	}
	switch {
	case !ok:
		return 0, errors.New(want)
	case n > MaxAmount:
		return 0, fmt.Errorf("is over %s", AmountText(name, MaxAmount))
	}
	return n, nil
}

func parseWhole(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}

func parseThousandths(text string) (int64, bool) {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > 3 || len(whole) > 15 {
		return 0, false
	}
	return parseWhole(whole + decimals + "000"[:3-len(decimals)])
}

func parseMemory(text string) (int64, bool) {
	for i, unit := range slices.Backward(memoryUnits) {
		if number, found := strings.CutSuffix(text, unit); found {
			n, ok := parseWhole(number)
			return n << (10 * i), ok && n <= math.MaxInt64>>(10*i)
		}
	}
	return parseWhole(text)
}

// HostLabel is a label that each host has: its name.
const HostLabel = "host"

// MaxHostWord is the largest length of a word that CheckHostWord accepts.
const MaxHostWord = 64

// CheckHostWord returns what is wrong with the name of a host, grid, label or amount, or with the value of a label; nil if
// it is valid. The error continues a sentence that begins with it.
func CheckHostWord(s string) error {
	switch {
	case len(s) > MaxHostWord:
		return fmt.Errorf("has %d characters; at most %d", len(s), MaxHostWord)
	case !IsName(s):
		return errors.New("has other characters than letters, digits, `.`, `_` and `-`, or does not start with a letter or digit")
	}
	return nil
}
